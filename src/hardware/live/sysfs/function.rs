//! One PCI function: its link, errors, access control, packets, power and windows.

use std::fs;
use std::path::Path;

use super::Sysfs;
use super::config::Config;
use super::pci::{generation, width};
use super::read::{hex, io_unknown, number, odd, text};
use model::reading::{Reading, Unknown};
use model::snapshot::{Bar, PciFunction, PciKind, PciPower, RuntimeStatus};
use model::units::{Bytes, MIB, PciAddress};

/// Windows of a function. The file lists its ROM and more after them.
const BARS: usize = 6;

impl Sysfs {
    pub(super) fn function(
        &self,
        address: PciAddress,
        parent: Option<PciAddress>,
        host_bridge: String,
        kind: PciKind,
        slot: Option<String>,
    ) -> PciFunction {
        let dir = self.device(address);
        // Read these before the configuration space, because reading that wakes the function up.
        let (power_state, runtime_status) = (power_state(&dir), runtime_status(&dir));
        let id = |file| {
            hex(&dir.join(file))
                .and_then(|id| u16::try_from(id).map_err(|_| odd(&format!("{id:#x}"))))
        };
        let speed = |file| text(&dir.join(file)).and_then(|text| generation(&text));
        let lanes = |file| text(&dir.join(file)).and_then(|text| width(&text));
        let errors = |class: &str, total: &str| aer(&dir.join(format!("aer_dev_{class}")), total);
        let iommu_group = fs::read_link(dir.join("iommu_group"))
            .map_err(|error| io_unknown(&error))
            .and_then(|link| {
                link.file_name()
                    .and_then(|name| name.to_str()?.parse::<u32>().ok())
                    .ok_or_else(|| odd(""))
            });
        let iommu_type = iommu_group
            .clone()
            .and_then(|group| text(&self.sys.join(format!("kernel/iommu_groups/{group}/type"))))
            .and_then(|kind| if kind.is_empty() { Err(odd(&kind)) } else { Ok(kind) });
        let config = Config::open(&dir.join("config"));
        let config = config.as_ref().map_err(Unknown::clone);
        let packets = config.clone().and_then(Config::packets);
        let packets = packets.as_ref().map_err(Unknown::clone);
        let mut function = PciFunction {
            address,
            parent,
            host_bridge,
            kind,
            vendor: id("vendor").into(),
            device_id: id("device").into(),
            class: hex(&dir.join("class")).into(),
            generation: speed("current_link_speed").into(),
            width: lanes("current_link_width").into(),
            generation_max: speed("max_link_speed").into(),
            width_max: lanes("max_link_width").into(),
            numa_node: self.numa_node(address),
            slot: slot.map_or(Reading::unsupported(), Reading::Known),
            aer_correctable: errors("correctable", "TOTAL_ERR_COR").into(),
            aer_nonfatal: errors("nonfatal", "TOTAL_ERR_NONFATAL").into(),
            aer_fatal: errors("fatal", "TOTAL_ERR_FATAL").into(),
            iommu_group: iommu_group.into(),
            iommu_type: iommu_type.into(),
            acs_redirect: config.clone().and_then(Config::acs_redirect).into(),
            answers: config.and_then(Config::answers).into(),
            max_payload_bytes: packets.clone().and_then(|packets| packets.payload.clone()).into(),
            max_payload_possible_bytes: packets
                .clone()
                .and_then(|packets| packets.payload_possible.clone())
                .into(),
            max_read_request_bytes: packets.and_then(|packets| packets.read_request.clone()).into(),
            power_state: power_state.into(),
            runtime_status: runtime_status.into(),
            removable: removable(&dir).into(),
            bars: Reading::unsupported(),
        };
        if function.is_display() {
            function.bars = bars(&dir).into();
        }
        function
    }
}

/// Returns the total of an AER counter file.
fn aer(path: &Path, total: &str) -> Result<u64, Unknown> {
    let counters = match text(path) {
        // Some kernels print one number.
        Ok(counters) if !counters.contains(char::is_whitespace) => return number(path),
        other => other?,
    };
    let count = counters.lines().find_map(|line| line.strip_prefix(total));
    count.and_then(|count| count.trim().parse().ok()).ok_or_else(|| odd(&counters))
}

fn power_state(dir: &Path) -> Result<PciPower, Unknown> {
    let state = text(&dir.join("power_state"))?;
    Ok(match state.as_str() {
        "D0" => PciPower::D0,
        "D1" => PciPower::D1,
        "D2" => PciPower::D2,
        "D3hot" => PciPower::D3Hot,
        "D3cold" => PciPower::D3Cold,
        _ => return Err(odd(&state)),
    })
}

fn runtime_status(dir: &Path) -> Result<RuntimeStatus, Unknown> {
    let status = text(&dir.join("power/runtime_status"))?;
    Ok(match status.as_str() {
        "active" => RuntimeStatus::Active,
        "suspended" => RuntimeStatus::Suspended,
        "suspending" => RuntimeStatus::Suspending,
        "resuming" => RuntimeStatus::Resuming,
        "error" => RuntimeStatus::Error,
        "unsupported" => return Err(Unknown::Unsupported),
        _ => return Err(odd(&status)),
    })
}

/// Returns true if the kernel reports a function as removable. It has this file for functions below a port that the
/// firmware calls external, and for little else.
fn removable(dir: &Path) -> Result<bool, Unknown> {
    let removable = text(&dir.join("removable"))?;
    match removable.as_str() {
        "removable" => Ok(true),
        "fixed" => Ok(false),
        "unknown" => Err(Unknown::Unsupported),
        _ => Err(odd(&removable)),
    }
}

/// Returns the windows that have a size. The file contains first and last address and flags, a line each. The sizes
/// that can be set are bits from 1 MiB on.
fn bars(dir: &Path) -> Result<Vec<Bar>, Unknown> {
    let resource = text(&dir.join("resource"))?;
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let bar = |(line, number): (&str, u8)| {
        let (first, rest) = line.split_once(' ')?;
        let (first, last) = (hex(first)?, hex(rest.split(' ').next()?)?);
        let bytes = last.checked_sub(first).filter(|_| last != 0)?.checked_add(1)?;
        let sizes =
            text(&dir.join(format!("resource{number}_resize"))).ok().and_then(|sizes| hex(&sizes));
        let largest = sizes
            .and_then(u64::checked_ilog2)
            .and_then(|bit| MIB.checked_shl(bit))
            .filter(|size| *size > 0);
        Some(Bar { number, bytes: Bytes(bytes), largest_bytes: largest.map(Bytes) })
    };
    Ok(resource.lines().take(BARS).zip(0..).filter_map(bar).collect())
}

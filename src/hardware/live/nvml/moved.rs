//! The data that a GPU has moved, for all programs.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;

use super::raw::{Field, Raw};
use super::{Opened, error, nvlink};
use hardware::{Counts, LinkBytes, Moved};
use model::reading::Unknown;
use model::units::GbPerSecond;

/// Returns `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `…_RX`, KiB. The scope is the link, or [`ALL_LINKS`].
const fn nvlink_data(scope: u32) -> [Field; 2] {
    [Field { id: 138, scope }, Field { id: 139, scope }]
}
/// Scope for all links together.
const ALL_LINKS: u32 = u32::MAX;
const NVLINK_DATA: [Field; 2] = nvlink_data(ALL_LINKS);
/// `NVML_FI_DEV_PCIE_COUNT_TX_BYTES` and `…_RX_BYTES`. Bytes: modulo 2^32 on H200, in 64 bits elsewhere.
const PCIE_BYTES: [Field; 2] = [Field { id: 197, scope: 0 }, Field { id: 198, scope: 0 }];

/// Returns the data that a GPU has moved up to now; the caller fills in the time. Takes 2 to 3 ms on H200, and 40 ms if
/// PCIe bytes are not counted.
pub(super) fn read(device: &Opened) -> Moved {
    let counts = ask(device, |device| Raw::new(device).fields(&[NVLINK_DATA, PCIE_BYTES].concat()));
    let (nvlink, pcie) = (both(&counts, 0), both(&counts, 2));
    let pcie_rates = match pcie {
        Err(Unknown::Unsupported) => pcie_rates(device),
        _ => Err(Unknown::Unsupported),
    };
    let share = ask(device, |device| device.utilization_rates().map_err(error::unknown));
    let mut failure = None;
    Moved {
        nvlink: kept(nvlink, &mut failure).map(bytes),
        pcie: kept(pcie, &mut failure),
        pcie_rates: kept(pcie_rates, &mut failure),
        utilization_percent: kept(share, &mut failure)
            .and_then(|share| u8::try_from(share.gpu).ok()),
        failure,
        ..Moved::default()
    }
}

/// Returns the counters, in one call; the caller fills in the time. NVML takes 0.2 ms per link and field on H200.
pub(super) fn counts(device: &Opened, links: &[u8]) -> Counts {
    let of_links = links.iter().flat_map(|link| nvlink_data(u32::from(*link)));
    let fields: Vec<Field> = NVLINK_DATA.into_iter().chain(PCIE_BYTES).chain(of_links).collect();
    let counts = ask(device, |device| Raw::new(device).fields(&fields));
    let mut failure = None;
    let nvlink = kept(both(&counts, 0), &mut failure).map(bytes);
    let pcie = kept(both(&counts, 2), &mut failure);
    let link = |(place, &link): (usize, &u8)| {
        let counted = kept(both(&counts, 4 + 2 * place), &mut failure)?;
        Some((link, bytes(counted)))
    };
    let links = links.iter().enumerate().filter_map(link).collect();
    Counts { nvlink, links, pcie, failure, ..Counts::default() }
}

/// Returns the counters of the NVLinks of a GPU, those that it has.
pub(super) fn link_bytes(device: Raw) -> Result<Vec<LinkBytes>, Unknown> {
    let links = 0..nvlink::count(device)?;
    let fields: Vec<Field> = links.clone().flat_map(|link| nvlink_data(link.into())).collect();
    let counted = if fields.is_empty() { Ok(Vec::new()) } else { device.fields(&fields) };
    let of = |link: u8| {
        let [sent, received] = both(&counted, 2 * usize::from(link)).map(bytes)?;
        Ok(LinkBytes { link, sent, received })
    };
    // A link that lacks them, or is down, is left out.
    let (mut read, mut failure) = (Vec::new(), None);
    for link in links.map(of) {
        match link {
            Ok(link) => read.push(link),
            Err(why) => drop(failure.get_or_insert(why)),
        }
    }
    match failure {
        Some(why) if read.is_empty() => Err(why),
        _ => Ok(read),
    }
}

/// Returns the two fields from this index on.
fn both(
    counts: &Result<Vec<Result<u64, Unknown>>, Unknown>,
    at: usize,
) -> Result<[u64; 2], Unknown> {
    match counts.as_ref().map_err(Clone::clone)?.get(at..at + 2) {
        Some([Ok(sent), Ok(received)]) => Ok([*sent, *received]),
        Some([Err(why), _] | [_, Err(why)]) => Err(why.clone()),
        _ => Err(Unknown::Unsupported),
    }
}

const fn bytes([sent, received]: [u64; 2]) -> [u64; 2] {
    [sent.saturating_mul(1024), received.saturating_mul(1024)]
}

fn ask<T>(
    device: &Opened,
    call: impl FnOnce(&Device<'static>) -> Result<T, Unknown>,
) -> Result<T, Unknown> {
    device.0.as_ref().map_err(Clone::clone).and_then(call)
}

/// Returns the value that was read. Records the first failure; a value that this GPU or driver lacks is no failure.
fn kept<T>(reading: Result<T, Unknown>, failure: &mut Option<String>) -> Option<T> {
    match reading {
        Ok(value) => Some(value),
        Err(Unknown::Unsupported) => None,
        Err(why) => {
            failure.get_or_insert_with(|| why.to_string());
            None
        }
    }
}

/// Returns the rates, each of which NVML measures over 20 ms.
fn pcie_rates(device: &Opened) -> Result<[GbPerSecond; 2], Unknown> {
    let rate = |device: &Device<'static>, counter| {
        let kb = device.pcie_throughput(counter).map_err(error::unknown)?;
        Ok::<_, Unknown>(GbPerSecond(f64::from(kb) / 1e6))
    };
    ask(device, |device| {
        Ok([rate(device, PcieUtilCounter::Send)?, rate(device, PcieUtilCounter::Receive)?])
    })
}

//! What a GPU has moved, for whomever.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;

use super::raw::{Field, Raw};
use super::{Opened, error};
use crate::hardware::Moved;
use crate::model::units::GbPerSecond;

/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `…_RX`, KiB, for all links with this scope.
const NVLINK_DATA: [Field; 2] = [Field { id: 138, scope: u32::MAX }, Field { id: 139, scope: u32::MAX }];
/// `NVML_FI_DEV_PCIE_COUNT_TX_BYTES` and `…_RX_BYTES`. Bytes modulo 2^32, on H200.
const PCIE_BYTES: [Field; 2] = [Field { id: 197, scope: 0 }, Field { id: 198, scope: 0 }];

/// What it has moved up to now; when that was is for the caller to fill in. Takes 2 to 3 ms on H200, and 40 where PCIe bytes are not counted.
pub(super) fn read(device: &Opened) -> Moved {
    let counts = device.raw(|raw: Raw| raw.fields(&[NVLINK_DATA, PCIE_BYTES].concat()));
    let counts: Vec<_> =
        counts.known().map_or(&[][..], Vec::as_slice).iter().map(|count| count.as_ref().ok()).collect();
    let both = |at: usize| Some([*counts.get(at).copied()??, *counts.get(at + 1).copied()??]);
    let pcie = both(2).map(|bytes| bytes.map(wrapped));
    Moved {
        nvlink: both(0).map(|kib| kib.map(|kib| kib.saturating_mul(1024))),
        pcie,
        pcie_rates: if pcie.is_some() { None } else { pcie_rates(device) },
        utilization_percent: device
            .read(Device::utilization_rates)
            .known()
            .and_then(|share| u8::try_from(share.gpu).ok()),
        ..Moved::default()
    }
}

/// A count that some drivers hand out in more bits than others.
#[allow(clippy::cast_possible_truncation, reason = "the counter is one of 32 bits")]
const fn wrapped(bytes: u64) -> u32 {
    bytes as u32
}

/// Rates that NVML takes over 20 ms each.
fn pcie_rates(device: &Opened) -> Option<[GbPerSecond; 2]> {
    let rate = |counter| {
        let kb = device.ask(|device| device.pcie_throughput(counter).map_err(error::unknown));
        kb.get().map(|kb| GbPerSecond(f64::from(kb) / 1e6))
    };
    Some([rate(PcieUtilCounter::Send)?, rate(PcieUtilCounter::Receive)?])
}

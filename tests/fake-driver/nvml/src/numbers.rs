//! NVML's numbers for the names of the model: the reverse of the live code's decoding, written separately from it.

use model::snapshot::{CommonAncestor, ComputeMode, FabricState, NvLinkRemote, P2pStatus};

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
pub(crate) const UNSIGNED_LONG_LONG: u32 = 3;

/// Returns the index of a value in a list.
fn place_in<T: PartialEq>(list: &[T], value: &T) -> Option<u32> {
    list.iter().zip(0..).find(|(known, _)| *known == value).map(|(_, place)| place)
}

pub(crate) fn architecture(name: &str) -> u32 {
    const NAMES: [&str; 9] =
        ["Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"];
    let listed = place_in(&NAMES, &name).map(|place| place + 2);
    let rubin = (name == "Rubin").then_some(13);
    listed
        .or(rubin)
        .or_else(|| name.strip_prefix("architecture ")?.parse().ok())
        .unwrap_or(u32::MAX)
}

pub(crate) fn nvlink_version(text: &str) -> Option<u32> {
    const VERSIONS: [&str; 8] = ["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"];
    place_in(&VERSIONS, &text).map(|place| place + 1)
}

pub(crate) const fn nvlink_remote(remote: NvLinkRemote) -> u32 {
    match remote {
        NvLinkRemote::Gpu => 0,
        NvLinkRemote::Npu => 1,
        NvLinkRemote::Switch => 2,
    }
}

pub(crate) const fn fabric_state(state: FabricState) -> u8 {
    match state {
        FabricState::NotSupported => 0,
        FabricState::NotStarted => 1,
        FabricState::InProgress => 2,
        FabricState::Completed => 3,
    }
}

/// Returns the mask of a fabric's health. Its parts are two bits each, 1 "yes" and 2 "no". From bit 8 on it contains
/// the configuration, 1 if that is correct.
pub(crate) fn health(degraded: u32) -> u32 {
    let parts = [0, 2, 4, 6].map(|bit| if degraded >> bit & 1 == 1 { 1 << bit } else { 2 << bit });
    let configuration = (degraded >> 8 & 0xf).max(1);
    parts.into_iter().sum::<u32>() | configuration << 8
}

/// Returns the cluster's bytes.
pub(crate) fn cluster(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

pub(crate) const fn compute_mode(mode: ComputeMode) -> u32 {
    match mode {
        ComputeMode::Default => 0,
        ComputeMode::ExclusiveThread => 1,
        ComputeMode::Prohibited => 2,
        ComputeMode::ExclusiveProcess => 3,
    }
}

pub(crate) const fn p2p_status(status: P2pStatus) -> u32 {
    match status {
        P2pStatus::Ok => 0,
        P2pStatus::ChipsetNotSupported => 1,
        P2pStatus::GpuNotSupported => 2,
        P2pStatus::TopologyNotSupported => 3,
        P2pStatus::DisabledByRegkey => 4,
        P2pStatus::NotSupported => 5,
        P2pStatus::Unknown => 6,
    }
}

pub(crate) const fn common_ancestor(level: CommonAncestor) -> u32 {
    match level {
        CommonAncestor::Internal => 0,
        CommonAncestor::SingleSwitch => 10,
        CommonAncestor::MultipleSwitches => 20,
        CommonAncestor::HostBridge => 30,
        CommonAncestor::NumaNode => 40,
        CommonAncestor::System => 50,
    }
}

/// Returns the mask of throttle reasons; an unknown name is bit 63.
pub(crate) fn throttle_mask(reasons: &[String]) -> u64 {
    let bit = |name: &str| match name {
        "applications-clocks" => 0x002,
        "sw-power-cap" => 0x004,
        "hw-slowdown" => 0x008,
        "sync-boost" => 0x010,
        "sw-thermal" => 0x020,
        "hw-thermal" => 0x040,
        "hw-power-brake" => 0x080,
        "display-clocks" => 0x100,
        _ => 1 << 63,
    };
    reasons.iter().fold(0, |mask, name| mask | bit(name))
}

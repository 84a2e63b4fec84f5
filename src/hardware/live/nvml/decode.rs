//! The meaning of NVML's numbers, as pure functions. A number that is not listed here is reported, never guessed.

use model::reading::Unknown;
use model::snapshot::{
    CommonAncestor, ComputeMode, ConfidentialComputing, Fabric, FabricState, NvLinkRemote,
    P2pStatus,
};

/// Returns the error for a value of NVML that has no meaning here.
pub(super) fn unlisted(what: &str, value: impl std::fmt::Display) -> Unknown {
    Unknown::Failed(format!("NVML: {what} {value} is not listed"))
}

/// Returns a field value, which NVML stores as one of several C types in the same eight bytes. Negative and fractional
/// values are not counts and fail.
pub(super) fn field_value(value_type: u32, bytes: [u8; 8]) -> Result<u64, Unknown> {
    let [a, b, c, d, ..] = bytes;
    let value = match value_type {
        0 => {
            let value = f64::from_ne_bytes(bytes);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked by the range"
            )]
            (0.0..18_446_744_073_709_551_616.0).contains(&value).then_some(value as u64)
        }
        1 => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        // An unsigned long has the width of a pointer on the systems that NVML supports.
        2 if cfg!(target_pointer_width = "32") => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        2 | 3 => Some(u64::from_ne_bytes(bytes)),
        4 => i64::from_ne_bytes(bytes).try_into().ok(),
        5 => i32::from_ne_bytes([a, b, c, d]).try_into().ok(),
        6 => Some(u16::from_ne_bytes([a, b]).into()),
        _ => return Err(unlisted("value type", value_type)),
    };
    value.ok_or_else(|| Unknown::Failed("NVML: a negative value for a count".to_owned()))
}

/// Returns the meaning of a number that is an index into this list.
fn listed<T: Clone>(what: &str, value: u64, meanings: &[T]) -> Result<T, Unknown> {
    let place = usize::try_from(value).ok().and_then(|place| meanings.get(place));
    place.cloned().ok_or_else(|| unlisted(what, value))
}

/// Decodes a feature that is off or on.
pub(super) fn on(value: u64) -> Result<bool, Unknown> {
    listed("state", value, &[false, true])
}

/// Decodes a PCIe generation, or a number of lanes.
pub(super) fn link_figure<T: TryFrom<u32, Error: std::fmt::Display>>(
    value: u32,
) -> Result<T, Unknown> {
    value.try_into().map_err(|why| Unknown::Failed(format!("NVML: {why}")))
}

/// Returns the decimal logarithm of a bit error rate: a mantissa of 15 bits above an exponent of ten of 8 bits, which is
/// negative (nvml.h, `NVML_NVLINK_BER_*`). Returns none for no error at all.
#[allow(clippy::cast_precision_loss, reason = "both are small")]
pub(super) fn bit_error_rate(value: u64) -> Option<f64> {
    let (mantissa, exponent) = (value >> 8 & 0x7fff, value & 0xff);
    (mantissa > 0).then(|| (mantissa as f64).log10() - exponent as f64)
}

/// Returns the NVLink version from its enumeration, which begins with 1.
pub(super) fn nvlink_version(value: u64) -> Result<String, Unknown> {
    const VERSIONS: [&str; 8] = ["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"];
    let place = value.checked_sub(1).and_then(|place| usize::try_from(place).ok());
    let version = place
        .and_then(|place| VERSIONS.get(place))
        .ok_or_else(|| unlisted("NVLink version", value))?;
    Ok((*version).to_owned())
}

/// Returns the kind of device at the other end of an NVLink. 255 is NVML's "unknown".
pub(super) fn nvlink_remote(value: u32) -> Result<NvLinkRemote, Unknown> {
    listed(
        "kind of NVLink device",
        value.into(),
        &[NvLinkRemote::Gpu, NvLinkRemote::Npu, NvLinkRemote::Switch],
    )
}

/// Reasons of the throttle mask, by bit. Bit 0 is "idle", which limits no clock.
const THROTTLE_REASONS: [(u64, &str); 8] = [
    (0x002, "applications-clocks"),
    (0x004, "sw-power-cap"),
    (0x008, "hw-slowdown"),
    (0x010, "sync-boost"),
    (0x020, "sw-thermal"),
    (0x040, "hw-thermal"),
    (0x080, "hw-power-brake"),
    (0x100, "display-clocks"),
];

/// Returns short stable names of the reasons in a throttle mask.
pub(super) fn throttle_reasons(mask: u64) -> Vec<String> {
    THROTTLE_REASONS
        .iter()
        .filter(|(bit, _)| mask & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect()
}

/// Decodes confidential computing from NVML's two switches.
pub(super) fn confidential_computing(
    feature: u32,
    dev_tools: u32,
) -> Result<ConfidentialComputing, Unknown> {
    Ok(match (on(feature.into())?, on(dev_tools.into())?) {
        (false, _) => ConfidentialComputing::Off,
        (true, false) => ConfidentialComputing::On,
        (true, true) => ConfidentialComputing::DevTools,
    })
}

pub(super) fn compute_mode(value: u32) -> Result<ComputeMode, Unknown> {
    use ComputeMode::{Default, ExclusiveProcess, ExclusiveThread, Prohibited};
    listed("compute mode", value.into(), &[Default, ExclusiveThread, Prohibited, ExclusiveProcess])
}

/// Decodes a performance state, 0 to 15; 32 is NVML's "unknown".
pub(super) fn power_state(value: u32) -> Result<u8, Unknown> {
    u8::try_from(value)
        .ok()
        .filter(|state| *state <= 15)
        .ok_or_else(|| unlisted("performance state", value))
}

/// Returns the name of an architecture. One newer than this list is named by its number.
pub(super) fn architecture(value: u32) -> Result<String, Unknown> {
    const NAMES: [&str; 9] =
        ["Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"];
    match value {
        2..=10 => Ok(NAMES[value as usize - 2].to_owned()),
        13 => Ok("Rubin".to_owned()),
        u32::MAX => Err(Unknown::Failed("NVML does not know the architecture".to_owned())),
        newer => Ok(format!("architecture {newer}")),
    }
}

/// Decodes NVML's status of peer access.
pub(super) fn p2p_status(value: u32) -> Result<P2pStatus, Unknown> {
    const STATUSES: [P2pStatus; 7] = [
        P2pStatus::Ok,
        P2pStatus::ChipsetNotSupported,
        P2pStatus::GpuNotSupported,
        P2pStatus::TopologyNotSupported,
        P2pStatus::DisabledByRegkey,
        P2pStatus::NotSupported,
        P2pStatus::Unknown,
    ];
    listed("P2P status", value.into(), &STATUSES)
}

/// Decodes a topology level.
pub(super) fn common_ancestor(value: u32) -> Result<CommonAncestor, Unknown> {
    match value {
        0 => Ok(CommonAncestor::Internal),
        10 => Ok(CommonAncestor::SingleSwitch),
        20 => Ok(CommonAncestor::MultipleSwitches),
        30 => Ok(CommonAncestor::HostBridge),
        40 => Ok(CommonAncestor::NumaNode),
        50 => Ok(CommonAncestor::System),
        value => Err(unlisted("topology level", value)),
    }
}

/// Returns the CUDA version from `1000 * major + 10 * minor`.
pub(super) fn cuda_version(value: i32) -> String {
    format!("{}.{}", value / 1000, value % 1000 / 10)
}

/// Decodes the state of the fabric. `health` is the mask of drivers that have one.
pub(super) fn fabric(
    state: u8,
    status: u32,
    clique_id: u32,
    cluster: [u8; 16],
    health: Option<u32>,
) -> Result<Fabric, Unknown> {
    use FabricState::{Completed, InProgress, NotStarted, NotSupported};
    let state =
        listed("fabric state", state.into(), &[NotSupported, NotStarted, InProgress, Completed])?;
    let cluster_uuid = cluster.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Fabric { state, status, health_mask: health.map(Fabric::degraded), clique_id, cluster_uuid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::Lanes;

    #[test]
    fn field_values_are_decoded_by_their_type() {
        let low = |value: u64| value.to_ne_bytes();
        assert_eq!(field_value(0, 26562.0_f64.to_ne_bytes()), Ok(26562));
        assert!(field_value(0, (-1.0_f64).to_ne_bytes()).is_err());
        assert!(field_value(0, f64::NAN.to_ne_bytes()).is_err());
        // Bytes beyond a narrow value are not part of it.
        let mut bytes = [0xff; 8];
        bytes[..4].copy_from_slice(&26562_u32.to_ne_bytes());
        assert_eq!(field_value(1, bytes), Ok(26562));
        assert_eq!(field_value(2, low(1 << 40)), Ok(1 << 40));
        assert_eq!(field_value(3, low(u64::MAX)), Ok(u64::MAX));
        assert_eq!(field_value(4, 7_i64.to_ne_bytes()), Ok(7));
        assert!(field_value(4, (-7_i64).to_ne_bytes()).is_err());
        bytes[..4].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert!(field_value(5, bytes).is_err());
        bytes[..2].copy_from_slice(&9_u16.to_ne_bytes());
        assert_eq!(field_value(6, bytes), Ok(9));
        assert_eq!(
            field_value(7, low(1)),
            Err(Unknown::Failed("NVML: value type 7 is not listed".into()))
        );
    }

    #[test]
    fn bit_error_rates_have_a_mantissa_and_an_exponent() {
        let rounded = |value| bit_error_rate(value).map(|log10| (log10 * 1e4).round() / 1e4);
        assert_eq!(rounded(3 << 8 | 12), Some(-11.5229));
        assert_eq!(rounded(15 << 8 | 255), Some(-253.8239));
        assert_eq!(rounded(0), None);
    }

    #[test]
    fn versions_are_nvidias() {
        let versions: Vec<_> = (1..=8).map(|value| nvlink_version(value).unwrap()).collect();
        let known = ["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"];
        assert_eq!(versions, known);
        assert!(nvlink_version(0).is_err() && nvlink_version(9).is_err());
        assert_eq!(cuda_version(13000), "13.0");
        assert_eq!(cuda_version(12080), "12.8");
        assert_eq!(architecture(9).unwrap(), "Hopper");
        assert_eq!(architecture(12).unwrap(), "architecture 12");
        assert_eq!(architecture(13).unwrap(), "Rubin");
        assert!(architecture(u32::MAX).is_err());
    }

    #[test]
    fn nonsense_is_unknown_and_no_number() {
        assert_eq!(
            link_figure::<Lanes>(63),
            Err(Unknown::Failed("NVML: no PCIe link has 63 lanes".into()))
        );
        assert_eq!(link_figure(16), Ok(Lanes::X16));
        assert!(nvlink_remote(255).is_err() && power_state(32).is_err() && on(2).is_err());
        assert!(p2p_status(7).is_err() && common_ancestor(35).is_err() && compute_mode(4).is_err());
    }

    #[test]
    fn confidential_computing_for_developers_is_told_from_that_which_protects() {
        use ConfidentialComputing::{DevTools, Off, On};
        let of = [(0, 0), (1, 0), (1, 1), (0, 1)]
            .map(|(feature, tools)| confidential_computing(feature, tools).ok());
        assert_eq!(of, [Some(Off), Some(On), Some(DevTools), Some(Off)]);
        assert!(confidential_computing(2, 0).is_err());
    }

    #[test]
    fn an_idle_gpu_is_not_held_back() {
        assert!(throttle_reasons(0).is_empty());
        assert!(throttle_reasons(1).is_empty());
        assert_eq!(throttle_reasons(0x48), ["hw-slowdown", "hw-thermal"]);
        assert_eq!(throttle_reasons(u64::MAX).len(), 8);
    }

    #[test]
    fn a_healthy_fabric_is_zero_whatever_the_driver_supports() {
        assert_eq!(Fabric::degraded(0), 0);
        assert_eq!(
            Fabric::degraded(0b0001_1010_1010),
            0,
            "no to everything, configuration correct"
        );
        assert_eq!(Fabric::degraded(0b1010_1001), 0b01, "degraded bandwidth");
        assert_eq!(Fabric::degraded(0b1001_1010), 0b0001_0000, "unhealthy route");
        assert_eq!(Fabric::degraded(0x4aa), 0x400, "no partition");
        let fabric = fabric(3, 0, 1, [0xab; 16], Some(0x1aa)).unwrap();
        assert_eq!(
            (fabric.state, fabric.health_mask, fabric.clique_id),
            (FabricState::Completed, Some(0), 1)
        );
        assert_eq!(fabric.cluster_uuid, "ab".repeat(16));
        assert!(super::fabric(4, 0, 0, [0; 16], None).is_err());
    }
}

//! The rules, one file each.

mod acs_redirect;
mod bandwidth;
mod baseline_not_compared;
mod changed_since_baseline;
mod compute_mode_restricted;
mod devices_hidden;
mod direct_slower_than_staged;
mod driver_mismatch;
mod expectation_unchecked;
mod expectation_unmet;
mod fabric_not_ready;
mod fell_since_baseline;
mod firmware_mixed;
mod gpu_busy;
mod gpu_memory_errors;
mod gpu_throttled;
mod gpu_unreachable;
mod gpus_mixed;
mod iommu_translating;
mod mig_enabled;
mod not_tested;
mod nothing_measured;
mod nvlink_errors_rose;
mod nvlink_fewer_than_siblings;
mod nvlink_inactive;
mod pcie_errors_rose;
mod pcie_link_changed;
mod pcie_narrow;
mod pcie_narrow_by_design;
mod pcie_upstream_bottleneck;
mod peer_access;
mod peer_access_broken;
mod peer_access_missing;
mod peer_access_one_way;
mod peer_bandwidth_asymmetric;
mod peer_bandwidth_low;
mod peer_bandwidth_outlier;
mod peer_copy;
mod peer_copy_failed;
mod peer_copy_hung;
mod peer_copy_uneven;
mod peer_data_wrong;
mod persistence_off;
mod placement_serialises;
mod staged_slow;
mod unstable_measurement;
mod wrong_bytes;

pub use baseline_not_compared::CODE as BASELINE_NOT_COMPARED;
pub use devices_hidden::CODE as DEVICES_HIDDEN;
pub use expectation_unchecked::CODE as EXPECTATION_UNCHECKED;
pub use not_tested::CODE as NOT_TESTED;
pub use nothing_measured::CODE as NOTHING_MEASURED;

use super::rule::Rule;

/// Every rule, in the order in which they came to be.
pub const ALL: &[&dyn Rule] = &[
    &peer_bandwidth_low::PeerBandwidthLow,
    &peer_data_wrong::PeerDataWrong,
    &peer_access_missing::PeerAccessMissing,
    &pcie_narrow::PcieNarrow,
    &nvlink_inactive::NvlinkInactive,
    &peer_copy_hung::PeerCopyHung,
    &peer_copy_failed::PeerCopyFailed,
    &not_tested::NotTested,
    &nothing_measured::NothingMeasured,
    &placement_serialises::PlacementSerialises,
    &gpu_unreachable::GpuUnreachable,
    &peer_copy_uneven::PeerCopyUneven,
    &expectation_unmet::ExpectationUnmet,
    &expectation_unchecked::ExpectationUnchecked,
    &fell_since_baseline::FellSinceBaseline,
    &changed_since_baseline::ChangedSinceBaseline,
    &baseline_not_compared::BaselineNotCompared,
    &peer_bandwidth_outlier::PeerBandwidthOutlier,
    &peer_bandwidth_asymmetric::PeerBandwidthAsymmetric,
    &direct_slower_than_staged::DirectSlowerThanStaged,
    &staged_slow::StagedSlow,
    &unstable_measurement::UnstableMeasurement,
    &nvlink_fewer_than_siblings::NvlinkFewerThanSiblings,
    &fabric_not_ready::FabricNotReady,
    &peer_access_one_way::PeerAccessOneWay,
    &peer_access_broken::PeerAccessBroken,
    &nvlink_errors_rose::NvlinkErrorsRose,
    &pcie_narrow_by_design::PcieNarrowByDesign,
    &pcie_upstream_bottleneck::PcieUpstreamBottleneck,
    &pcie_link_changed::PcieLinkChanged,
    &pcie_errors_rose::PcieErrorsRose,
    &iommu_translating::IommuTranslating,
    &acs_redirect::AcsRedirect,
    &gpu_throttled::GpuThrottled,
    &gpu_busy::GpuBusy,
    &gpu_memory_errors::GpuMemoryErrors,
    &persistence_off::PersistenceOff,
    &mig_enabled::MigEnabled,
    &compute_mode_restricted::ComputeModeRestricted,
    &gpus_mixed::GpusMixed,
    &firmware_mixed::FirmwareMixed,
    &driver_mismatch::DriverMismatch,
    &devices_hidden::DevicesHidden,
];

//! The rules, one file each.

use super::rule::Rule;

mod bandwidth;
mod bridges;
mod broken_off;
mod counted;
mod fabric_words;
mod failed_at_once;
mod failed_in_hours;
pub(crate) mod host;
mod hours_gap;
mod load;
mod load_judged;
mod load_reached;
mod load_steps;
mod lost;
mod nvlink_ends;
mod nvlink_shared_loss;
mod over_time;
mod over_time_check;
mod peer_access;
mod peer_copy;
mod peers;
mod prelude;
mod remedy;
mod shared;
mod talks;
mod unread_traffic;
mod windows;
mod worse;
mod wrong_at_once;
mod wrong_bytes;
mod wrong_in_hours;

/// Declares the file of each rule, and adds the rule to [`ALL`].
macro_rules! rules {
    ($($name:ident)*) => {
        $(pub(crate) mod $name;)*

        /// Every rule, in the order in which they were added, with its file.
        pub static ALL: &[Rule] = &[$($name::RULE.read_from(include_str!(concat!(stringify!($name), ".rs")))),*];
    };
}

// Only append; never change or remove one: reports and scripts contain their codes.
rules! {
    peer_bandwidth_low
    data_wrong
    peer_access_missing
    pcie_narrow
    nvlink_inactive
    peer_copy_hung
    copy_failed
    not_tested
    nothing_measured
    placement_serialises
    gpu_unreachable
    peer_copy_uneven
    expectation_unmet
    expectation_unchecked
    fell_since_baseline
    changed_since_baseline
    baseline_not_compared
    peer_bandwidth_outlier
    peer_bandwidth_asymmetric
    direct_slower_than_staged
    staged_slow
    unstable_measurement
    fabric_not_ready
    peer_access_broken
    nvlink_errors_rose
    pcie_narrow_by_design
    pcie_upstream_bottleneck
    pcie_link_changed
    pcie_errors_rose
    iommu_translating
    acs_redirect
    gpu_throttled
    gpu_busy
    gpu_memory_errors
    persistence_off
    mig_enabled
    compute_mode_restricted
    gpus_mixed
    driver_mismatch
    devices_hidden
    gpu_shared
    environment_distorting
    process_limit
    gpu_not_listed
    nvlink_missing
    both_ways_low
    expectation_beyond_profile
    figure_impossible
    latency_high
    host_calls_slow
    local_memory_slow
    host_bandwidth_low
    host_bandwidth_below_siblings
    host_memory_far
    pageable_slower
    pinned_slower_than_pageable
    host_memory_saturates
    pinning_refused
    copy_engines_fewer
    shared_hop_low
    load_below_expected
    load_limited_by_design
    traffic_over_pcie
    nvlink_share_uneven
    counters_disagree
    adapter_link_narrow
    payload_below_siblings
    software_restricts
    copy_failed_once
    numa_label_wrong
    hidden_hop_shared
    not_explained
    rate_fell_over_time
    link_errors_over_time
    gpu_hotter_than_siblings
    xid_reported
    live_memory_broken
    live_latency_high
    sharing_refused
    nvlink_margin_low
    pcie_errors_logged
    peer_connections_held
    pasted_fault
    pasted_unclear
    counters_rose_since
    nvlink_slower_than_siblings
    memory_window_broken
}

pub(crate) fn find(code: &str) -> Option<&'static Rule> {
    ALL.iter().find(|rule| *rule.id == *code)
}

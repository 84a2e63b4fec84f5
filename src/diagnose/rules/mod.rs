//! The rules, one file each.

use super::rule::Rule;

mod bandwidth;
mod bonds;
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
mod pasted_shown;
mod peer_access;
mod peer_copy;
mod peers;
mod prelude;
mod remedy;
mod shared;
mod talks;
mod unread_traffic;
mod windows;
pub(crate) mod worse;
mod wrong_at_once;
mod wrong_bytes;
mod wrong_in_hours;

/// Declares the file of each rule below its topic, and adds the rule to [`ALL`].
macro_rules! rules {
    ($($topic:literal { $($name:ident)* })*) => {
        $($(pub(crate) mod $name;)*)*

        /// All rules by topic.
        pub static ALL: &[Rule] = &[$($(
            $name::RULE.listed($topic, include_str!(concat!(stringify!($name), ".rs"))),
        )*)*];
    };
}

rules! {
    "PCIe" {
        pcie_narrow
        pcie_narrow_by_design
        pcie_upstream_bottleneck
        pcie_link_changed
        pcie_errors_rose
        iommu_translating
        acs_redirect
        adapter_link_narrow
        adapter_port_degraded
        adapter_not_near
        gpudirect_rdma_incomplete
        payload_below_siblings
        pcie_errors_logged
    }
    "NVLink" {
        nvlink_inactive
        fabric_not_ready
        nvlink_errors_rose
        nvlink_missing
        traffic_over_pcie
        nvlink_share_uneven
        counters_disagree
        nvlink_margin_low
        nvlink_slower_than_siblings
    }
    "Peer access" {
        peer_access_missing
        peer_access_broken
        software_restricts
        peer_connections_held
    }
    "Wrong data, and copies that fail" {
        data_wrong
        memory_window_broken
        peer_copy_hung
        copy_failed
        copy_failed_once
    }
    "Copies between GPUs" {
        peer_bandwidth_low
        placement_serialises
        peer_copy_uneven
        peer_bandwidth_outlier
        peer_bandwidth_asymmetric
        direct_slower_than_staged
        staged_slow
        both_ways_low
        latency_high
    }
    "Copies with the host" {
        host_calls_slow
        processor_link_degraded
        host_bandwidth_low
        host_bandwidth_below_siblings
        host_memory_far
        pageable_slower
        pinned_slower_than_pageable
        host_memory_saturates
        pinning_refused
        numa_label_wrong
    }
    "Several copies at once" {
        copy_engines_fewer
        shared_hop_low
        load_below_expected
        load_limited_by_design
        hidden_hop_shared
    }
    "Kernels, processes" {
        live_memory_broken
        live_latency_high
        sharing_refused
    }
    "Run, and what was read" {
        not_tested
        nothing_measured
        unstable_measurement
        gpu_busy
        gpu_shared
        process_limit
        figure_impossible
        not_explained
        pasted_fault
        pasted_unclear
    }
    "GPUs, driver, settings" {
        gpu_unreachable
        gpu_throttled
        gpu_clock_behind
        gpu_memory_errors
        persistence_off
        mig_enabled
        compute_mode_restricted
        gpus_mixed
        driver_mismatch
        devices_hidden
        environment_distorting
        gpu_not_listed
        local_memory_slow
        xid_reported
    }
    "Hours under load" {
        rate_fell_over_time
        link_errors_over_time
        gpu_hotter_than_siblings
    }
    "Expectations, earlier reports" {
        expectation_unmet
        expectation_unchecked
        fell_since_baseline
        changed_since_baseline
        baseline_not_compared
        expectation_beyond_profile
        counters_rose_since
    }
    "Rates that other tools printed" {
        pasted_rates
    }
}

pub(crate) fn find(code: &str) -> Option<&'static Rule> {
    ALL.iter().find(|rule| *rule.id == *code)
}

/// Returns the rules by topic, the most severe first.
pub fn by_topic() -> Vec<(&'static str, Vec<&'static Rule>)> {
    let topics = ALL.chunk_by(|one, other| one.topic == other.topic);
    let sorted = |rules: &'static [Rule]| {
        let mut rules: Vec<_> = rules.iter().collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.severity));
        (rules[0].topic, rules)
    };
    topics.map(sorted).collect()
}

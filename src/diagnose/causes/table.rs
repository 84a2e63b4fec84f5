//! The table of rules whose findings explain those of others, and how.

use super::reach::Reach;
use crate::rule::Rule;
use crate::rules::*;
use model::finding::RuleId;

/// A rule whose findings explain those of others.
struct Cause {
    rule: &'static Rule,
    explains: &'static [(Reach, &'static [Rules])],
}

type Rules = &'static [&'static Rule];

/// Direct copies of a pair, slow in both directions.
const LOW: Rules = &[&peer_bandwidth_low::RULE, &peer_bandwidth_outlier::RULE];

/// Direct copies of a pair, slow in any way.
const PEER: Rules =
    &[&peer_bandwidth_low::RULE, &peer_bandwidth_outlier::RULE, &peer_bandwidth_asymmetric::RULE];

/// Copies with the host, slow in any way.
const HOST: Rules = &[&host_bandwidth_low::RULE, &host_bandwidth_below_siblings::RULE];

/// Several flows at once, slow together.
const LOAD: Rules = &[&load_below_expected::RULE, &shared_hop_low::RULE];

/// Tests that were not run.
const UNTESTED: Rules = &[&not_tested::RULE, &nothing_measured::RULE];

/// Causes, the strongest first: `cause { how: [GROUPS] effects; ... }`.
macro_rules! causes {
    ($($cause:ident { $($reach:ident: $([$($group:ident)*])? $($effect:ident)*;)* })*) => {
        static CAUSES: &[Cause] = &[$(Cause {
            rule: &$cause::RULE,
            explains: &[$((Reach::$reach, &[$($($group,)*)? &[$(&$effect::RULE),*]])),*],
        }),*];
    };
}

causes! {
    gpu_unreachable { LostGpu: [UNTESTED]; }
    fabric_not_ready {
        NotReady: [UNTESTED];
        LostGpu: [UNTESTED];
        AllLinksDown: nvlink_inactive;
        AnyEnd: [LOW UNTESTED] peer_access_missing nvlink_inactive;
    }
    pcie_narrow {
        PcieLink: [LOW];
        PcieLinkStaged: staged_slow;
        OwnLink: pcie_errors_rose;
        SameSubject: pcie_errors_rose;
        SameGpus: [HOST];
    }
    pcie_link_changed {
        PcieLink: [PEER] unstable_measurement both_ways_low;
        PcieLinkStaged: staged_slow;
        OwnLink: pcie_errors_rose;
        SameSubject: [LOAD] pcie_errors_rose;
        SameGpus: [HOST];
    }
    pcie_errors_rose {
        PcieLink: [PEER] unstable_measurement both_ways_low;
        PcieLinkStaged: staged_slow;
        SameSubject: [LOAD];
        SameGpus: [HOST];
    }
    // A link that repeats what it sends explains any rate; theory already includes a link that is down.
    nvlink_errors_rose {
        NvLinks: [PEER] unstable_measurement both_ways_low;
        SameSubject: [LOAD] nvlink_margin_low nvlink_slower_than_siblings;
    }
    // Copies are spread over all links, so that they wait for the slowest.
    nvlink_slower_than_siblings {
        SlowestLink: [PEER] unstable_measurement both_ways_low;
        SameGpus: [LOAD];
    }
    processor_link_degraded { SameGpus: [HOST]; }
    nvlink_share_uneven { NvLinks: peer_bandwidth_outlier; }
    // Errors are what is left when the margin of a link is gone.
    link_errors_over_time { SameSubject: nvlink_margin_low; }
    // Traffic over PCIe has the rate and the latency of PCIe, and shares it.
    traffic_over_pcie {
        AnyEnd: [PEER] both_ways_low load_below_expected live_latency_high;
        SameGpus: [LOAD] nvlink_share_uneven;
    }
    // Slow copies that go over PCIe because NVLink is missing are effects of that.
    nvlink_missing {
        NvLinks: peer_bandwidth_outlier unstable_measurement;
        PcieInstead: [PEER] both_ways_low direct_slower_than_staged;
    }
    nvlink_inactive {
        NvLinks: peer_bandwidth_outlier unstable_measurement;
        PcieInstead: [PEER] both_ways_low direct_slower_than_staged;
    }
    pasted_rates {
        EveryPair: direct_slower_than_staged;
        SlowGpus: [LOW] staged_slow;
    }
    gpu_throttled {
        SeveralPartners: [PEER] peer_copy_uneven unstable_measurement staged_slow both_ways_low;
        SameSubject: [LOAD];
        SameGpus: [HOST];
    }
    pinning_refused { PageLocked: [UNTESTED]; }
    // The memory of a far node is slow in every kind of copy with the host.
    numa_label_wrong { SameGpus: [HOST]; }
    // A slow path between a GPU and the host also slows copies with other GPUs by way of the host.
    host_bandwidth_low {
        SameCause: [PEER] both_ways_low staged_slow;
    }
    host_bandwidth_below_siblings {
        SameCause: peer_bandwidth_outlier peer_bandwidth_asymmetric both_ways_low staged_slow;
    }
    // A GPU that is slow in itself is slow with every partner.
    local_memory_slow {
        SlowGpus: [PEER] unstable_measurement staged_slow both_ways_low;
    }
    // Staged copies wait for the host at every step.
    host_calls_slow { ByTheHost: staged_slow latency_high; }
    // The cost of copies beside their bytes lowers their rates.
    latency_high { LongToBegin: [PEER]; }
    acs_redirect {
        SamePairs: [PEER] unstable_measurement;
        Redirected: both_ways_low;
    }
    // The staged copies show what the links up to the host carry, so an uplink is not the limit of these.
    direct_slower_than_staged {
        SuspectedSetting: iommu_translating acs_redirect;
        SamePairs: [LOW] pcie_upstream_bottleneck acs_redirect both_ways_low;
        BetweenNodes: host_memory_far;
    }
    pcie_upstream_bottleneck {
        SamePairs: [PEER] both_ways_low;
        SamePairsOverPcie: staged_slow;
        AtRateOfUplink: [HOST];
    }
    iommu_translating { AllOverPcie: [LOW] unstable_measurement both_ways_low; }
    peer_copy_hung {
        SuspectedSetting: iommu_translating acs_redirect;
        LeftAlone: [UNTESTED] acs_redirect;
        WithinGpu: not_tested;
    }
    // A pattern that contains all flows of a failed one, and more, is not run.
    copy_failed {
        SuspectedSetting: iommu_translating acs_redirect;
        WithinGpu: not_tested;
        LostWithTheHost: not_tested;
        EitherDirection: [UNTESTED] acs_redirect;
    }
    data_wrong {
        SuspectedSetting: iommu_translating acs_redirect;
        EitherDirection: not_tested acs_redirect;
    }
    peer_access_broken {
        SuspectedSetting: iommu_translating acs_redirect;
        EitherDirection: not_tested acs_redirect;
    }
    peer_access_missing { EitherDirection: not_tested; }
    // A cause that slows direct copies over PCIe also slows the staged ones of the same pairs on the same links. Other
    // programs on their GPUs are a suspect and no second fault. A GPU or pair with some figures below the floor and
    // some just above it is one slow part. Flags pass the same links as copies.
    peer_bandwidth_low {
        SameCause: both_ways_low staged_slow;
        SamePairs: direct_slower_than_staged;
        SamePairsOverPcie: staged_slow;
        BetweenNodes: host_memory_far;
        EitherDirection: live_latency_high;
        EveryPair: gpu_shared;
    }
    peer_bandwidth_asymmetric { SameCause: both_ways_low staged_slow; }
    peer_bandwidth_outlier {
        SameCause: both_ways_low staged_slow;
        SamePairs: direct_slower_than_staged;
        EitherDirection: live_latency_high;
        EveryPair: gpu_shared;
    }
    // Copies that stall now and then lower any figure.
    unstable_measurement {
        SamePairs: both_ways_low;
        Stalling: [PEER] both_ways_low peer_copy_uneven direct_slower_than_staged placement_serialises;
        // Copies with the host that are held up look as if they took turns.
        SameGpus: copy_engines_fewer host_bandwidth_below_siblings;
    }
    both_ways_low {
        SameCause: staged_slow;
        EveryPair: gpu_shared;
    }
    // The other direction of stores that were not seen has no figures.
    live_memory_broken { EitherDirection: [UNTESTED]; }
    staged_slow { EveryPair: gpu_shared; }
}

/// Returns true if findings of this rule are how a machine is built: copies that they slow are as slow as they must be,
/// and no fault.
pub(super) fn is_as_built(rule: &RuleId) -> bool {
    *rule == pcie_upstream_bottleneck::RULE.id
}

/// Returns the position of a rule among the causes, the strongest first; after all of them if it is none.
pub(super) fn rank(rule: &RuleId) -> usize {
    CAUSES.iter().position(|cause| cause.rule.id == *rule).unwrap_or(CAUSES.len())
}

/// Returns the ways in which findings of one rule explain those of another.
pub(super) fn reaches(cause: &RuleId, effect: &RuleId) -> impl Iterator<Item = Reach> {
    let entry = CAUSES.iter().find(|entry| entry.rule.id == *cause);
    let explains = entry.map_or(&[][..], |entry| entry.explains);
    explains
        .iter()
        .filter(|(_, effects)| effects.concat().iter().any(|rule| rule.id == *effect))
        .map(|(reach, _)| *reach)
}

//! The topics that rules are listed by.

use super::rule::Rule;
use super::rules::ALL;

/// The topics in the order of their lists, with beginnings or ends of the codes that belong to them. The first that fits
/// counts; what fits none concerns the machine.
const TOPICS: [(&str, &[&str]); 12] = [
    ("Hours under load", &["-over-time", "gpu-hotter-"]),
    ("Expectations, earlier reports", &["expectation-", "-baseline", "-since", "baseline-"]),
    ("PCIe", &["pcie-", "adapter-link-", "payload-", "acs-", "iommu-"]),
    ("NVLink", &["nvlink-", "fabric-", "traffic-over-", "counters-disagree"]),
    ("Peer access", &["peer-access-", "peer-connections-", "software-restricts"]),
    ("Wrong data, and copies that fail", &["data-wrong", "copy-failed", "peer-copy-hung"]),
    (
        "Copies between GPUs",
        &["peer-", "both-ways-", "direct-slower-", "staged-", "latency-", "placement-"],
    ),
    ("Copies with the host", &["host-", "page", "pinn", "numa-"]),
    ("Several copies at once", &["shared-hop-", "load-", "hidden-hop-", "copy-engines-"]),
    ("Kernels, processes", &["live-", "sharing-"]),
    (
        "Run, and what was read",
        &[
            "not-",
            "nothing-",
            "unstable-",
            "figure-",
            "pasted-",
            "process-",
            "gpu-busy",
            "gpu-shared",
        ],
    ),
    (MACHINE, &[]),
];

/// The topic of what fits no other.
const MACHINE: &str = "GPUs, driver, settings";

/// Returns all rules by topic, errors first in each.
pub fn by_topic() -> Vec<(&'static str, Vec<&'static Rule>)> {
    let topic = |rule: &Rule| {
        let fits = |word: &&str| rule.id.starts_with(word) || rule.id.ends_with(word);
        TOPICS.iter().find(|(_, words)| words.iter().any(fits)).map_or(MACHINE, |it| it.0)
    };
    let of = |name| {
        let mut rules: Vec<_> = ALL.iter().filter(|rule| topic(rule) == name).collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.severity));
        (name, rules)
    };
    let mut topics: Vec<_> = TOPICS.iter().map(|(name, _)| of(*name)).collect();
    // The order of looking for a fault: the paths first, then time and earlier reports.
    topics.rotate_left(2);
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_one_topic_and_every_topic_rules() {
        let topics = by_topic();
        assert_eq!(topics.iter().map(|(_, rules)| rules.len()).sum::<usize>(), ALL.len());
        for (topic, rules) in topics {
            assert!(!rules.is_empty(), "{topic}");
            assert!(rules.is_sorted_by(|one, next| one.severity >= next.severity), "{topic}");
        }
    }
}

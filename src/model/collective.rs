//! Rates of collective operations on a machine, calculated from measured copies.

use serde::{Deserialize, Serialize};

use super::units::GbPerSecond;

words! {
    /// The algorithm of an all-reduce.
    Algorithm {
        /// Every GPU passes its parts on to the next one.
        Ring = "ring",
        /// Two binary trees. In each of them, half of the data is summed upwards and sent down again.
        Tree = "tree",
    }
}

/// Rate of an all-reduce of large sums over all GPUs of a pattern, if copies are the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AllReduce {
    /// Algorithm of the all-reduce.
    pub algorithm: Algorithm,
    /// Number of GPUs.
    pub gpus: u32,
    /// Rate that the slowest GPU sent at while all sent and received, GB/s. The other figures follow from it.
    pub sent_gbps: GbPerSecond,
    /// Pattern that this figure was measured with.
    pub pattern: String,
    /// Bus bandwidth, as nccl-tests defines it.
    pub bus_gbps: GbPerSecond,
    /// Bytes to be summed, divided by the time of the all-reduce.
    pub algorithm_gbps: GbPerSecond,
    /// True if the NVSwitches can sum (NVLS), which takes less traffic than either algorithm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_switches: bool,
}

impl AllReduce {
    /// Returns what an all-reduce reaches by each algorithm, and whether more is to be seen: `ring 384, tree 336 GB/s of bus
    /// bandwidth at most`. Empty if nothing is known.
    pub fn words(all: &[Self]) -> String {
        let each = all.iter().map(|one| format!("{} {}", one.algorithm, one.bus_gbps));
        let each = each.collect::<Vec<_>>().join(", ");
        match all.first() {
            None => each,
            Some(one) if one.in_switches => {
                format!(
                    "{each} GB/s of bus bandwidth; NCCL shows more where NVSwitches sum (NVLS: {NVLS_SHOWN})"
                )
            }
            Some(_) => format!("{each} GB/s of bus bandwidth at most"),
        }
    }
}

/// What nccl-tests show with NVLS. Source: docs/dev/facts.md, "Flows at the same time".
const NVLS_SHOWN: &str = "460 to 480 on 8 x H100";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_both_algorithms_reach_and_that_switches_that_sum_show_more() {
        let of = |algorithm, bus, in_switches| AllReduce {
            algorithm,
            gpus: 8,
            sent_gbps: GbPerSecond(384.0),
            pattern: "ring".into(),
            bus_gbps: GbPerSecond(bus),
            algorithm_gbps: GbPerSecond(bus / 2.0),
            in_switches,
        };
        let both =
            |sum| [of(Algorithm::Ring, 384.0, sum), of(Algorithm::Tree, 336.0, sum)].to_vec();
        let at_most = "ring 384, tree 336 GB/s of bus bandwidth at most";
        assert_eq!(AllReduce::words(&both(false)), at_most);
        assert!(AllReduce::words(&both(true)).ends_with("(NVLS: 460 to 480 on 8 x H100)"));
        assert_eq!(AllReduce::words(&[]), "");
    }
}

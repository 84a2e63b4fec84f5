//! Max-min fair shares of directed hops: what every flow gets when none can have more without one that has no more
//! than it having less (Bertsekas and Gallager, Data Networks, 6.5.2).
//!
//! Found hop by hop: the one whose equal parts are the least fixes its flows at that rate, and what they leave of other
//! hops is shared by the rest. The simulated machines let all flows grow in step instead; a test compares the two.

use petgraph::graphmap::DiGraphMap;

use crate::model::node::NodeId;

/// One direction of a link.
pub type Passage = (NodeId, NodeId);

/// What a flow asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// What it passes, in order.
    pub way: Vec<Passage>,
    /// The most it can use, GB/s; infinite where nothing but its hops limits it.
    pub cap: f64,
}

/// What a flow gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// GB/s.
    pub gbps: f64,
    /// The hop that keeps it from more; none where that is its own cap.
    pub by: Option<Passage>,
}

/// A hop as far as it is shared out.
#[derive(Debug, Clone, Copy)]
struct Hop {
    left: f64,
    open: u32,
}

impl Hop {
    fn part(&self) -> f64 {
        (self.left / f64::from(self.open)).max(0.0)
    }
}

/// What each flow gets of hops that carry so much; a hop without a figure limits nobody. None for a flow that nothing
/// limits.
pub fn max_min(demands: &[Demand], carries: impl Fn(Passage) -> Option<f64>) -> Vec<Option<Share>> {
    let mut hops = DiGraphMap::<NodeId, Hop>::new();
    for (from, to) in demands.iter().flat_map(|demand| demand.way.iter().copied()) {
        match (hops.edge_weight_mut(from, to), carries((from, to))) {
            (Some(hop), _) => hop.open += 1,
            (None, Some(gbps)) => drop(hops.add_edge(
                from,
                to,
                Hop {
                    left: gbps,
                    open: 1,
                },
            )),
            (None, None) => {}
        }
    }
    let mut shares = vec![None; demands.len()];
    let mut open: Vec<usize> = (0..demands.len()).collect();
    while !open.is_empty() {
        let fullest = hops.all_edges().filter(|(.., hop)| hop.open > 0);
        let fullest = fullest.min_by(|(.., one), (.., other)| one.part().total_cmp(&other.part()));
        let fullest = fullest.map(|(from, to, hop)| ((from, to), hop.part()));
        let modest = open
            .iter()
            .map(|flow| demands[*flow].cap)
            .reduce(f64::min)
            .filter(|cap| cap.is_finite());
        let share = match (fullest, modest) {
            (Some((_, part)), Some(cap)) if cap <= part => Share {
                gbps: cap,
                by: None,
            },
            (None, Some(cap)) => Share {
                gbps: cap,
                by: None,
            },
            (Some((hop, part)), _) => Share {
                gbps: part,
                by: Some(hop),
            },
            (None, None) => break,
        };
        // Those of the fullest hop; else all that want no more than the most modest.
        let is_fixed = |flow: &usize| match share.by {
            Some(hop) => demands[*flow].way.contains(&hop),
            None => demands[*flow].cap <= share.gbps,
        };
        let (fixed, rest): (Vec<usize>, Vec<usize>) = open.into_iter().partition(is_fixed);
        open = rest;
        for flow in &fixed {
            shares[*flow] = Some(share);
            for (from, to) in &demands[*flow].way {
                if let Some(hop) = hops.edge_weight_mut(*from, *to) {
                    (hop.left, hop.open) = (hop.left - share.gbps, hop.open.saturating_sub(1));
                }
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::sim::sharing;

    /// A hop of its own for every number.
    fn hop(number: usize) -> Passage {
        let number = u32::try_from(number).unwrap();
        (NodeId::Gpu(number), NodeId::Numa(Some(number)))
    }

    fn demands(flows: &[(&[usize], f64)]) -> Vec<Demand> {
        flows
            .iter()
            .map(|(way, cap)| Demand {
                way: way.iter().map(|at| hop(*at)).collect(),
                cap: *cap,
            })
            .collect()
    }

    fn shares(capacities: &[f64], flows: &[(&[usize], f64)]) -> Vec<Share> {
        let carries = |passage| {
            (0..capacities.len())
                .find(|at| hop(*at) == passage)
                .map(|at| capacities[at])
        };
        max_min(&demands(flows), carries)
            .into_iter()
            .map(Option::unwrap)
            .collect()
    }

    #[test]
    fn the_textbook_case() {
        // A long flow over two hops, each with a short one.
        let found = shares(&[10.0, 4.0], &[(&[0, 1], 99.0), (&[0], 99.0), (&[1], 99.0)]);
        assert_eq!(
            found.iter().map(|share| share.gbps).collect::<Vec<_>>(),
            [2.0, 8.0, 2.0]
        );
        assert_eq!(
            found.iter().map(|share| share.by).collect::<Vec<_>>(),
            [Some(hop(1)), Some(hop(0)), Some(hop(1))]
        );
    }

    #[test]
    fn what_a_modest_flow_leaves_the_others_have() {
        let found = shares(&[10.0], &[(&[0], 2.0), (&[0], 99.0), (&[0], 99.0)]);
        assert_eq!(
            found.iter().map(|share| share.gbps).collect::<Vec<_>>(),
            [2.0, 4.0, 4.0]
        );
        assert_eq!(found[0].by, None);
    }

    #[test]
    fn nothing_is_said_of_a_flow_that_nothing_limits() {
        assert_eq!(
            max_min(&demands(&[(&[0], f64::INFINITY)]), |_| None),
            [None]
        );
        assert_eq!(
            max_min(&demands(&[(&[], 3.0)]), |_| None),
            [Some(Share {
                gbps: 3.0,
                by: None
            })]
        );
        assert_eq!(max_min(&[], |_| None), []);
    }

    /// A generator of numbers that are the same every time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % most
        }
    }

    /// Two algorithms that were written apart agree on networks at random, and what they give is max-min fair: a flow
    /// has its cap, or passes a full hop where nobody has more.
    #[test]
    fn it_agrees_with_the_simulated_machines_and_is_fair() {
        let mut numbers = Numbers(7);
        for round in 0..400 {
            let capacities: Vec<f64> = (0..=numbers.below(7))
                .map(|_| f64::from(1 + numbers.below(50) as u32))
                .collect();
            let flows: Vec<(Vec<usize>, f64)> = (0..=numbers.below(11))
                .map(|_| {
                    let mut way: Vec<usize> = (0..capacities.len())
                        .filter(|_| numbers.below(3) == 0)
                        .collect();
                    way.dedup();
                    (way, f64::from(1 + numbers.below(40) as u32))
                })
                .collect();
            let borrowed: Vec<(&[usize], f64)> = flows
                .iter()
                .map(|(way, cap)| (way.as_slice(), *cap))
                .collect();
            let found = shares(&capacities, &borrowed);
            let asked: Vec<_> = flows
                .iter()
                .map(|(hops, cap)| sharing::Demand { hops, cap: *cap })
                .collect();
            let other = sharing::max_min(&capacities, &asked);
            for (at, (share, other)) in found.iter().zip(&other).enumerate() {
                assert!(
                    (share.gbps - other).abs() < 1e-6,
                    "round {round}, flow {at}: {} and {other}",
                    share.gbps
                );
            }
            let used = |hop: usize| -> f64 {
                let passing = flows
                    .iter()
                    .zip(&found)
                    .filter(|((way, _), _)| way.contains(&hop));
                passing.map(|(_, share)| share.gbps).sum()
            };
            for ((way, cap), share) in flows.iter().zip(&found) {
                let most = |hop: usize| {
                    let passing = flows
                        .iter()
                        .zip(&found)
                        .filter(|((way, _), _)| way.contains(&hop));
                    passing.map(|(_, share)| share.gbps).fold(0.0, f64::max)
                };
                let is_kept = |hop: &usize| {
                    used(*hop) >= capacities[*hop] - 1e-6 && most(*hop) <= share.gbps + 1e-6
                };
                assert!(
                    share.gbps >= cap - 1e-6 || way.iter().any(is_kept),
                    "round {round}: {share:?}"
                );
            }
            assert!(
                (0..capacities.len()).all(|hop| used(hop) <= capacities[hop] + 1e-6),
                "round {round}"
            );
        }
    }
}

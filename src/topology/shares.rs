//! Max-min fair shares of directed hops. No flow can get more without taking from a flow that has no more than it
//! (Bertsekas and Gallager, Data Networks, 6.5.2).
//!
//! The shares are found hop by hop. The hop whose equal shares are the smallest fixes its flows at that rate; the
//! rest share what these flows leave of other hops. The simulated machines increase all flows in step instead; a test
//! compares the two.

use petgraph::graphmap::DiGraphMap;

use model::node::NodeId;

/// One direction of a link.
pub type Passage = (NodeId, NodeId);

/// The request of a flow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    /// Hops that the flow passes, in order.
    pub way: Vec<Passage>,
    /// Maximum that the flow can use, GB/s. Infinite if only its hops limit it.
    pub cap: f64,
}

/// The result for a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Rate of the flow, GB/s.
    pub gbps: f64,
    /// The hop that limits the flow; `None` if its own cap does.
    pub by: Option<Passage>,
}

/// A hop with its remaining capacity and its open flows.
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

/// Returns each flow's share of hops with these capacities. A hop without a figure limits no flow. `None` for a flow
/// that nothing limits.
pub(crate) fn max_min(
    demands: &[Demand],
    carries: impl Fn(Passage) -> Option<f64>,
) -> Vec<Option<Share>> {
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
        // The flows of the fullest hop, or else all flows whose cap is at most the smallest cap.
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
    use sim::sharing;

    /// Returns a distinct hop for every number.
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
        // A long flow over two hops, each shared with a short flow.
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

    /// A generator of the same numbers every time.
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

    /// Two independent algorithms agree on random networks, and their result is max-min fair. A flow reaches its cap,
    /// or passes a full hop on which no flow gets more.
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

//! Max-min fair shares of directed hops. No flow can get more without taking from a flow that has no more than it
//! (Bertsekas and Gallager, Data Networks, 6.5.2).
//!
//! The shares are found hop by hop. The hop whose equal shares are the smallest fixes its flows at that rate; the
//! rest share what these flows leave of other hops. The simulated machines increase all flows in step instead; a test
//! compares the two.

use std::collections::BTreeMap;

use model::node::NodeId;

/// One direction of a link.
pub type Passage = (NodeId, NodeId);

/// The result for a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FairShare<By = Passage> {
    /// Rate of the flow, GB/s.
    pub gbps: f64,
    /// The hop that limits the flow; `None` if its own cap does.
    pub by: Option<By>,
}

/// A joint limit of some flows: a hop, or whatever else they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    /// Indices of the flows.
    pub flows: Vec<usize>,
    /// Joint limit, GB/s.
    pub gbps: f64,
}

/// Returns a joint limit for each GPU whose copy engine has several flows to other GPUs: it makes their copies one after
/// the other, and each gets the same number. Takes that GPU of each flow, if it has one, and the rate of each alone.
///
/// Measured on H100 and H200: docs/dev/facts.md, "Flows at the same time".
pub fn in_turn(sources: impl Iterator<Item = Option<u32>>, alone: &[f64]) -> Vec<Together> {
    let mut flows: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (flow, source) in sources.enumerate() {
        source.into_iter().for_each(|source| flows.entry(source).or_default().push(flow));
    }
    let limit = |flows: Vec<usize>| {
        let are_known = flows.iter().all(|flow| alone[*flow].is_finite());
        let times: f64 = flows.iter().map(|flow| 1.0 / alone[*flow]).sum();
        let gbps = flows.len() as f64 / times;
        (flows.len() > 1 && are_known).then_some(Together { gbps, flows })
    };
    flows.into_values().filter_map(limit).collect()
}

/// A limit with what is left of it and its open flows.
#[derive(Debug, Clone, Copy)]
struct Limit {
    left: f64,
    open: u32,
}

impl Limit {
    fn part(&self) -> f64 {
        (self.left / f64::from(self.open)).max(0.0)
    }
}

/// Returns each flow's share of these limits; `by` is the index of the limit. A flow can use no more than its cap, which
/// is infinite if only limits count. `None` for a flow that nothing limits.
pub fn max_min(caps: &[f64], limits: &[&Together]) -> Vec<Option<FairShare<usize>>> {
    let mut of_flow: Vec<Vec<usize>> = vec![Vec::new(); caps.len()];
    for (number, limit) in limits.iter().enumerate() {
        for flow in &limit.flows {
            if let Some(of_flow) = of_flow.get_mut(*flow) {
                of_flow.push(number);
            }
        }
    }
    let mut left: Vec<Limit> = limits
        .iter()
        .map(|limit| Limit {
            left: limit.gbps,
            open: u32::try_from(limit.flows.len()).unwrap_or(u32::MAX),
        })
        .collect();
    let mut shares = vec![None; caps.len()];
    let mut open: Vec<usize> = (0..caps.len()).collect();
    while !open.is_empty() {
        let fullest = left.iter().enumerate().filter(|(_, limit)| limit.open > 0);
        let fullest = fullest.min_by(|(_, one), (_, other)| one.part().total_cmp(&other.part()));
        let fullest = fullest.map(|(number, limit)| (number, limit.part()));
        let modest =
            open.iter().map(|flow| caps[*flow]).reduce(f64::min).filter(|cap| cap.is_finite());
        let share = match (fullest, modest) {
            (Some((_, part)), Some(cap)) if cap <= part => FairShare { gbps: cap, by: None },
            (None, Some(cap)) => FairShare { gbps: cap, by: None },
            (Some((number, part)), _) => FairShare { gbps: part, by: Some(number) },
            (None, None) => break,
        };
        // The flows of the fullest limit, or else all flows whose cap is at most the smallest cap.
        let is_fixed = |flow: &usize| match share.by {
            Some(number) => of_flow[*flow].contains(&number),
            None => caps[*flow] <= share.gbps,
        };
        let (fixed, rest): (Vec<usize>, Vec<usize>) = open.into_iter().partition(is_fixed);
        open = rest;
        for flow in &fixed {
            shares[*flow] = Some(share);
            for number in &of_flow[*flow] {
                let limit = &mut left[*number];
                *limit =
                    Limit { left: limit.left - share.gbps, open: limit.open.saturating_sub(1) };
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::sharing;

    /// Returns the shares of flows that pass these hops.
    fn shares(capacities: &[f64], flows: &[(&[usize], f64)]) -> Vec<FairShare<usize>> {
        let limit = |(hop, gbps): (usize, &f64)| Together {
            flows: (0..flows.len()).filter(|flow| flows[*flow].0.contains(&hop)).collect(),
            gbps: *gbps,
        };
        let limits: Vec<Together> = capacities.iter().enumerate().map(limit).collect();
        let caps: Vec<f64> = flows.iter().map(|(_, cap)| *cap).collect();
        max_min(&caps, &limits.iter().collect::<Vec<_>>()).into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn the_textbook_case() {
        // A long flow over two hops, each shared with a short flow.
        let found = shares(&[10.0, 4.0], &[(&[0, 1], 99.0), (&[0], 99.0), (&[1], 99.0)]);
        assert_eq!(found.iter().map(|share| share.gbps).collect::<Vec<_>>(), [2.0, 8.0, 2.0]);
        assert_eq!(
            found.iter().map(|share| share.by).collect::<Vec<_>>(),
            [Some(1), Some(0), Some(1)]
        );
    }

    #[test]
    fn copies_of_one_source_take_turns() {
        let sources = [Some(0), Some(1), Some(0), None];
        let [limit] = &in_turn(sources.into_iter(), &[40.0, 40.0, 10.0, 40.0])[..] else {
            panic!("one source has several")
        };
        // A byte of each takes 1/40 and 1/10.
        assert_eq!((limit.flows.as_slice(), limit.gbps), ([0, 2].as_slice(), 16.0));
        assert_eq!(in_turn(sources.into_iter(), &[40.0, 40.0, f64::INFINITY, 40.0]), []);
    }

    #[test]
    fn what_a_modest_flow_leaves_the_others_have() {
        let found = shares(&[10.0], &[(&[0], 2.0), (&[0], 99.0), (&[0], 99.0)]);
        assert_eq!(found.iter().map(|share| share.gbps).collect::<Vec<_>>(), [2.0, 4.0, 4.0]);
        assert_eq!(found[0].by, None);
    }

    #[test]
    fn nothing_is_said_of_a_flow_that_nothing_limits() {
        assert_eq!(max_min(&[f64::INFINITY], &[]), [None]);
        let own = FairShare { gbps: 3.0, by: None };
        assert_eq!(max_min(&[3.0], &[]), [Some(own)]);
        assert_eq!(max_min(&[], &[]), []);
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
            let capacities: Vec<f64> =
                (0..=numbers.below(7)).map(|_| f64::from(1 + numbers.below(50) as u32)).collect();
            let flows: Vec<(Vec<usize>, f64)> = (0..=numbers.below(11))
                .map(|_| {
                    let mut way: Vec<usize> =
                        (0..capacities.len()).filter(|_| numbers.below(3) == 0).collect();
                    way.dedup();
                    (way, f64::from(1 + numbers.below(40) as u32))
                })
                .collect();
            let borrowed: Vec<(&[usize], f64)> =
                flows.iter().map(|(way, cap)| (way.as_slice(), *cap)).collect();
            let found = shares(&capacities, &borrowed);
            let asked: Vec<_> =
                flows.iter().map(|(hops, cap)| sharing::Demand { hops, cap: *cap }).collect();
            let other = sharing::max_min(&capacities, &asked);
            for (at, (share, other)) in found.iter().zip(&other).enumerate() {
                assert!(
                    (share.gbps - other).abs() < 1e-6,
                    "round {round}, flow {at}: {} and {other}",
                    share.gbps
                );
            }
            let used = |hop: usize| -> f64 {
                let passing = flows.iter().zip(&found).filter(|((way, _), _)| way.contains(&hop));
                passing.map(|(_, share)| share.gbps).sum()
            };
            for ((way, cap), share) in flows.iter().zip(&found) {
                let most = |hop: usize| {
                    let passing =
                        flows.iter().zip(&found).filter(|((way, _), _)| way.contains(&hop));
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

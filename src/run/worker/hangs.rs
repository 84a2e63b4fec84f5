//! Limits the time that hangs may take. Each hang costs its deadline and another start of the driver. On a machine
//! where every copy hangs, waiting for all of them would take hours and show nothing new.
//!
//! Pairs of a GPU that keeps hanging are put off, not given up: the fault may be the path between two groups of GPUs,
//! each of which is healthy.

use std::collections::{BTreeMap, BTreeSet};

use model::flow::{Flow, Place};
use probes::places;

/// Number of hung pairs of one GPU in a row after which the GPU itself is suspected: chosen. One such pair may be a bad
/// link, two may be its two directions.
const IN_A_ROW: u32 = 3;
/// Number of hung pairs after which no more are tried if no pair has ended: chosen.
const MOST_IF_NONE_ENDS: usize = 12;
/// Total number of hung pairs after which no more are tried: chosen, some minutes with the usual deadlines.
const MOST: usize = 32;

/// The flows of a round. Rounds with the same flows belong together.
pub(crate) type Flows = [Flow];

/// The hangs so far, and their consequences.
#[derive(Debug, Default)]
pub(crate) struct Hangs {
    /// Number of sets of flows that hung in a part of the machine since a set that uses it ended.
    in_a_row: BTreeMap<Place, u32>,
    /// Suspects that got another chance since then.
    tried: BTreeSet<Place>,
    ended: BTreeSet<Vec<Flow>>,
    hung: BTreeSet<Vec<Flow>>,
}

impl Hangs {
    /// Notes that all rounds of these flows have ended, with or without errors: everything that they use still
    /// responds.
    ///
    /// Copies within a GPU are ignored: they show nothing about the paths between GPUs, which are what hangs.
    pub(crate) fn ended(&mut self, flows: &Flows) {
        if flows.iter().any(|flow| flow.within().is_some()) {
            return;
        }
        for place in places(flows) {
            self.in_a_row.remove(&place);
            self.tried.remove(&place);
        }
        self.ended.insert(flows.to_vec());
    }

    /// Notes that a round of these flows hung.
    pub(crate) fn hung(&mut self, flows: &Flows) {
        self.hung.insert(flows.to_vec());
        for place in places(flows) {
            *self.in_a_row.entry(place).or_default() += 1;
        }
    }

    /// Returns the reason why no more pairs are tried, if there is one.
    pub(crate) fn enough(&self) -> Option<String> {
        let hung = self.hung.len();
        if self.ended.is_empty() && hung >= MOST_IF_NONE_ENDS {
            return Some(format!("not run, since {hung} pairs hung and none ended"));
        }
        (hung >= MOST).then(|| format!("not run, since {hung} pairs hung"))
    }

    /// Returns true if rounds of these flows are put off until everything else is done.
    pub(crate) fn puts_off(&self, flows: &Flows) -> bool {
        // If the opposite direction ended, the path works.
        let known = matches!(flows, [flow] if self.ended.contains(&vec![flow.reversed()]));
        !known && self.suspects(flows).next().is_some()
    }

    /// Returns the most promising of the flows that were put off, to try next; none if no flows deserve another try.
    pub(crate) fn another_chance<'r>(
        &mut self,
        put_off: impl Iterator<Item = &'r Flows>,
    ) -> Option<Vec<Flow>> {
        let rank = |flows: &Flows| {
            let tried = || self.suspects(flows).any(|place| self.tried.contains(&place));
            let reverse: Vec<_> = flows.iter().map(|flow| flow.reversed()).collect();
            let suspects: Vec<_> = self.suspects(flows).collect();
            Some(match suspects.as_slice() {
                _ if !self.puts_off(flows) => 0,
                _ if tried() || self.hung.contains(&reverse) => return None,
                // Two GPUs that hang with a third may be in the same group, with a healthy path between them.
                [one, other]
                    if self
                        .hung_with(*one)
                        .intersection(&self.hung_with(*other))
                        .next()
                        .is_some() =>
                {
                    1
                }
                [_, _] => 2,
                _ => 3,
            })
        };
        let ranked = put_off.filter_map(|flows| Some(((flows.len() > 1, rank(flows)?), flows)));
        let (_, best) = ranked.min_by_key(|(rank, _)| *rank)?;
        let suspects: Vec<_> = self.suspects(best).collect();
        self.tried.extend(suspects);
        Some(best.to_vec())
    }

    /// Returns the reason why rounds that were put off are not run at all.
    pub(crate) fn reason(&self, flows: &Flows) -> String {
        let suspects: Vec<_> = self.suspects(flows).map(|place| place.to_string()).collect();
        let them =
            if suspects.is_empty() { "these flows".to_owned() } else { suspects.join(" and of ") };
        format!("not run, since {IN_A_ROW} pairs or more of {them} hung one after the other")
    }

    /// Returns the other parts of the machine used by flows that hung with this one.
    fn hung_with(&self, place: Place) -> BTreeSet<Place> {
        let with =
            self.hung.iter().map(|flows| places(flows)).filter(|places| places.contains(&place));
        with.flatten().filter(|other| *other != place).collect()
    }

    fn suspects(&self, flows: &Flows) -> impl Iterator<Item = Place> {
        places(flows)
            .into_iter()
            .filter(|place| self.in_a_row.get(place).is_some_and(|count| *count >= IN_A_ROW))
    }
}

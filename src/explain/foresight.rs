//! What the causes of an explanation would do to flows that were not measured.

use std::collections::BTreeSet;

use model::flow::Flow;
use model::measurement::Measurements;
use model::placement::Path;
use model::snapshot::Snapshot;
use model::topology::Topology;
use topology::shares::Together;

use super::Cause;
use super::hypothesis::Effect;
use super::item::Mode;
use super::resource::{Part, Resource, Way};
use super::state::State;

/// The causes of an explanation on a machine: the one whose figures they explain, or the same one with a change.
pub struct Foresight<'a> {
    state: State<'a>,
    causes: Vec<&'a Cause>,
}

impl<'a> Foresight<'a> {
    /// Takes those causes that change what several flows get.
    pub fn of(
        snapshot: &'a Snapshot,
        topology: &'a Topology,
        measurements: &Measurements,
        causes: &'a [Cause],
    ) -> Self {
        let changes_several = |cause: &&Cause| {
            matches!(cause.effect, Effect::Capacity(_) | Effect::Factor(_))
                && cause.way != Some(Way::Both)
        };
        Self {
            state: State::of(snapshot, topology, measurements),
            causes: causes.iter().filter(changes_several).collect(),
        }
    }

    fn passes(&self, flow: Flow) -> BTreeSet<Resource> {
        let path = flow.pair().map_or(Path::Direct, |pair| self.state.ways.path(pair));
        self.state.route(flow, path).passes.into_iter().collect()
    }

    /// Returns the joint limits of these flows at once.
    pub fn limits(&self, flows: &[Flow]) -> Vec<Together> {
        let passes: Vec<_> = flows.iter().map(|flow| self.passes(*flow)).collect();
        let mut limits = Vec::new();
        for cause in &self.causes {
            let Effect::Capacity(gbps) = cause.effect else {
                continue;
            };
            for way in ways(cause) {
                let is_on = |(flow, passes): &(&Flow, &BTreeSet<Resource>)| {
                    !is_inside(cause, **flow) && is_passed(cause, way, passes)
                };
                let on = flows.iter().zip(&passes).enumerate();
                let on = on.filter(|(_, one)| is_on(one)).map(|(at, _)| at);
                let flows: Vec<usize> = on.collect();
                if flows.len() > usize::from(cause.under_load) {
                    limits.push(Together { flows, gbps });
                }
            }
        }
        limits
    }

    /// Returns the part of its rate alone that a flow keeps beside others: that of changes which no flow alone shows.
    pub fn kept(&self, flow: Flow) -> f64 {
        let alone = match flow.pair() {
            Some(_) => Mode::Copy,
            None => Mode::Host,
        };
        let passes = self.passes(flow);
        let factor = |cause: &&Cause| match cause.effect {
            Effect::Factor(factor)
                if cause.modes.has(Mode::Load)
                    && (cause.under_load || !cause.modes.has(alone))
                    && ways(cause).any(|way| is_passed(cause, way, &passes)) =>
            {
                Some(factor)
            }
            _ => None,
        };
        self.causes.iter().filter_map(factor).fold(1.0, f64::min)
    }
}

fn ways(cause: &Cause) -> impl Iterator<Item = Way> {
    let of_cause = cause.way;
    let both = [Way::Up, Way::Down].into_iter();
    both.filter(move |way| of_cause.is_none_or(|of_cause| of_cause == *way))
}

fn is_passed(cause: &Cause, way: Way, passes: &BTreeSet<Resource>) -> bool {
    (cause.parts.iter()).any(|part| passes.contains(&Resource::new(*part, way)))
}

/// Returns true if both ends lie below a hop that no file shows: such a flow need not pass it.
fn is_inside(cause: &Cause, flow: Flow) -> bool {
    let below = |gpu| cause.parts.contains(&Part::Exit(gpu));
    (flow.pair()).is_some_and(|pair| below(pair.source) && below(pair.destination))
}

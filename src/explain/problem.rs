//! Everything that the search looks at: state, figures, and which figures each resource touches.

use std::collections::BTreeMap;

use model::measurement::Measurements;

use super::calibrate::calibrate;
use super::hypothesis::{Costs, Hypothesis};
use super::item::{Floors, Item, Observation};
use super::observation;
use super::resource::{Number, Part, Resources, Way};
use super::state::State;

/// A figure by the number of its observation and its place there.
pub(crate) type At = (usize, usize);

pub(crate) struct Problem<'a> {
    pub state: State<'a>,
    pub resources: Resources,
    pub observations: Vec<Observation>,
    pub costs: Costs,
    /// Observations that each resource touches, sorted.
    touches: Vec<Vec<usize>>,
    /// Parts in series: the figures cannot tell them apart. From each to the one that stands for all of them.
    stands_for: BTreeMap<Part, Part>,
}

impl<'a> Problem<'a> {
    pub(crate) fn of(state: State<'a>, measurements: &Measurements, floors: &dyn Floors) -> Self {
        let mut resources = Resources::default();
        let mut observations = observation::all(&state, measurements, floors, &mut resources);
        calibrate(&mut observations);
        let mut touches = vec![Vec::new(); resources.len()];
        let mut passed: BTreeMap<Number, Vec<At>> = BTreeMap::new();
        for (at, observation) in observations.iter().enumerate() {
            for (place, item) in observation.items.iter().enumerate() {
                for number in &item.passes {
                    passed.entry(*number).or_default().push((at, place));
                }
                for number in item.passes.iter().chain(&item.perhaps) {
                    if let Some(touches) = touches.get_mut(*number) {
                        touches.push(at);
                    }
                }
            }
        }
        touches.iter_mut().for_each(Vec::dedup);
        let stands_for = series(&resources, &passed);
        Self {
            costs: Costs::of(&state),
            state,
            resources,
            observations,
            touches,
            stands_for,
        }
    }

    pub(crate) fn item(&self, (at, place): At) -> Option<&Item> {
        self.observations.get(at)?.items.get(place)
    }

    /// Returns the observations that a change may touch, sorted.
    pub(crate) fn touched(&self, change: &Hypothesis) -> Vec<usize> {
        let numbers = change.on.iter().flatten();
        let touched = numbers.filter_map(|number| self.touches.get(*number));
        let mut touched: Vec<usize> = touched.flatten().copied().collect();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Returns true if one of these resources touches this observation.
    pub(crate) fn is_touched(&self, on: &[Vec<Number>], at: usize) -> bool {
        let passes = |number: &Number| {
            let touches = self.touches.get(*number);
            touches.is_some_and(|touches| touches.binary_search(&at).is_ok())
        };
        on.iter().flatten().any(passes)
    }

    /// Returns true if a change is one of figures of this kind. The figures of an observation are of one kind.
    pub(crate) fn is_on(&self, change: &Hypothesis, at: usize) -> bool {
        let first = self.item((at, 0));
        first.is_some_and(|item| change.is_on(item))
    }

    /// Returns true if another part in series stands for this one.
    pub(crate) fn is_stood_for(&self, part: Part) -> bool {
        self.stands_for.contains_key(&part)
    }

    /// Returns the parts that this one stands for.
    pub(crate) fn in_series_with(&self, part: Part) -> Vec<Part> {
        let others = self.stands_for.iter();
        others
            .filter(|(_, stands)| **stands == part)
            .map(|(other, _)| *other)
            .collect()
    }

    /// Returns the directions of a part that flows pass, each with its resource.
    pub(crate) fn ways(&self, part: Part) -> Vec<(Way, Number)> {
        let ways = [Way::Up, Way::Down].into_iter();
        ways.filter_map(|way| Some((way, self.resources.known(part, way)?)))
            .collect()
    }
}

/// Finds parts that exactly the same flows pass, in the same directions or in the opposite ones.
fn series(resources: &Resources, passed: &BTreeMap<Number, Vec<At>>) -> BTreeMap<Part, Part> {
    let mut flows: BTreeMap<Part, Vec<&[At]>> = BTreeMap::new();
    for (resource, number) in resources.iter() {
        if resource.part.is_physical() && resource.way != Way::Both {
            let of_way = passed.get(&number).map_or(&[][..], Vec::as_slice);
            flows.entry(resource.part).or_default().push(of_way);
        }
    }
    let mut alike: BTreeMap<Vec<&[At]>, Vec<Part>> = BTreeMap::new();
    for (part, mut ways) in flows {
        ways.sort_unstable();
        alike.entry(ways).or_default().push(part);
    }
    let mut stands_for = BTreeMap::new();
    for mut parts in alike.into_values() {
        // A link is likelier than what lies in the processor.
        parts.sort_by_key(|part| (part.is_of_processor(), *part));
        if let Some((first, others)) = parts.split_first() {
            stands_for.extend(others.iter().map(|part| (*part, *first)));
        }
    }
    stands_for
}

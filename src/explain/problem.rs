//! Everything that the search looks at: state, figures, and which figures each resource touches.

use std::collections::{BTreeMap, BTreeSet};

use model::measurement::Measurements;

use super::calibrate::calibrate;
use super::hypothesis::{Costs, Hypothesis};
use super::item::{Floors, Group, Item, Observation};
use super::observation;
use super::resource::{Number, Part, Resources, Way};
use super::state::State;

/// Bits that name the level of a group of figures.
const OF_LEVEL: f64 = 2.0;

/// A figure by the number of its observation and its place there.
pub(crate) type At = (usize, usize);

pub(crate) struct Problem<'a> {
    pub state: State<'a>,
    pub resources: Resources,
    pub observations: Vec<Observation>,
    pub costs: Costs,
    /// How far below its healthy rate any figure may lie because all of them scatter, per cent.
    pub scatter_percent: f64,
    /// Observations that each resource touches, sorted.
    touches: Vec<Vec<usize>>,
    /// Parts in series: the figures cannot tell them apart. From each to the one that stands for all of them.
    stands_for: BTreeMap<Part, Part>,
}

impl<'a> Problem<'a> {
    pub(crate) fn of(state: State<'a>, measurements: &Measurements, floors: &dyn Floors) -> Self {
        let mut resources = Resources::default();
        let mut observations = observation::all(&state, measurements, floors, &mut resources);
        let scatter_percent = calibrate(&mut observations, floors);
        let mut touches = vec![Vec::new(); resources.len()];
        let mut passed: BTreeMap<Number, Vec<At>> = BTreeMap::new();
        for (at, observation) in observations.iter().enumerate() {
            for (place, item) in observation.items.iter().enumerate() {
                for number in &item.passes {
                    passed.entry(*number).or_default().push((at, place));
                }
                for number in &item.passes {
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
            scatter_percent,
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

    /// Returns the bits that name how slow a class is: each group of figures has a level of its own.
    #[allow(clippy::cast_precision_loss, reason = "a number of groups")]
    pub(crate) fn level_bits(&self, part: Part) -> f64 {
        let Some(number) = self.resources.known(part, Way::Up) else {
            return 0.0;
        };
        let items = self.observations.iter().filter(|one| one.load.is_none());
        let below = items
            .flat_map(|one| &one.items)
            .filter(|item| item.healthy.level < 1.0 && item.passes.binary_search(&number).is_ok());
        let groups: BTreeSet<Group> = below.map(|item| item.group).collect();
        OF_LEVEL * groups.len().saturating_sub(1) as f64
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
        others.filter(|(_, stands)| **stands == part).map(|(other, _)| *other).collect()
    }

    /// Returns the directions of a part that flows pass, each with its resource.
    pub(crate) fn ways(&self, part: Part) -> Vec<(Way, Number)> {
        let ways = [Way::Up, Way::Down].into_iter();
        ways.filter_map(|way| Some((way, self.resources.known(part, way)?))).collect()
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

//! Tables by number, which every copy looks up.

use std::collections::VecDeque;

use super::effect::Effect;
use crate::engine::Op;
use hardware::Device;

/// Access of each device to the memory of the others.
#[derive(Debug)]
pub(super) struct Access {
    devices: usize,
    reaches: Vec<bool>,
}

impl Access {
    /// Creates a table for this many devices, without any access.
    pub(super) fn none(devices: usize) -> Self {
        Self { devices, reaches: vec![false; devices * devices] }
    }

    fn place(&self, from: Device, to: Device) -> Option<usize> {
        let (from, to) = (from.0 as usize, to.0 as usize);
        (from < self.devices && to < self.devices).then_some(from * self.devices + to)
    }

    /// Returns true if one device may reach the memory of the other.
    pub(super) fn is_given(&self, from: Device, to: Device) -> bool {
        self.place(from, to).is_some_and(|place| self.reaches[place])
    }

    /// Grants or revokes access.
    pub(super) fn set(&mut self, from: Device, to: Device, given: bool) {
        if let Some(place) = self.place(from, to) {
            self.reaches[place] = given;
        }
    }

    /// Returns the number of devices, other than `but`, that a device may reach.
    pub(super) fn others(&self, from: Device, but: Device) -> usize {
        let Some(first) = self.place(from, Device(0)) else {
            return 0;
        };
        let row = self.reaches[first..first + self.devices].iter().enumerate();
        row.filter(|(to, given)| **given && *to != but.0 as usize).count()
    }
}

/// The effects of operations that have not ended, from the oldest on.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The number of the first operation.
    from: usize,
    waiting: VecDeque<Option<Effect>>,
}

impl Effects {
    /// Sets the effect of an operation's end.
    pub(super) fn insert(&mut self, op: Op, effect: Effect) {
        if self.waiting.is_empty() {
            self.from = op.number();
        }
        let Some(place) = op.number().checked_sub(self.from) else {
            return;
        };
        while self.waiting.len() <= place {
            self.waiting.push_back(None);
        }
        self.waiting[place] = Some(effect);
    }

    /// Removes and returns the effect of an operation that has ended.
    pub(super) fn take(&mut self, op: Op) -> Option<Effect> {
        let effect = self.waiting.get_mut(op.number().checked_sub(self.from)?)?.take();
        while self.waiting.front().is_some_and(Option::is_none) {
            self.waiting.pop_front();
            self.from += 1;
        }
        effect
    }
}

/// The paths between GPUs that were asked for. Each is computed once.
#[derive(Debug)]
pub(super) struct Paths<T> {
    gpus: usize,
    /// By both ends and kind (direct or not): the index in `found`, from 1 on, or 0.
    places: Vec<u32>,
    found: Vec<T>,
}

impl<T: Clone> Paths<T> {
    /// Creates an empty table for this many GPUs.
    pub(super) fn none(gpus: usize) -> Self {
        Self { gpus, places: vec![0; 2 * gpus * gpus], found: Vec::new() }
    }

    fn place(&self, (from, to, direct): (u32, u32, bool)) -> usize {
        2 * (from as usize * self.gpus + to as usize) + usize::from(direct)
    }

    /// Returns a path that was computed before.
    pub(super) fn get(&self, way: (u32, u32, bool)) -> Option<T> {
        let number = *self.places.get(self.place(way))?;
        self.found.get((number as usize).checked_sub(1)?).cloned()
    }

    pub(super) fn keep(&mut self, way: (u32, u32, bool), path: T) {
        let place = self.place(way);
        self.found.push(path);
        if let (Some(place), Ok(number)) =
            (self.places.get_mut(place), u32::try_from(self.found.len()))
        {
            *place = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_given_one_way_and_counted() {
        let mut access = Access::none(3);
        let [a, b, c] = [0, 1, 2].map(Device);
        access.set(a, b, true);
        access.set(a, c, true);
        access.set(b, Device(9), true);
        assert!(access.is_given(a, b) && !access.is_given(b, a) && !access.is_given(b, Device(9)));
        assert_eq!(
            (access.others(a, b), access.others(a, a), access.others(Device(9), a)),
            (1, 2, 0)
        );
        access.set(a, b, false);
        assert!(!access.is_given(a, b));
    }

    #[test]
    fn paths_are_told_apart_by_their_ends_and_kind() {
        let mut paths = Paths::none(2);
        paths.keep((0, 1, true), "direct");
        paths.keep((0, 1, false), "staged");
        assert_eq!(
            (paths.get((0, 1, true)), paths.get((0, 1, false))),
            (Some("direct"), Some("staged"))
        );
        assert_eq!((paths.get((1, 0, true)), paths.get((7, 7, true))), (None, None));
    }
}

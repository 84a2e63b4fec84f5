//! Sorting, stable like that of the standard library, with one sort in the program for all types.
//!
//! A sort of the standard library is made anew for each type and each comparison, 4 kB each time; eighty of them were a
//! fortieth of the program. Here places are sorted, and the items put there: slower by a look behind a pointer for each
//! comparison, in tables of some thousand rows at most.

use std::cmp::Ordering;

/// Sorting of slices.
pub trait Order<T> {
    /// Sorts by this comparison; what it calls equal stays in its order.
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by this key; what has equal ones stays in its order. The key is made for each comparison.
    fn order_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> Order<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let places = places(self.len(), &mut |one, other| {
            compare(&self[one], &self[other])
        });
        put(places, &mut |one, other| self.swap(one, other));
    }

    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|one, other| key(one).cmp(&key(other)));
    }
}

/// For each place, where that which belongs there is.
fn places(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|one, other| compare(*one, *other));
    places
}

/// Puts everything in its place, each ring of places that changes among itself at once.
fn put(mut from: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..from.len() {
        let mut place = start;
        while from[place] != start {
            let next = from[place];
            swap(place, next);
            from[place] = place;
            place = next;
        }
        from[place] = place;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_sorts_like_the_standard_library(items in prop::collection::vec((0..6_u8, any::<u16>().prop_map(|it| it.to_string())), 0..60)) {
            let mut ours = items.clone();
            ours.order_by(|one, other| other.0.cmp(&one.0));
            let mut theirs = items.clone();
            theirs.sort_by_key(|item| std::cmp::Reverse(item.0));
            prop_assert_eq!(ours, theirs);
            let (mut ours, mut theirs) = (items.clone(), items);
            ours.order_by_key(|item| item.1.clone());
            theirs.sort_by_key(|item| item.1.clone());
            prop_assert_eq!(ours, theirs);
        }
    }
}

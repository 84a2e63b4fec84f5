//! Rules on several threads: of hundreds of GPUs each looks at a hundred thousand figures.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle, available_parallelism};

/// With fewer pairs than this, rules take less time than threads do; chosen.
const MANY_PAIRS: usize = 10_000;

/// How many threads look at so many pairs.
pub fn threads(pairs: usize) -> usize {
    if pairs < MANY_PAIRS {
        1
    } else {
        available_parallelism().map_or(1, NonZero::get)
    }
}

/// What `find` makes of each of these, in their order, whoever comes to it first. A panic in it goes on here.
pub fn each<T: Sync, R: Send>(all: &[T], threads: usize, find: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut found = Vec::new();
        while let Some((place, one)) = take(all, &next) {
            found.push((place, find(one)));
        }
        found
    };
    let mut found = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).filter_map(|_| start(scope, &some)).collect();
        let mut found = some();
        for other in others {
            found.extend(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        found
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(all: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    all.get(place).map(|one| (place, one))
}

/// A thread more, where the process may have one: else the others do its work.
fn start<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: &'scope (impl Fn() -> R + Sync),
) -> Option<ScopedJoinHandle<'scope, R>> {
    Builder::new()
        .name("rules".into())
        .spawn_scoped(scope, work)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_has_the_order_of_what_it_is_of() {
        let all: Vec<usize> = (0..500).collect();
        let expected: Vec<usize> = all.iter().map(|one| one * one).collect();
        for threads in [0, 1, 2, 7, 600] {
            assert_eq!(each(&all, threads, |one| one * one), expected, "{threads}");
        }
        assert!(each(&[], 3, |one: &u8| *one).is_empty());
        assert_eq!(threads(MANY_PAIRS - 1), 1);
        assert!(threads(MANY_PAIRS) >= 1);
    }

    #[test]
    fn a_panic_is_not_lost() {
        let said = std::panic::catch_unwind(|| {
            each(&[1, 2, 3], 2, |one| assert_ne!(*one, 2, "two is odd"))
        })
        .unwrap_err();
        let said = said.downcast_ref::<String>().unwrap();
        assert!(said.contains("two is odd"), "{said}");
    }
}

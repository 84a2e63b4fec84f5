//! The processors that the worker's thread runs on.

use std::cell::OnceCell;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the thread may use, as they were before anything was changed; `None` if the system does not
/// report them.
#[derive(Default)]
pub(super) struct Affinity {
    first: OnceCell<Option<CpuSet>>,
}

impl Affinity {
    /// Implements [`hardware::Driver::run_on`].
    pub(super) fn run_on(&self, processors: &[usize]) {
        let Some(first) = self.first.get_or_init(|| sched_getaffinity(None).ok()) else {
            return;
        };
        // If the system refuses, copies still run, on the thread's current processors.
        let _ = sched_setaffinity(None, &chosen(first, processors));
    }
}

/// Returns the usable ones of these processors, or all usable ones if there is none among them.
fn chosen(first: &CpuSet, processors: &[usize]) -> CpuSet {
    let mut chosen = CpuSet::new();
    let usable = processors
        .iter()
        .filter(|processor| **processor < CpuSet::MAX_CPU && first.is_set(**processor));
    usable.for_each(|processor| chosen.set(*processor));
    if chosen.count() == 0 { *first } else { chosen }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_where_it_may_and_comes_back() {
        let affinity = Affinity::default();
        let before = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|processor| before.is_set(*processor)).unwrap();
        affinity.run_on(&[last, CpuSet::MAX_CPU + 7]);
        let there = sched_getaffinity(None).unwrap();
        assert!(there.is_set(last) && there.count() == 1);
        // Processors that are absent, or not allowed for this process, change nothing.
        affinity.run_on(&[CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU]);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        affinity.run_on(&[last]);
        affinity.run_on(&[]);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}

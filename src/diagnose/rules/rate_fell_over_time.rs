//! # What it means
//!
//! Copies became slower during hours under load, although the clocks did not fall. A link that repeats packets, or
//! loses lanes as it warms up, does this before it fails.
//!
//! # What to do
//!
//! Compare the error counters of the links with those before the hours (`nvidia-smi nvlink -e`, AER in `lspci -vvv`),
//! and look for Xid messages. Reseat the GPU when the machine is cold, then repeat the hours. If it falls again, swap
//! the GPU to see whether the fault moves.
//!
//! # How it is detected
//!
//! For each flow (`measurements.soak`) the mean of the last five minutes lies below that of five minutes at the
//! start, after four that are left out, by more than `fallen_percent` and five times the scatter of minutes; or below
//! what the check before the hours explains (as `load-below-expected`). The clocks of multiprocessors and memory have
//! not fallen by half as much. Left out: minutes in which another program used one of the GPUs, and flows that share
//! a GPU in the same direction with another of their pattern.
//!
//! # Sources
//!
//! Rates of copies between H200 differ by 0.1 to 0.3% from one run to the next (measured).

use super::over_time::{self, Fallen, OfPlace, Since};
use super::over_time_check;
use super::prelude::*;
use model::soak::Soak;

const PERCENT: Parameter = Parameter {
    name: "fallen_percent",
    default: 1.0,
    about: "how much slower a flow may be at the end than at the start; chosen: three times what runs on H200 differ by",
};

/// Loss from which on it is an error, per cent. Chosen: what pairs may lie below their expected rate.
const ERROR: f64 = 10.0;

pub(crate) const RULE: Rule =
    Rule::new("rate-fell-over-time", Severity::Warning, judge).with(&[PERCENT]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let mut steady = over_time_check::low(evidence, soak, RULE.parameter(evidence, &PERCENT));
    steady.retain(|fallen| over_time::held_back(evidence, soak, fallen).is_none());
    let places = over_time::by_place(evidence, soak, &steady, |fallen| fallen.path);
    let of_pairs = places.iter().flat_map(|place| &place.pairs);
    let covered = suspects::gpus_of(of_pairs);
    let is_covered = |place: &&OfPlace<'_, _>| {
        place.pairs.is_empty() && place.gpus.iter().any(|gpu| covered.contains(gpu))
    };
    let places = places.iter().filter(|place| !is_covered(place));
    places.filter_map(|place| finding(soak, place)).collect()
}

fn finding(soak: &Soak, place: &OfPlace<'_, Fallen<'_>>) -> Option<Finding> {
    let fallen = &place.of;
    let worst = words::largest(fallen, |fallen| fallen.rate.lost_percent())?;
    let lost = worst.rate.lost_percent();
    let [first, last] = [worst.rate.first, worst.rate.last].map(GbPerSecond);
    let more = match fallen.len() {
        1 => String::new(),
        many => format!(", as did {} more", words::count(many - 1, "flow")),
    };
    let part = Part::Gpu(one_of(&place.gpus));
    let plan = Plan::now([Step::LinkErrors, Step::PcieErrors, Step::Xid])
        .if_it_stays([Step::Reseat(part.clone()), Step::Swap(part)]);
    let (name, within) = (worst.path.name(), over_time::after(soak.seconds));
    let message = match worst.since {
        Since::Start => format!(
            "{name}: from {first:.4} to {last:.4} GB/s within {within}, {lost:.1}% less, at constant clocks{more}"
        ),
        Since::Check => format!(
            "{name}: {last:.4} GB/s at the end of {within}, {lost:.1}% less than the {first:.4} of its copies alone and of \
             the links{more}"
        ),
    };
    let found = RULE
        .finding(place.subject.clone(), message, plan)
        .fact("at_first", Fact::Rate(first))
        .fact("at_last", Fact::Rate(last))
        .fact("rate_lost", Fact::Percent(lost))
        .fact("flows", fallen.len())
        .at_if(lost >= ERROR, Severity::Error);
    Some(place.mark(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns the findings after an hour in which copies of GPU 3 lose this much, and its clocks this much.
    fn lost(percent: f64, clocks: f64) -> Vec<Finding> {
        let share = |percent: f64, minute: f64| 1.0 - percent / 100.0 * minute / 60.0;
        over_time::testing::after(over_time::testing::hour(
            8,
            |pair, minute| 395.0 * if pair.touches(3) { share(percent, minute) } else { 1.0 },
            |gpu, minute, own| {
                if gpu == 3 {
                    own.sm_clock_mhz = Some(1980.0 * share(clocks, minute));
                }
            },
        ))
    }

    #[test]
    fn a_gpu_whose_copies_become_slower_at_constant_clocks_is_named() {
        let found = only(&lost(4.0, 0.0), "rate-fell-over-time", Severity::Warning);
        assert_eq!(found.subject, Subject::Gpu { index: 3 }, "{found:#?}");
        assert!(found.message.contains("constant clocks"), "{}", found.message);
        only(&lost(30.0, 0.0), "rate-fell-over-time", Severity::Error);
        let all = lost(4.0, 0.0);
        let (must, may) = (["link-errors", "reseat", "swap"], ["pcie-errors", "xid"]);
        assert_advice(&RULE, &all, &must, &may);
    }

    #[test]
    fn a_rate_that_fell_in_the_first_minutes_is_below_that_of_the_check() {
        for from in [0.0, 0.2, 2.0, 4.0, 5.0] {
            let of = |fell: fn(Pair) -> bool| {
                let rate = move |pair, minute| {
                    if fell(pair) && minute > from { 79.0 } else { 395.0 }
                };
                over_time::testing::after(over_time::testing::hour(8, rate, |_, _, _| ()))
            };
            let one = of(|pair| (pair.source, pair.destination) == (0, 1));
            let found = only(&one, "rate-fell-over-time", Severity::Error);
            assert!(found.message.contains("GPU 0 → GPU 1 in ring"), "{}", found.message);
            let all = of(|_| true);
            only(&all, "rate-fell-over-time", Severity::Error);
        }
    }

    #[test]
    fn the_larger_loss_counts_of_that_since_the_start_and_that_since_the_check() {
        let rate = |pair: Pair, minute: f64| {
            let lost = (minute / 6.0).min(1.0) * 0.5 + minute / 60.0 * 0.02;
            395.0 * if pair.touches(3) { 1.0 - lost } else { 1.0 }
        };
        let all = over_time::testing::after(over_time::testing::hour(8, rate, |_, _, _| ()));
        let found = only(&all, "rate-fell-over-time", Severity::Error);
        assert!(found.message.contains("of its copies alone"), "{}", found.message);
    }

    #[test]
    fn scatter_is_no_trend_and_clocks_are_another_finding() {
        assert_eq!(lost(0.5, 0.0), []);
        let with_clocks = lost(4.0, 4.0);
        assert!(with_clocks.iter().all(|found| found.code != RULE.id), "{with_clocks:#?}");
        // Clocks that fell far less than the rate are not the cause.
        only(&lost(20.0, 2.0), "rate-fell-over-time", Severity::Error);
    }

    #[test]
    fn minutes_of_another_program_do_not_count() {
        use model::soak::{EventKind, SoakEvent};
        let mut soak = over_time::testing::hour(
            8,
            |pair, minute| {
                if pair.touches(3) && minute > 50.0 { 300.0 } else { 395.0 }
            },
            |_, _, _| (),
        );
        assert!(!over_time::fallen(&soak, 1.0).is_empty());
        soak.events.push(SoakEvent {
            at_s: 51.0 * 60.0,
            kind: EventKind::ProgramBegan,
            gpu: Some(3),
            path: None,
            function: None,
            xid: None,
            what: "python3 (process 4711) began to use GPU 3".into(),
        });
        assert_eq!(over_time::testing::after(soak), []);
    }
}

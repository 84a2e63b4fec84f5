//! # What it means
//!
//! Copies became slower during hours under load. If the clocks of a GPU fell with them, the cause is cooling; if not, a
//! link that repeats packets or loses lanes as it warms up, as links do before they fail.
//!
//! # What to do
//!
//! If the clocks fell: look at temperatures and fans (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`), air filters,
//! blanking plates, liquid cooling, and the room. Do not swap links or cables.
//!
//! If they did not: compare the error counters of the links with those before the hours (`nvidia-smi nvlink -e`, AER in
//! `lspci -vvv`), and look for Xid messages. Reseat the GPU when the machine is cold, then repeat the hours. If it
//! falls again, swap the GPU: does the fault move?
//!
//! # How it is detected
//!
//! The mean of a flow (`measurements.soak`) in the last five minutes lies below that of five minutes after the first
//! four, by more than `fallen_percent` and five times the scatter of minutes; or below what the check before the hours
//! explains. The clocks are the cause if those of a GPU at an end fell by half as much or more. Minutes in which
//! another program used the GPUs do not count.
//!
//! # Sources
//!
//! Copies between H200 differ by 0.1 to 0.3% between runs (measured). NVML, `nvmlClocksThrottleReasons`.

use super::over_time::{self, Ends, Fallen, OfPlace, Since};
use super::over_time_check;
use super::prelude::*;

rule! {
    "rate-fell-over-time", Warning, All(judge);
    /// how much slower a flow may be at the end; chosen: three times what runs on H200 differ by
    PERCENT: fallen_percent = 1.0;
}

/// Loss from which on it is an error, per cent. Chosen: what pairs may lie below their expected rate.
const ERROR: f64 = 10.0;

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let soak = over_time::soak(evidence);
    let (mut hot, mut steady): (Vec<Held<'_>>, _) = (Vec::new(), Vec::new());
    for fallen in over_time_check::low(evidence, soak, PERCENT.of(evidence)) {
        match over_time::held_back(evidence, soak, &fallen) {
            Some((gpu, clock)) => hot.push(Held { gpu, clock, fallen }),
            None => steady.push(fallen),
        }
    }
    let places = over_time::by_place(evidence, soak, &steady, |fallen| fallen.path);
    let of_pairs = places.iter().flat_map(|place| &place.pairs);
    let covered = suspects::gpus_of(of_pairs);
    let is_covered = |place: &&OfPlace<'_, _>| {
        place.pairs.is_empty() && place.gpus.iter().any(|gpu| covered.contains(gpu))
    };
    let places = places.iter().filter(|place| !is_covered(place));
    let of_links = places.filter_map(|place| of_links(soak, place));
    of_links.chain(of_heat(evidence, soak, &hot)).collect()
}

/// A flow that fell with the clocks of a GPU.
struct Held<'a> {
    gpu: u32,
    clock: Ends,
    fallen: Fallen<'a>,
}

/// Returns the findings on GPUs whose clocks fell, or the one on the machine if more than one and half of them did: the
/// cause lies outside the GPUs then, and the others may lie behind those in each flow.
fn of_heat(evidence: &Evidence<'_>, soak: &Soak, hot: &[Held<'_>]) -> Vec<Finding> {
    let gpus = words::unique(hot.iter().map(|held| held.gpu));
    if gpus.len() > 1 && gpus.len() * 2 >= evidence.snapshot.gpus.len() {
        let worst = words::largest(hot, |held| held.clock.lost_percent());
        let found = worst.map(|worst| with_clocks(evidence, soak, Subject::Machine, &gpus, worst));
        return found.map(|found| found.fact("flows", hot.len())).into_iter().collect();
    }
    let of_gpu = |gpu: u32| {
        let own = hot.iter().filter(|held| held.gpu == gpu);
        let worst = words::largest(own.clone(), |held| held.fallen.rate.lost_percent())?;
        let found = with_clocks(evidence, soak, Subject::Gpu { index: gpu }, &[gpu], worst);
        Some(found.fact("flows", own.count()))
    };
    gpus.into_iter().filter_map(of_gpu).collect()
}

fn with_clocks(
    evidence: &Evidence<'_>,
    soak: &Soak,
    subject: Subject,
    gpus: &[u32],
    held: &Held<'_>,
) -> Finding {
    let heat = over_time::of_gpu(soak, held.gpu, |own| own.temperature_c);
    let minutes = soak.of_gpu(held.gpu);
    let reasons = words::unique(minutes.flat_map(|(_, own)| own.throttle_reasons.clone()));
    let more = match words::further("; so have ", gpus.len() - 1, "more GPU") {
        none if none.is_empty() => none,
        more => more + ": the cause lies outside the GPUs",
    };
    let (gpu, path) = (evidence.name(held.gpu), held.fallen.path.name());
    let [clock, rate] = [held.clock, held.fallen.rate].map(Ends::lost_percent);
    let message = match held.fallen.since {
        Since::Start => {
            let warmer = heat.map_or(String::new(), |heat| {
                format!(" ({:.0} → {:.0} °C)", heat.first, heat.last)
            });
            format!(
                "The clocks of {gpu} fell {clock:.1}%{warmer}, copies with them {rate:.1}%; the cooling, not the link: \
                 {path}{more}"
            )
        }
        Since::Check => {
            let at = heat.map_or(String::new(), |heat| format!(" at {:.0} °C", heat.last));
            format!(
                "The clocks of {gpu} are {clock:.1}% below the highest of its model{at}; with them {path} is {rate:.1}% \
                 below what the check before explains: the cooling, not the link{more}"
            )
        }
    };
    let found =
        RULE.finding(subject, message, Plan::now([Step::Cooling, Step::CheckAgain])).gpus(gpus);
    found
        .fact("first_temperature_c", heat.map(|heat| Fact::figure(heat.first)))
        .fact("last_temperature_c", heat.map(|heat| Fact::figure(heat.last)))
        .fact("reasons", (!reasons.is_empty()).then_some(reasons))
}

/// Returns the finding on flows that fell at constant clocks.
fn of_links(soak: &Soak, place: &OfPlace<'_, Fallen<'_>>) -> Option<Finding> {
    let fallen = &place.of;
    let worst = words::largest(fallen, |fallen| fallen.rate.lost_percent())?;
    let lost = worst.rate.lost_percent();
    let [first, last] = [worst.rate.first, worst.rate.last].map(GbPerSecond);
    let more = words::further(", as did ", fallen.len() - 1, "more flow");
    let part = Part::of(&place.gpus);
    let plan = Plan::now([Step::LinkErrors, Step::PcieErrors, Step::Xid])
        .if_it_stays([Step::Reseat(part.clone()), Step::Swap(part)]);
    let (name, within) = (worst.path.name(), over_time::after(soak.seconds));
    let message = match worst.since {
        Since::Start => format!(
            "{name} fell {lost:.1}% within {within}, {first:.4} → {last:.4} GB/s; at constant clocks{more}"
        ),
        Since::Check => format!(
            "{name} reaches {last:.4} GB/s after {within}, {lost:.1}% less than the {first:.4} of its copies alone and of \
             the links{more}"
        ),
    };
    let found = RULE
        .finding(place.subject.clone(), message, plan)
        .fact("flows", fallen.len())
        .at_if(lost >= ERROR, Severity::Error);
    Some(place.mark(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::soak::MinuteOfGpu;

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
    fn scatter_is_no_trend_and_clocks_are_another_cause() {
        assert_eq!(lost(0.5, 0.0), []);
        let found = only(&lost(4.0, 4.0), "rate-fell-over-time", Severity::Warning);
        assert!(found.message.contains("the cooling, not the link"), "{}", found.message);
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

    /// Returns the only finding on a rate; the hot GPU may have another.
    fn only_hot(all: &[Finding]) -> &Finding {
        let own: Vec<_> = all.iter().filter(|found| found.code == RULE.id).collect();
        let [found] = own.as_slice() else { panic!("{all:#?}") };
        found
    }

    /// Returns the findings after an hour in which these GPUs become hot and lose 6% of their clocks and rates.
    fn hot(gpus: &[u32]) -> Vec<Finding> {
        let share = |minute: f64| 1.0 - 0.06 * minute / 60.0;
        over_time::testing::after(over_time::testing::hour(
            8,
            |pair, minute| {
                let hot = gpus.iter().any(|gpu| pair.touches(*gpu));
                395.0 * if hot { share(minute) } else { 1.0 }
            },
            |gpu, minute, own| {
                if gpus.contains(&gpu) {
                    own.sm_clock_mhz = Some(1980.0 * share(minute));
                    own.temperature_c = Some(60.0 + minute / 6.0);
                    own.throttle_reasons = vec!["sw-thermal".into()];
                }
            },
        ))
    }

    #[test]
    fn the_cooling_is_accused_and_not_the_link() {
        let all = hot(&[5]);
        let found = only_hot(&all);
        assert_eq!(found.subject, Subject::Gpu { index: 5 });
        assert!(found.message.contains("the cooling, not the link"), "{}", found.message);
        assert_advice(&RULE, &all, &["cooling"], &["check-again"]);
    }

    #[test]
    fn a_gpu_that_is_too_hot_from_the_first_minute_is_no_bad_link() {
        let slow = |pair: Pair, _: f64| 395.0 * if pair.touches(5) { 0.85 } else { 1.0 };
        let clocks = |gpu, _: f64, own: &mut MinuteOfGpu| {
            if gpu == 5 {
                own.sm_clock_mhz = Some(1980.0 * 0.85);
                own.temperature_c = Some(95.0);
            }
        };
        let all = over_time::testing::after(over_time::testing::hour(8, slow, clocks));
        let found = only_hot(&all);
        assert!(
            found.message.contains("15.0% below the highest of its model at 95 °C"),
            "{}",
            found.message
        );
    }

    #[test]
    fn what_heats_all_gpus_is_one_finding() {
        let all = hot(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(only_hot(&all).subject, Subject::Machine);
    }
}

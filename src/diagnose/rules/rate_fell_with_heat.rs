//! # What it means
//!
//! Copies became slower during hours under load because a GPU's clocks fell.
//!
//! # What to do
//!
//! Look at temperatures and fans (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`), air filters, blanking plates, the loops
//! of liquid cooling, and the room. Then repeat the hours. Do not swap links or cables: they follow the clocks.
//!
//! # How it is detected
//!
//! A flow became slower, as `rate-fell-over-time` describes it, and the clock of the multiprocessors or of the memory of a
//! GPU at one of its ends fell by half as much or more. The temperature of that GPU, and NVML's reasons for lower clocks,
//! are in its evidence. If all GPUs of the machine are held back, one finding on the machine reports it.
//!
//! # Sources
//!
//! NVML, `nvmlClocksThrottleReasons`: thermal slowdown lowers the clocks of multiprocessors and memory.

use super::over_time::{self, Ends, Fallen, Since};
use super::over_time_check;
use super::prelude::*;

const PERCENT: Parameter = Parameter {
    name: "fallen_percent",
    default: 1.0,
    about: "how much slower a flow may be at the end than at the start; chosen: as for rate-fell-over-time",
};

pub(crate) const RULE: Rule =
    Rule::new("rate-fell-with-heat", Severity::Warning, judge).with(&[PERCENT]);

/// A GPU whose clocks fell, with the flow that lost most by it.
struct Held<'a> {
    gpu: u32,
    clock: Ends,
    worst: Fallen<'a>,
    flows: usize,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let mut held: Vec<Held<'_>> = Vec::new();
    for fallen in over_time_check::low(evidence, soak, RULE.parameter(evidence, &PERCENT)) {
        let Some((gpu, clock)) = over_time::held_back(evidence, soak, &fallen) else {
            continue;
        };
        match held.iter_mut().find(|held| held.gpu == gpu) {
            Some(known) => {
                known.flows += 1;
                if fallen.rate.lost_percent() > known.worst.rate.lost_percent() {
                    known.worst = fallen;
                }
            }
            None => held.push(Held { gpu, clock, worst: fallen, flows: 1 }),
        }
    }
    held.sort_by_key(|held| held.gpu);
    // A cause outside the GPUs holds more than half of them back; the others may lie behind those in each flow.
    if held.len() > 1 && held.len() * 2 >= evidence.snapshot.gpus.len() {
        let gpus: Vec<u32> = held.iter().map(|held| held.gpu).collect();
        let worst = held
            .into_iter()
            .max_by(|one, other| one.clock.lost_percent().total_cmp(&other.clock.lost_percent()));
        let found = worst.and_then(|worst| finding(evidence, Subject::Machine, &gpus, &worst));
        return found.into_iter().collect();
    }
    held.iter()
        .filter_map(|held| finding(evidence, Subject::Gpu { index: held.gpu }, &[held.gpu], held))
        .collect()
}

fn finding(
    evidence: &Evidence<'_>,
    subject: Subject,
    gpus: &[u32],
    held: &Held<'_>,
) -> Option<Finding> {
    let soak = over_time::soak(evidence)?;
    let heat = over_time::of_gpu(soak, held.gpu, |own| own.temperature_c);
    let reasons: BTreeSet<&str> = soak
        .of_gpu(held.gpu)
        .flat_map(|(_, own)| own.throttle_reasons.iter().map(String::as_str))
        .collect();
    let more = match gpus.len() {
        1 => String::new(),
        many => format!(
            "; so did those of {}: the cause lies outside the GPUs",
            words::count(many - 1, "more GPU")
        ),
    };
    let (gpu, path) = (words::gpu(evidence.snapshot, held.gpu), held.worst.path.name());
    let [clock, rate] = [held.clock, held.worst.rate].map(Ends::lost_percent);
    let message = match held.worst.since {
        Since::Start => {
            let warmer = heat.map_or(String::new(), |heat| {
                format!(" as it went from {:.0} to {:.0} °C", heat.first, heat.last)
            });
            format!(
                "The clocks of {gpu} fell by {clock:.1}%{warmer}, and with them {path} by {rate:.1}%: the cooling, not the \
                 link{more}"
            )
        }
        Since::Check => {
            let at = heat.map_or(String::new(), |heat| format!(" at {:.0} °C", heat.last));
            format!(
                "The clocks of {gpu} are {clock:.1}% below the highest of its model{at}, and with them {path} is {rate:.1}% \
                 below what the check before explains: the cooling, not the link{more}"
            )
        }
    };
    let mut found = RULE
        .finding(subject, message, Plan::now([Step::Cooling, Step::CheckCool]))
        .gpus(gpus)
        .fact("clock_lost", Fact::Percent(held.clock.lost_percent()))
        .fact("rate_lost", Fact::Percent(held.worst.rate.lost_percent()))
        .fact("at_first", Fact::Rate(GbPerSecond(held.worst.rate.first)))
        .fact("at_last", Fact::Rate(GbPerSecond(held.worst.rate.last)))
        .fact("flows", held.flows);
    if let Some(heat) = heat {
        found = found
            .fact("first_temperature_c", Fact::figure(heat.first))
            .fact("last_temperature_c", Fact::figure(heat.last));
    }
    if !reasons.is_empty() {
        let reasons: Vec<String> = reasons.into_iter().map(str::to_owned).collect();
        found = found.fact("reasons", reasons);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::soak::MinuteOfGpu;

    fn only_of<'a>(all: &'a [Finding], code: &str) -> &'a Finding {
        let own: Vec<_> = all.iter().filter(|found| found.code == code).collect();
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
        let found = only_of(&all, &RULE.id);
        assert_eq!(found.subject, Subject::Gpu { index: 5 });
        assert!(found.message.contains("the cooling, not the link"), "{}", found.message);
        assert!(all.iter().all(|found| found.code != "rate-fell-over-time"), "{all:#?}");
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
        let found = only_of(&all, &RULE.id);
        assert!(
            found.message.contains("15.0% below the highest of its model at 95 °C"),
            "{}",
            found.message
        );
        assert!(all.iter().all(|found| found.code != "rate-fell-over-time"), "{all:#?}");
    }

    #[test]
    fn what_heats_all_gpus_is_one_finding() {
        let all = hot(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(only_of(&all, &RULE.id).subject, Subject::Machine);
    }
}

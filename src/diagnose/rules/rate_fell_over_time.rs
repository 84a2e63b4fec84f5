//! # What it means
//!
//! Copies became slower during hours under load, although the clocks of the GPUs stayed as they were.
//!
//! # How it is detected
//!
//! For each flow the mean of five minutes at the start, after four that are left out, is compared with that of the last
//! five (`measurements.soak`). It must have fallen by more than `fallen_percent`, and by more than five times what minutes scatter
//! from one to the next. The clocks of multiprocessors and memory at both ends have not fallen by half as much.
//! Otherwise `rate-fell-with-heat` reports it. Minutes in which another program used one of the GPUs are left out.
//! Flows that share a GPU in the same direction with another of their pattern are left out: what one loses, the other
//! gains. Flows that fell are attributed to what they have in common.
//!
//! # Why it matters
//!
//! The link passes a short check and becomes slower in a long job. A link that repeats packets, or loses lanes as it
//! warms up, does this before it fails.
//!
//! # What to do
//!
//! Look at the error counters of the links, compared with those before the hours (`nvidia-smi nvlink -e`, AER in
//! `lspci -vvv`), and for Xid messages. Reseat the GPU when the machine is cold, then repeat the hours. If it falls again,
//! swap the GPU to see whether the fault moves.
//!
//! # Sources
//!
//! Rates of copies between H200 differ by 0.1 to 0.3% from one run to the next (docs/measurement.md, "Figures measured").

use super::over_time::{self, Fallen};
use super::prelude::*;

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
    let fallen = over_time::fallen(soak, RULE.parameter(evidence, &PERCENT));
    let (_, steady): (Vec<Fallen<'_>>, Vec<Fallen<'_>>) = fallen
        .into_iter()
        .partition(|fallen| over_time::held_back(soak, fallen).is_some());
    let bad = over_time::pairs(steady.iter().map(|fallen| fallen.path));
    let seen = over_time::pairs(soak.paths.iter());
    let groups = cluster::groups(&bad, &seen, evidence.topology);
    let of_pairs = groups.iter().filter_map(|group| {
        let own = |fallen: &&Fallen<'_>| {
            let pair = fallen.path.flow().pair();
            pair.is_some_and(|pair| group.pairs.contains(&pair))
        };
        let own: Vec<&Fallen<'_>> = steady.iter().filter(own).collect();
        Some(finding(evidence, group.subject(), &own)?.pairs(&group.pairs))
    });
    let covered: BTreeSet<u32> = bad
        .iter()
        .flat_map(|pair| [pair.source, pair.destination])
        .collect();
    let mut others: BTreeMap<Vec<u32>, Vec<&Fallen<'_>>> = BTreeMap::new();
    for fallen in &steady {
        let gpus = fallen.gpus();
        let is_other = fallen.path.flow().pair().is_none();
        if is_other && !gpus.iter().any(|gpu| covered.contains(gpu)) {
            others.entry(gpus).or_default().push(fallen);
        }
    }
    let of_others = others
        .iter()
        .filter_map(|(gpus, own)| Some(finding(evidence, Subject::of_gpus(gpus), own)?.gpus(gpus)));
    of_pairs.chain(of_others).collect()
}

fn finding(evidence: &Evidence<'_>, subject: Subject, fallen: &[&Fallen<'_>]) -> Option<Finding> {
    let lost = |fallen: &&&Fallen<'_>| fallen.rate.lost_percent();
    let worst = fallen
        .iter()
        .max_by(|one, other| lost(one).total_cmp(&lost(other)))?;
    let soak = over_time::soak(evidence)?;
    let more = match fallen.len() {
        1 => String::new(),
        many => format!(", as did {} more", words::count(many - 1, "flow")),
    };
    let gpus: BTreeSet<u32> = fallen.iter().flat_map(|fallen| fallen.gpus()).collect();
    let gpus: Vec<u32> = match subject {
        Subject::Gpu { index } => vec![index],
        _ => gpus.into_iter().collect(),
    };
    let part = Part::Gpu(OneOf(gpus));
    let plan = Plan::now([Step::LinkErrors, Step::PcieErrors, Step::Xid])
        .if_it_stays([Step::Reseat(part.clone()), Step::Swap(part)]);
    let mut found = RULE
        .finding(
            subject,
            format!(
                "{}: from {:.4} to {:.4} GB/s within {}, {:.1}% less, at constant clocks{more}",
                worst.path.name(),
                GbPerSecond(worst.rate.first),
                GbPerSecond(worst.rate.last),
                over_time::after(soak.seconds),
                worst.rate.lost_percent(),
            ),
            plan,
        )
        .fact("at_first", Fact::Rate(GbPerSecond(worst.rate.first)))
        .fact("at_last", Fact::Rate(GbPerSecond(worst.rate.last)))
        .fact("rate_lost", Fact::Percent(worst.rate.lost_percent()))
        .fact("flows", fallen.len());
    if worst.rate.lost_percent() >= ERROR {
        found.severity = Severity::Error;
    }
    Some(found)
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
            |pair, minute| {
                395.0
                    * if pair.touches(3) {
                        share(percent, minute)
                    } else {
                        1.0
                    }
            },
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
        assert!(
            found.message.contains("constant clocks"),
            "{}",
            found.message
        );
        only(&lost(30.0, 0.0), "rate-fell-over-time", Severity::Error);
        let all = lost(4.0, 0.0);
        let (must, may) = (["link-errors", "reseat", "swap"], ["pcie-errors", "xid"]);
        assert_advice(&RULE, &all, &must, &may);
    }

    #[test]
    fn scatter_is_no_trend_and_clocks_are_another_finding() {
        assert_eq!(lost(0.5, 0.0), []);
        let with_clocks = lost(4.0, 4.0);
        assert!(
            with_clocks.iter().all(|found| found.code != RULE.id),
            "{with_clocks:#?}"
        );
        // Clocks that fell far less than the rate are not the cause.
        only(&lost(20.0, 2.0), "rate-fell-over-time", Severity::Error);
    }

    #[test]
    fn minutes_of_another_program_do_not_count() {
        use model::soak::{EventKind, SoakEvent};
        let mut soak = over_time::testing::hour(
            8,
            |pair, minute| {
                if pair.touches(3) && minute > 50.0 {
                    300.0
                } else {
                    395.0
                }
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

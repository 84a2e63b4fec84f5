//! # What it means
//!
//! A running kernel saw wrong memory of another GPU, although copies arrive. It missed a store, saw a flag before the
//! data stored ahead of it, or atomics got lost. NCCL and inference servers hang, or compute with wrong data.
//!
//! # What to do
//!
//! If only lines of 128 bytes are torn, keep NCCL from using them (`NCCL_PROTO=^LL128`). Otherwise run without peer
//! access between these GPUs (`NCCL_P2P_DISABLE=1`); do not trust what programs computed. Over PCIe, look for settings
//! that reorder or redirect requests, and for old firmware of switches and BIOS. Over NVLink, look for Xid 74 and link
//! errors, then swap the GPU.
//!
//! # How it is detected
//!
//! Kernels on both GPUs of a pair (a single GPU: two on it) exchange data as NCCL does; one wrong line is enough.
//!
//! - *Stores* not seen within 20 ms (the first: 50 ms): *late* if there at the end, else *lost*.
//! - *Order* of data and flag (LL, Simple).
//! - *Lines* of 128 bytes (LL128): torn ones are an error over NVLink, a warning below one PCIe switch, information
//!   farther away.
//! - *Atomics* that the driver promises both ways: sums must be exact.
//!
//! # Sources
//!
//! NCCL issues 257 and 2079; vLLM issue 51513. H200: no line torn in 20 000 rounds (measured). Limits: a hundred times
//! what H200 took.

use super::prelude::*;
use super::talks;
use model::live::Miss;

rule! {
    "live-memory-broken", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let between = talks::between(evidence);
    let some = |count: Option<u32>| count.is_some_and(|count| count > 0);
    let groups = |is_bad: &dyn Fn(&LiveTalk) -> bool| talks::groups(evidence, &between, is_bad);
    let mut found = stores(evidence, &between);
    for (group, bad) in groups(&|talk| talk.out_of_order().iter().any(|(_, count)| some(*count))) {
        let forms = bad.iter().flat_map(|talk| talk.out_of_order());
        let forms = words::distinct(forms.filter(|(_, count)| some(*count)).map(|(form, _)| form));
        let fate = format!("arrive before their data; {forms}; copies arrive");
        let broken = finding(evidence, &group, "Flags", &fate)
            .fact("most_torn_ll", talks::most(&bad, |talk| talk.torn_ll))
            .fact("most_out_of_order", talks::most(&bad, |talk| talk.out_of_order))
            .fact("most_push_out_of_order", talks::most(&bad, |talk| talk.push_out_of_order))
            .fact("most_pull_out_of_order", talks::most(&bad, |talk| talk.pull_out_of_order));
        found.push(broken);
    }
    // Pairs of one kind each: what is an error between some is none between others.
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        let is_bad =
            |talk: &LiveTalk| torn(talk) > 0 && severity_of(evidence, talk.pair) == severity;
        let groups = groups(&is_bad).into_iter();
        found.extend(groups.map(|(group, bad)| of_lines(evidence, &group, &bad, severity)));
    }
    for (group, bad) in groups(&|talk| some(talk.atomics_lost)) {
        let lost = "are lost; the driver promises them as native";
        let most = talks::most(&bad, |talk| talk.atomics_lost);
        found.push(finding(evidence, &group, "Atomics", lost).fact("most_atomics_lost", most));
    }
    found
}

/// Returns the findings on stores that were not seen.
fn stores(evidence: &Evidence<'_>, between: &[&LiveTalk]) -> Vec<Finding> {
    let groups = talks::groups(evidence, between, |talk| talk.missed.is_some());
    let of_groups = groups.iter().map(|(group, missed)| of_stores(evidence, group, missed));
    let all = evidence.measured().live.iter();
    let within = all.filter(|talk| talks::is_within(talk) && talk.verified.is_wrong());
    of_groups.chain(within.map(|talk| of_one_gpu(evidence, talk))).collect()
}

/// Returns the finding on what kernels of these pairs see, and what happens to it.
fn finding(evidence: &Evidence<'_>, group: &Group, what: &str, fate: &str) -> Finding {
    let message = format!("{what} of running kernels {} {fate}", evidence.place(group));
    let plan = talks::plan(evidence, group).and(When::Afterwards, [Step::ComputeAgain]);
    RULE.on_group(group, message, plan).suspecting(talks::suspects(evidence, group))
}

/// Returns the lines of 128 bytes that were torn.
fn torn(talk: &LiveTalk) -> u32 {
    talk.torn_ll128.unwrap_or_default().max(talk.torn_ll128_channels.unwrap_or_default())
}

fn severity_of(evidence: &Evidence<'_>, pair: Pair) -> Severity {
    match evidence.topology.route(pair).map(|route| route.class) {
        Some(LinkClass::NvLink(_)) => Severity::Error,
        Some(class) if class.keeps_lines() => Severity::Warning,
        _ => Severity::Info,
    }
}

/// Returns the finding on torn lines, which weigh as much as the path promises.
fn of_lines(
    evidence: &Evidence<'_>,
    group: &Group,
    torn: &[&LiveTalk],
    severity: Severity,
) -> Finding {
    let most = talks::most(torn, |talk| talk.torn_ll128);
    let of_channels = talks::most(torn, |talk| talk.torn_ll128_channels);
    let fate = match most {
        Some(1..) => "are torn; their flag arrives before their data",
        _ => "are torn; only with many blocks at once does their flag arrive before their data",
    };
    let plan = Plan::now([Step::NoLl128]);
    let plan = match severity {
        Severity::Error => {
            let swap = Step::Swap(Part::of(&group.gpus()));
            plan.if_it_stays([Step::XidOf("74"), Step::LinkErrors, swap])
        }
        Severity::Warning => plan.if_it_stays([Step::UpdateBiosAndDriver]),
        Severity::Info => plan,
    };
    finding(evidence, group, "Lines of 128 bytes", fate)
        .steps(plan)
        .suspecting(Vec::new())
        .fact("most_torn_ll128", most)
        .fact("most_torn_ll128_channels", of_channels)
        .at(severity)
}

fn count(missed: &[&LiveTalk], wanted: Miss) -> usize {
    let fates = missed.iter().filter_map(|talk| talk.missed);
    fates.filter(|missed| missed.miss == wanted).count()
}

fn of_stores(evidence: &Evidence<'_>, group: &cluster::Group, missed: &[&LiveTalk]) -> Finding {
    let (late, never) = (count(missed, Miss::Late), count(missed, Miss::Never));
    let fate = match (late, never) {
        (_, 0) => "arrive only when the kernels have ended",
        (0, _) => "are lost",
        _ => "are lost, or arrive only when the kernels have ended",
    };
    let phases = missed
        .iter()
        .filter_map(|talk| talk.missed)
        .map(|missed| format!("{}, round {}", missed.phase, missed.round));
    let phases = words::distinct(phases);
    let fate = format!("{fate}; first missed: {phases}; copies arrive");
    finding(evidence, group, "Stores", &fate)
        .steps(talks::plan(evidence, group))
        .fact("stores_late", late)
        .fact("stores_lost", never)
}

/// Returns the finding on two kernels of one GPU.
fn of_one_gpu(evidence: &Evidence<'_>, talk: &LiveTalk) -> Finding {
    let gpu = talk.pair.source;
    let what = match talk.missed {
        Some(missed) => format!(
            "do not see each other's stores; first missed: {}, round {}",
            missed.phase, missed.round
        ),
        None => "see wrong data behind right flags".to_owned(),
    };
    let message = format!("Two running kernels of {} {what}", evidence.name(gpu));
    let plan = Plan::until_repair([Step::OutOfService(all(&[gpu]))])
        .then([Step::Xid, Step::MemoryRows])
        .then([Step::Swap(Part::of(&[gpu]))]);
    RULE.finding(Subject::Gpu { index: gpu }, message, plan).gpus(&[gpu])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{assert_says, with_talks};
    use model::live::{Missed, Phase};
    use model::status::Ending;

    #[test]
    fn one_line_behind_its_flag_is_an_error_and_none_is_fine() {
        for (form, name) in ["LL", "Simple, fenced by all", "Simple, pushed", "Simple, pulled"]
            .into_iter()
            .enumerate()
        {
            let machine = two_sockets();
            let mut measurements = with_talks(&machine);
            assert!(only_live(&findings(&machine, Some(&measurements))).is_empty());
            let talk = measurements.live.iter_mut().find(|talk| talk.pair == pair(0, 1)).unwrap();
            let counts = [
                &mut talk.torn_ll,
                &mut talk.out_of_order,
                &mut talk.push_out_of_order,
                &mut talk.pull_out_of_order,
            ];
            *counts.into_iter().nth(form).unwrap() = Some(1);
            talk.verified = Verified::Corrupt;
            let all = findings(&machine, Some(&measurements));
            let found: Vec<_> = all.iter().filter(|found| found.code == RULE.id).collect();
            assert_eq!(found.len(), 1, "{all:#?}");
            assert_eq!(found[0].subject, Subject::Pair(pair(0, 1)));
            assert_says(found[0], &format!("before their data; {name}; copies arrive"));
        }
    }

    fn only_live(all: &[Finding]) -> Vec<&Finding> {
        all.iter().filter(|found| found.code.starts_with("live-")).collect()
    }

    #[test]
    fn a_torn_line_weighs_as_much_as_its_path_promises() {
        let of = |machine: &Snapshot, torn: Pair| {
            let mut measurements = with_talks(machine);
            let talk = measurements.live.iter_mut().find(|talk| talk.pair == torn).unwrap();
            talk.torn_ll128_channels = Some(2);
            let all = findings(machine, Some(&measurements));
            let found: Vec<Severity> = all
                .iter()
                .filter(|found| found.code == RULE.id)
                .map(|found| found.severity)
                .collect();
            found
        };
        assert_eq!(of(&h200_vm(2), pair(0, 1)), [Severity::Error]);
        assert_eq!(of(&two_sockets(), pair(0, 1)), [Severity::Warning]);
        assert_eq!(of(&two_sockets(), pair(0, 3)), [Severity::Info]);
        let machine = h200_vm(2);
        assert_eq!(findings(&machine, Some(&with_talks(&machine))), []);
    }

    #[test]
    fn one_lost_addition_is_an_error_and_no_promise_is_none() {
        let machine = h200_vm(2);
        let mut measurements = with_talks(&machine);
        for talk in &mut measurements.live {
            (talk.native_atomics, talk.atomics_lost, talk.atomics_us) = (Some(false), None, None);
        }
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let mut measurements = with_talks(&machine);
        measurements.live[1].atomics_lost = Some(1);
        measurements.live[1].verified = Verified::Corrupt;
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-memory-broken", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(measurements.live[1].pair));
        assert_eq!(fact(&found, "most_atomics_lost"), 1.0);
    }

    fn miss(talk: &mut LiveTalk, miss: Miss) {
        talk.ending = Ending::without(Status::Failed, Some("in vain".into()));
        talk.missed = Some(Missed { phase: Phase::Arrival, round: 1, miss });
        talk.push_us = None;
        talk.verified = Verified::Dropped;
    }

    #[test]
    fn stores_that_no_running_kernel_sees_are_an_error_although_copies_arrive() {
        let machine = h200_vm(4);
        let mut measurements = with_talks(&machine);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let talk = measurements.live.iter_mut().find(|talk| talk.pair == pair(1, 3));
        miss(talk.unwrap(), Miss::Late);
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-memory-broken", Severity::Error);
        assert_eq!(found.subject, Subject::Pair(pair(1, 3)));
        assert_says(
            &found,
            "arrive only when the kernels have ended; first missed: arrival, round 1",
        );
        assert_eq!(exit(&all, Some(&measurements)), 1);
        assert_advice(&RULE, &all, &["disable-peers", "xid", "link-errors", "ask-host"], &[]);
    }

    #[test]
    fn every_pair_of_one_gpu_is_one_finding() {
        let machine = h200_vm(4);
        let mut measurements = with_talks(&machine);
        for talk in measurements.live.iter_mut().filter(|talk| talk.pair.source == 2) {
            miss(talk, Miss::Never);
        }
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "live-memory-broken", Severity::Error);
        assert_eq!(found.subject, Subject::Gpu { index: 2 });
        assert!(found.message.contains("are lost"), "{}", found.message);
    }

    #[test]
    fn where_copies_fail_they_have_the_finding() {
        let machine = h200_vm(2);
        let mut measurements = with_talks(&machine);
        measurements.live.iter_mut().for_each(|talk| miss(talk, Miss::Never));
        for cell in &mut measurements.peer {
            (cell.verified, cell.ending.status, cell.achieved_gbps) =
                (Verified::Dropped, Status::Failed, None);
        }
        let all = findings(&machine, Some(&measurements));
        assert!(all.iter().all(|found| found.code != "live-memory-broken"), "{all:#?}");
        assert!(all.iter().any(|found| found.code == "data-wrong"));
    }
}

//! # What it means
//!
//! A line of 128 bytes lacked data although its flag had arrived. NCCL uses such lines (LL128) over NVLink, and on
//! Hopper and later over PCIe switches: wrong data without an error.
//!
//! # What to do
//!
//! Keep NCCL from using it (`NCCL_PROTO=^LL128`). Over NVLink, look for Xid 74 and link errors, then swap the GPU.
//! Over PCIe, update BIOS and firmware of the switches.
//!
//! # How it is detected
//!
//! Eight threads of a kernel on one GPU store a line of 128 bytes at once, 120 bytes of data and a flag of 8. The
//! kernel on the other GPU loads until it sees all flags, loads once more, as NCCL does, and compares this last load:
//! in the first, data may be older than their flag on a sound machine. It is an error over NVLink, which alone
//! promises whole lines, a warning below one PCIe switch, information farther away. It sees some thousand lines, with
//! no other load.
//!
//! # Sources
//!
//! NCCL, src/graph/tuning.cc: LL128 needs paths that deliver 128 bytes at once; src/device/prims_ll128.h: the second
//! load. No torn line in 20 000 rounds over NVLink of H200, in the first load (measured).

use super::prelude::*;
use super::talks;
use model::live::LiveTalk;

pub(crate) const RULE: Rule = Rule::new("live-line-torn", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let between = talks::between(evidence);
    // Pairs of one kind each: what is an error between some is none between others.
    let severities = [Severity::Error, Severity::Warning, Severity::Info];
    let of_severity = severities.into_iter().flat_map(|severity| {
        let is_bad = |talk: &LiveTalk| {
            talk.torn_ll128.is_some_and(|lines| lines > 0)
                && severity_of(evidence, talk.pair) == severity
        };
        let groups = talks::groups(evidence, &between, is_bad);
        groups.into_iter().map(move |group| (severity, group))
    });
    of_severity
        .map(|(severity, (group, torn))| finding(evidence, &group, &torn, severity))
        .collect()
}

fn severity_of(evidence: &Evidence<'_>, pair: Pair) -> Severity {
    match evidence.topology.route(pair).map(|route| route.class) {
        Some(LinkClass::NvLink(_)) => Severity::Error,
        Some(class) if class.keeps_lines() => Severity::Warning,
        _ => Severity::Info,
    }
}

fn finding(
    evidence: &Evidence<'_>,
    group: &cluster::Group,
    torn: &[&LiveTalk],
    severity: Severity,
) -> Finding {
    let most = talks::most(torn, |talk| talk.torn_ll128).unwrap_or_default();
    let message = format!(
        "Lines of 128 bytes that running kernels store {} are torn: their flag arrives before their data",
        group.place(evidence.snapshot)
    );
    let plan = Plan::now([Step::NoLl128]);
    let plan = match severity {
        Severity::Error => {
            let swap = Step::Swap(Part::Gpu(OneOf(group.gpus())));
            plan.if_it_stays([Step::XidOf("74"), Step::LinkErrors, swap])
        }
        Severity::Warning => plan.if_it_stays([Step::UpdateBiosAndDriver]),
        Severity::Info => plan,
    };
    RULE.finding(group.subject(), message, plan)
        .fact("most_torn_ll128", most)
        .pairs(&group.pairs)
        .at(severity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_talks;

    #[test]
    fn a_torn_line_weighs_as_much_as_its_path_promises() {
        let of = |machine: &Snapshot, torn: Pair| {
            let mut measurements = with_talks(machine);
            let talk = measurements.live.iter_mut().find(|talk| talk.pair == torn).unwrap();
            talk.torn_ll128 = Some(2);
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
}

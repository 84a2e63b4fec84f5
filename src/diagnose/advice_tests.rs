//! Tests the advice of rules against its facts: for given facts, the steps that must, may and must not be advised.

use std::collections::BTreeSet;

use super::advice_steps::{Step, steps_in};
use super::rules;
use super::testing::cell;
use super::testing::prelude::*;
use super::{advice_more_rows, advice_rows};
use model::finding::Finding;
use model::measurement::{Measurements, Status, Verified};
use model::placement::{Pair, Path};
use model::reading::Unknown;
use model::snapshot::Snapshot;

/// Returns the steps of a finding, from its next step and its suspects.
fn steps(finding: &Finding) -> BTreeSet<Step> {
    let suspects = finding
        .suspects
        .iter()
        .flat_map(|suspect| [suspect.cause.as_str(), suspect.test.as_str()]);
    steps_in(
        &[finding.next_step.as_str()]
            .into_iter()
            .chain(suspects)
            .collect::<Vec<_>>()
            .join(" | "),
    )
}

/// Facts, the rule, and the steps that must and may be advised; all others must not.
pub(super) struct Row {
    pub(super) facts: &'static str,
    pub(super) rule: &'static str,
    pub(super) machine: (Snapshot, Measurements),
    pub(super) must: &'static [Step],
    pub(super) may: &'static [Step],
}

/// Returns a machine whose settings are known to be off, and its measurements.
pub(super) fn sound(machine: Snapshot) -> (Snapshot, Measurements) {
    let mut machine = machine;
    machine.host.iommu_translating = Reading::Known(false);
    let mut measurements = measured(&machine, 0.84);
    for pair in measurements
        .peer
        .iter()
        .map(|cell| cell.pair)
        .collect::<Vec<_>>()
    {
        measurements.peer.push(cell(pair, Path::Staged, 20.0));
    }
    (machine, measurements)
}

/// Returns [`sound`], with the bytes of these pairs wrong on this path.
fn wrong(machine: Snapshot, path: Path, is_bad: impl Fn(Pair) -> bool) -> (Snapshot, Measurements) {
    let (machine, mut measurements) = sound(machine);
    for cell in measurements
        .peer
        .iter_mut()
        .filter(|cell| cell.setup.path == path && is_bad(cell.pair))
    {
        (cell.verified, cell.status, cell.achieved_gbps) =
            (Verified::Corrupt, Status::Failed, None);
    }
    (machine, measurements)
}

/// Returns the same with copies that never end.
fn hung(machine: Snapshot, is_bad: impl Fn(Pair) -> bool) -> (Snapshot, Measurements) {
    let (machine, mut measurements) = sound(machine);
    for cell in measurements
        .peer
        .iter_mut()
        .filter(|cell| cell.setup.path == Path::Direct && is_bad(cell.pair))
    {
        (cell.verified, cell.status, cell.achieved_gbps) = (Verified::Skipped, Status::Hung, None);
    }
    (machine, measurements)
}

pub(super) fn near(pair: Pair) -> bool {
    pair.unordered() == (0, 1)
}

fn far(pair: Pair) -> bool {
    pair.source / 2 != pair.destination / 2
}

/// Changes the facts of a machine.
pub(super) fn but(
    (mut machine, measurements): (Snapshot, Measurements),
    change: impl FnOnce(&mut Snapshot),
) -> (Snapshot, Measurements) {
    change(&mut machine);
    (machine, measurements)
}

pub(super) fn named(machine: &mut Snapshot, name: &str, architecture: &str) {
    for gpu in &mut machine.gpus {
        (gpu.name, gpu.architecture) = (
            Reading::Known(name.into()),
            Reading::Known(architecture.into()),
        );
    }
}

pub(super) fn guest(machine: &mut Snapshot) {
    machine.host.virtual_machine = Reading::Known(true);
}

pub(super) fn bare_h200() -> Snapshot {
    let mut machine = h200_vm(4);
    machine.host.virtual_machine = Reading::Known(false);
    machine
}

fn data_rows() -> Vec<Row> {
    use Step::{
        AskHost, ClearAcs, DisablePeers, LeaveGpuOut, LinkErrors, LookAtIommu, NearPeersOnly,
        OutOfService, OwnDriver, PassThrough, PcieSwitch, RunAsRoot, Swap, TestMemory, Xid,
    };
    let row = |facts, machine, must, may| Row {
        facts,
        rule: "peer-data-wrong",
        machine,
        must,
        may,
    };
    let pair = || wrong(two_sockets(), Path::Direct, near);
    let ecc = |machine: &mut Snapshot| {
        machine
            .gpus
            .iter_mut()
            .for_each(|gpu| gpu.ecc = Reading::Known(true))
    };
    vec![
        row(
            "IOMMU and ACS off",
            pair(),
            &[DisablePeers, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "the same with ECC",
            but(pair(), ecc),
            &[DisablePeers, Swap, PcieSwitch],
            &[],
        ),
        row(
            "the IOMMU translates",
            but(pair(), |machine| {
                machine.host.iommu_translating = Reading::Known(true)
            }),
            &[DisablePeers, PassThrough, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "whether it does is not known",
            but(pair(), |machine| {
                machine.host.iommu_translating = Reading::failed("no such file")
            }),
            &[DisablePeers, LookAtIommu, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "a port redirects",
            but(pair(), |machine| {
                function_mut(machine, "0000:02:01.0").acs_redirect = Reading::Known(true)
            }),
            &[DisablePeers, ClearAcs, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "only root may read ACS",
            but(pair(), |machine| {
                let denied = Reading::Unknown(Unknown::Denied("needs root".into()));
                function_mut(machine, "0000:02:01.0").acs_redirect = denied;
            }),
            &[DisablePeers, RunAsRoot, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "a guest",
            but(pair(), guest),
            &[DisablePeers, AskHost, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "boards that the policy refuses",
            but(pair(), |machine| {
                named(machine, "NVIDIA GeForce RTX 4090", "Ada")
            }),
            &[DisablePeers, OwnDriver, TestMemory, Swap, PcieSwitch],
            &[],
        ),
        row(
            "far pairs alone",
            wrong(two_sockets(), Path::Direct, far),
            &[NearPeersOnly, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "all pairs of one GPU",
            wrong(two_sockets(), Path::Direct, |pair| pair.touches(3)),
            &[DisablePeers, LeaveGpuOut, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "copies through the host too",
            wrong(two_sockets(), Path::Staged, near),
            &[OutOfService, TestMemory, Swap],
            &[PcieSwitch],
        ),
        row(
            "over NVLink",
            wrong(bare_h200(), Path::Direct, |pair| pair.touches(2)),
            &[DisablePeers, LeaveGpuOut, Xid, LinkErrors, Swap],
            &[],
        ),
    ]
}

fn hang_rows() -> Vec<Row> {
    use Step::{
        AskHost, ClearAcs, DisablePeers, LinkErrors, OwnDriver, PassThrough, PowerCycle, Swap, Xid,
    };
    const USUAL: [Step; 4] = [DisablePeers, Xid, PowerCycle, Swap];
    let row = |facts, machine, must, may| Row {
        facts,
        rule: "peer-copy-hung",
        machine,
        must,
        may,
    };
    let pair = || hung(two_sockets(), near);
    vec![
        row("IOMMU and ACS off", pair(), &USUAL, &[]),
        row(
            "the IOMMU translates",
            but(pair(), |machine| {
                machine.host.iommu_translating = Reading::Known(true)
            }),
            &[DisablePeers, Xid, PowerCycle, Swap, PassThrough],
            &[],
        ),
        row(
            "a root port redirects",
            but(pair(), |machine| {
                function_mut(machine, "0000:00:01.0").acs_redirect = Reading::Known(true)
            }),
            &[DisablePeers, Xid, PowerCycle, Swap, ClearAcs],
            &[],
        ),
        row(
            "a guest",
            but(pair(), guest),
            &[DisablePeers, Xid, PowerCycle, Swap, AskHost],
            &[],
        ),
        row(
            "boards that the policy refuses",
            but(pair(), |machine| {
                named(machine, "NVIDIA GeForce RTX 5090", "Blackwell")
            }),
            &[DisablePeers, Xid, PowerCycle, Swap, OwnDriver],
            &[],
        ),
        row(
            "over NVLink",
            hung(bare_h200(), near),
            &[DisablePeers, Xid, PowerCycle, Swap, LinkErrors],
            &[],
        ),
    ]
}

/// Findings, and the steps that must and may be advised; all others must not.
pub(super) struct Judged {
    pub(super) facts: &'static str,
    pub(super) rule: &'static str,
    pub(super) found: Vec<Finding>,
    pub(super) must: &'static [Step],
    pub(super) may: &'static [Step],
}

impl From<Row> for Judged {
    fn from(
        Row {
            facts,
            rule,
            machine: (machine, measurements),
            must,
            may,
        }: Row,
    ) -> Self {
        Self {
            facts,
            rule,
            found: findings(&machine, Some(&measurements)),
            must,
            may,
        }
    }
}

fn rows() -> Vec<Judged> {
    let of_machines = [
        data_rows(),
        hang_rows(),
        advice_rows::all(),
        advice_more_rows::all(),
    ]
    .into_iter()
    .flatten();
    of_machines
        .map(Judged::from)
        .chain(advice_more_rows::of_reports())
        .collect()
}

#[test]
fn steps_follow_from_facts() {
    let mut complaints = Vec::new();
    for Judged {
        facts,
        rule,
        found,
        must,
        may,
    } in rows()
    {
        let Some(finding) = found.iter().find(|finding| &*finding.code == rule) else {
            complaints.push(format!("{rule}, {facts}: not found"));
            continue;
        };
        let steps = steps(finding);
        let missing: Vec<_> = must.iter().filter(|step| !steps.contains(step)).collect();
        let wrong: Vec<_> = steps
            .iter()
            .filter(|step| !must.contains(step) && !may.contains(step))
            .collect();
        if !missing.is_empty() || !wrong.is_empty() {
            complaints.push(format!(
                "{rule}, {facts}: lacks {missing:?}, must not have {wrong:?}: {} {:#?}",
                finding.next_step, finding.suspects
            ));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Fails for a rule whose advice is not checked against facts. It needs a row here, or a row of a case in
/// tests/machines/advice.toml.
#[test]
fn every_rule_has_a_row() {
    let cases = include_str!("../../tests/machines/advice.toml");
    let cases: toml::Table = toml::from_str(cases).unwrap();
    let of_cases = cases["row"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["rule"].as_str().unwrap().to_owned());
    let have: BTreeSet<String> = rows()
        .iter()
        .map(|row| row.rule.to_owned())
        .chain(of_cases)
        .collect();
    let all: BTreeSet<String> = rules::ALL.iter().map(|rule| rule.id.to_string()).collect();
    assert_eq!(
        all.difference(&have).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "rules without a row"
    );
    assert_eq!(
        have.difference(&all).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "rows of no rule"
    );
}

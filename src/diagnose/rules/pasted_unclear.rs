//! # What it means
//!
//! The output of other tools does not show that the machine is healthy. Parts were not given, contradict each other, tell
//! of an error or were not understood. What is unknown may be broken: the exit code is 3, never a fault.
//!
//! # What to do
//!
//! Add the output of the command that the step names, or run `peerscope check` on the machine. Give output of one
//! machine, printed at one time. Read the quoted lines: some may be errors of the machine.
//!
//! # How it is detected
//!
//! `diagnose` was given text of other programs. To show that a machine is healthy, it needs the list of GPUs with their
//! PCIe links, access and rate of every pair, the rate between host and every GPU, and the kernel's log. What is missing
//! is information.
//!
//! If other findings leave several causes possible, the step names the outputs that decide between them.
//!
//! It is a warning if two outputs have different values of a fact that does not change while a machine runs (the first
//! was kept), if a pair has more NVLinks than its model, if a line reports an error that the machine or the way of
//! starting the tool may have caused
//! (`Unknown Error`, `ERR!`, a warning of NCCL, an odd message of the driver), or if a line beside the
//! output of a tool was not understood.
//!
//! # Sources
//!
//! None: the rule is about the input.

use super::bonds;
use super::pasted_shown;
use super::prelude::*;

/// Most commands that the step names.
const NAMED: usize = 2;

/// Commands that decide between the causes of findings, by how their codes begin; the strongest
/// first. A GPU or a driver that does not start runs no test.
const DECIDES: [(&[&str], &[&str]); 4] = [
    (&["pasted-fault", "gpu-unreach", "gpu-not", "driver-", "fabric-"], &["dmesg"]),
    (&["nvlink-"], &["nvidia-smi nvlink -s", "dmesg"]),
    (
        &["direct-", "peer-bandwidth", "staged-", "pasted-rates", "host-"],
        &["nvidia-smi topo -m", "lspci -vv", "dmesg"],
    ),
    (&["software-"], &["nvidia-smi topo -p2p r"]),
];

rule! {
    "pasted-unclear", Warning, All(judge), for_gaps;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = [incomplete(evidence), contradicts(evidence), unclear(evidence)];
    found.into_iter().flatten().collect()
}

/// Names the commands that decide between the causes of the other findings, instead of all that the input lacks.
pub(crate) fn decide(evidence: &Evidence<'_>, findings: &mut [Finding]) {
    let Some(read) = evidence.read_from else {
        return;
    };
    let sections = || read.inputs.iter().flat_map(|input| &input.sections);
    let is_known = |start: &&str| findings.iter().any(|one| one.code.starts_with(start));
    let Some((_, commands)) = DECIDES.iter().find(|(starts, _)| starts.iter().any(is_known)) else {
        return;
    };
    let is_new = |command: &&str| !sections().any(|section| section.tool == **command);
    let named = named(commands.iter().copied().filter(is_new));
    let is_general = |one: &&mut Finding| one.code == RULE.id && one.severity == Severity::Info;
    if let Some(finding) = findings.iter_mut().find(is_general) {
        let step = (!named.is_empty()).then_some(Step::GiveOutput(named));
        let plan = Plan::now(step).then([Step::CheckWithPeerscope]);
        *finding = finding.clone().steps(plan);
    }
}

/// Names the first commands.
fn named<'a>(commands: impl Iterator<Item = &'a str>) -> String {
    commands.take(NAMED).map(|one| format!("'{one}'")).collect::<Vec<_>>().join(" and ")
}

/// Returns a finding on what the input lacks to show that a machine is healthy.
fn incomplete(evidence: &Evidence<'_>) -> Option<Finding> {
    let missing = evidence.read_from.map_or(&[][..], |read| &read.missing);
    let parts: Vec<&str> = missing.iter().map(|part| part.what.as_str()).collect();
    let shown = pasted_shown::shown(evidence);
    let mut commands: Vec<&str> = Vec::new();
    for part in missing {
        if !commands.contains(&part.command.as_str()) {
            commands.push(&part.command);
        }
    }
    (!missing.is_empty()).then(|| {
        RULE.on_machine(
            format!(
                "{}The input does not show whether the machine is healthy: it lacks {}",
                if shown.is_empty() {
                    String::new()
                } else {
                    format!("Shown: {}. ", shown.join(", "))
                },
                parts.join(", ")
            ),
            [Step::GiveOutput(named(commands.into_iter())), Step::CheckWithPeerscope],
        )
        .at(Severity::Info)
    })
}

/// Returns a finding on values that contradict each other.
fn contradicts(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut contradictions = evidence.read_from?.contradictions.clone();
    let step = if contradictions.is_empty() { Step::LinkStates } else { Step::GiveOneMachine };
    contradictions.extend(bonds::impossible(evidence.snapshot));
    (!contradictions.is_empty()).then(|| {
        RULE.on_machine(
            format!(
                "{} in the input; {}",
                words::count(contradictions.len(), "contradiction"),
                words::spelt(&contradictions)
            ),
            [step],
        )
    })
}

/// Returns a finding on lines that tell of an error or were not understood.
fn unclear(evidence: &Evidence<'_>) -> Option<Finding> {
    evidence.read_from?;
    let problems = &evidence.snapshot.problems;
    (!problems.is_empty()).then(|| {
        RULE.on_machine(
            format!(
                "{} of the input may tell of an error, and {} not understood: {}",
                words::count(problems.len(), "part"),
                if problems.len() == 1 { "is" } else { "are" },
                words::spelt(problems)
            ),
            [Step::ReadLines],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::prelude::*;
    use model::pasted::{Missing, Pasted, PastedInput, PastedSection};
    use model::topology::Topology;

    fn judged(machine: &Snapshot, read_from: Option<&Pasted>) -> Vec<Finding> {
        let (topology, settings) = (Topology::default(), Settings::default());
        RULE.judge(&Evidence {
            read_from,
            ..crate::testing::without_request(machine, &topology, None, &settings)
        })
    }

    #[test]
    fn what_is_missing_is_named_with_the_commands_that_print_it() {
        let missing = [
            ("the rate of any pair", "nvbandwidth"),
            ("the kernel's log", "dmesg"),
            ("the rate between host and GPUs", "nvbandwidth"),
        ];
        let missing = missing
            .map(|(what, command)| Missing { what: what.to_owned(), command: command.to_owned() });
        let pasted = Pasted { missing: missing.into(), ..Pasted::default() };
        let found = judged(&empty(), Some(&pasted));
        let one = only(&found, "pasted-unclear", Severity::Info);
        assert!(one.message.ends_with(
            "it lacks the rate of any pair, the kernel's log, the rate between host and GPUs"
        ));
        assert_advice(&RULE, &found, &["more-output", "peerscope-check"], &[]);
        assert!(one.next_step.contains("'nvbandwidth' and 'dmesg'"));
        assert!(crate::is_gap(&RULE.id));
    }

    #[test]
    fn other_findings_decide_what_is_asked_for() {
        let section = |tool: &str| PastedSection { tool: tool.to_owned(), ..Default::default() };
        let missing = [Missing { what: "a rate".to_owned(), command: "nvbandwidth".to_owned() }];
        let input = PastedInput { sections: vec![section("dmesg")], ..Default::default() };
        let pasted = Pasted { missing: missing.into(), inputs: vec![input], ..Pasted::default() };
        let (machine, topology, settings) = (empty(), Topology::default(), Settings::default());
        let evidence = Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(&machine, &topology, None, &settings)
        };
        let asked = |code: &'static str| {
            let other = Finding { code: model::finding::RuleId::new(code), ..unclear_of() };
            let mut found = vec![other];
            found.extend(incomplete(&evidence));
            decide(&evidence, &mut found);
            found[1].next_step.clone()
        };
        assert!(asked("nvlink-missing").starts_with("Add the output of 'nvidia-smi nvlink -s'; "));
        assert!(asked("pasted-rates").contains("'nvidia-smi topo -m' and 'lspci -vv'"));
        // What a lost GPU needs is there; no test is asked for.
        assert_eq!(asked("gpu-unreachable"), "Run 'peerscope check' on the machine");
        assert!(asked("gpu-busy").contains("'nvbandwidth'"));
    }

    fn unclear_of() -> Finding {
        RULE.finding(Subject::Machine, "odd", [Step::ReadLines])
    }

    #[test]
    fn contradictions_are_a_gap_and_no_fault() {
        let contradictions = (0..5).map(|n| format!("line {n}")).collect();
        let pasted = Pasted { contradictions, ..Pasted::default() };
        let found = judged(&empty(), Some(&pasted));
        let one = only(&found, "pasted-unclear", Severity::Warning);
        assert!(one.message.ends_with("line 0; line 1; line 2; 2 more"));
        assert_advice(&RULE, &found, &["one-machine"], &[]);
    }

    #[test]
    fn a_line_that_tells_of_an_error_is_a_gap_in_pasted_text_only() {
        let mut machine = empty();
        machine.problems = (1..6).map(|n| format!("odd (line {n} of in)")).collect();
        assert_eq!(judged(&machine, None), []);
        let found = judged(&machine, Some(&Pasted::default()));
        let one = only(&found, "pasted-unclear", Severity::Warning);
        assert!(one.message.ends_with("odd (line 3 of in); 2 more"), "{}", one.message);
        assert_advice(&RULE, &found, &["read-lines"], &[]);
    }
}

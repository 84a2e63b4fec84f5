//! # What it means
//!
//! The output of other tools does not show that the machine is healthy. The part that was not given may be broken:
//! the exit code is 3, never a fault.
//!
//! # What to do
//!
//! Add the output of the command that the step names, or run `peerscope check` on the machine.
//!
//! # How it is detected
//!
//! `diagnose` was given text of other programs in place of a report. To show that a machine is healthy, it needs the
//! list of GPUs with their PCIe links, access and rate of every pair, the rate between host and every GPU, and the
//! kernel's log. The message names what is missing.
//!
//! # Sources
//!
//! None: the rule is about the input.

use super::prelude::*;

/// Most commands that the step names. The evidence has them all.
const NAMED: usize = 2;

pub(crate) const RULE: Rule = Rule::of_one("pasted-incomplete", Severity::Info, judge).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let missing = evidence.read_from.map_or(&[][..], |read| &read.missing);
    if missing.is_empty() {
        return None;
    }
    let parts: Vec<&str> = missing.iter().map(|part| part.what.as_str()).collect();
    let mut commands: Vec<&str> = Vec::new();
    for part in missing {
        if !commands.contains(&part.command.as_str()) {
            commands.push(&part.command);
        }
    }
    let named = commands.iter().take(NAMED).map(|one| format!("'{one}'"));
    let named: Vec<String> = named.collect();
    Some(
        RULE.finding(
            Subject::Machine,
            format!(
                "The input does not show whether the machine is healthy: it lacks {}",
                parts.join(", ")
            ),
            [Step::GiveOutput(named.join(" and ")), Step::CheckWithPeerscope],
        )
        .fact("lacks", parts.iter().map(ToString::to_string).collect::<Vec<_>>())
        .fact("decided_by", commands.iter().map(ToString::to_string).collect::<Vec<_>>()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::prelude::*;
    use model::pasted::{Missing, Pasted};
    use model::topology::Topology;

    fn pasted(missing: &[(&str, &str)]) -> Vec<Finding> {
        let snapshot = model::testing::empty();
        let missing = missing.iter().map(|(what, command)| Missing {
            what: (*what).to_owned(),
            command: (*command).to_owned(),
        });
        let pasted = Pasted { missing: missing.collect(), ..Pasted::default() };
        let (topology, settings) = (Topology::default(), Settings::default());
        RULE.judge(&Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(&snapshot, &topology, None, &settings)
        })
    }

    #[test]
    fn what_is_missing_is_named_with_the_commands_that_print_it() {
        let found = pasted(&[
            ("the rate of any pair", "nvbandwidth"),
            ("the kernel's log", "dmesg"),
            ("the rate between host and GPUs", "nvbandwidth"),
        ]);
        let one = only(&found, "pasted-incomplete", Severity::Info);
        assert!(one.message.ends_with(
            "it lacks the rate of any pair, the kernel's log, the rate between host and GPUs"
        ));
        assert_advice(&RULE, &found, &["more-output", "peerscope-check"], &[]);
        assert!(one.next_step.contains("'nvbandwidth' and 'dmesg'"));
        assert!(crate::is_gap(&RULE.id));
        assert_eq!(pasted(&[]), []);
    }
}

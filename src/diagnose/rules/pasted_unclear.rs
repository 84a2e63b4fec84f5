//! # What it means
//!
//! Lines of other tools' output tell of an error or were not understood. One of them may name the fault: the exit
//! code is 3, never a fault.
//!
//! # What to do
//!
//! Read these lines. Take out what is no output of a tool, or run `peerscope check` on the machine.
//!
//! # How it is detected
//!
//! A line reports an error that the machine or the way of starting the tool may have caused: `Unknown Error`, `ERR!`, a
//! warning of `dcgmi diag` or of NCCL, an odd message of the NVIDIA driver. Or a line beside the output of a tool was
//! not understood. The message quotes the line and gives its number.
//!
//! # Sources
//!
//! None: the rule is about the input.

use super::prelude::*;

pub(crate) const RULE: Rule = Rule::of_one("pasted-unclear", Severity::Warning, judge).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    evidence.read_from?;
    let problems = &evidence.snapshot.problems;
    (!problems.is_empty()).then(|| {
        RULE.finding(
            Subject::Machine,
            format!(
                "The input tells of an error or was not understood: {}",
                words::spelt(problems)
            ),
            [Step::ReadLines, Step::CheckWithPeerscope],
        )
        .fact("problems", problems.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::prelude::*;
    use model::pasted::Pasted;
    use model::topology::Topology;

    #[test]
    fn a_line_that_tells_of_an_error_is_a_gap_in_pasted_text_only() {
        let mut machine = empty();
        machine.problems = (1..6).map(|n| format!("odd (line {n} of in)")).collect();
        let (topology, settings) = (Topology::default(), Settings::default());
        let pasted = Pasted::default();
        let judged = |read_from| {
            RULE.judge(&Evidence {
                read_from,
                ..crate::testing::without_request(&machine, &topology, None, &settings)
            })
        };
        assert_eq!(judged(None), []);
        let found = judged(Some(&pasted));
        let one = only(&found, "pasted-unclear", Severity::Warning);
        assert!(one.message.ends_with("odd (line 3 of in); 2 more"), "{}", one.message);
        assert_advice(&RULE, &found, &["read-lines", "peerscope-check"], &[]);
        assert!(crate::is_gap(&RULE.id));
    }
}

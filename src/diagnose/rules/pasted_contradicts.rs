//! # What it means
//!
//! Parts of the output of other tools contradict each other. They may be of different machines, or of one before and
//! after a change: the exit code is 3.
//!
//! # What to do
//!
//! Give output of one machine, printed at one time.
//!
//! # How it is detected
//!
//! Two outputs have different values of a fact that does not change while a machine runs: a version, the name or
//! address of a GPU, the lanes of a link, the class of a pair. The message names both lines. The first value was
//! kept.
//!
//! # Sources
//!
//! None: the rule is about the input.

use super::prelude::*;

pub(crate) const RULE: Rule =
    Rule::of_one("pasted-contradicts", Severity::Warning, judge).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let contradictions = evidence.read_from.map_or(&[][..], |read| &read.contradictions);
    (!contradictions.is_empty()).then(|| {
        RULE.finding(
            Subject::Machine,
            format!("Parts of the input contradict each other: {}", words::spelt(contradictions)),
            [Step::GiveOneMachine],
        )
        .fact("contradictions", contradictions.to_vec())
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
    fn contradictions_are_a_gap_and_no_fault() {
        let report = |contradictions: usize| {
            let pasted = Pasted {
                contradictions: (0..contradictions).map(|n| format!("line {n}")).collect(),
                ..Pasted::default()
            };
            let snapshot = model::testing::empty();
            let (topology, settings) = (Topology::default(), Settings::default());
            RULE.judge(&Evidence {
                read_from: Some(&pasted),
                ..crate::testing::without_request(&snapshot, &topology, None, &settings)
            })
        };
        assert_eq!(report(0), []);
        let found = report(5);
        let one = only(&found, "pasted-contradicts", Severity::Warning);
        assert!(one.message.ends_with("line 0; line 1; line 2; 2 more"));
        assert_advice(&RULE, &found, &["one-machine"], &[]);
        assert!(crate::is_gap(&RULE.id));
    }
}

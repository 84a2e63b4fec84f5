//! # What it means
//!
//! Some figures are low, and no change of a part accounts for them. They may be chance or a fault that few figures
//! show.
//!
//! # What to do
//!
//! Check again with the machine idle. If they stay low, compare with an earlier report.
//!
//! # How it is detected
//!
//! Each misfits the fewest changes that account for the figures by eight bits or more, where three per cent of a rate
//! count as one. GPUs with another warning or error are left out.
//!
//! # Sources
//!
//! Margins of the explanation, chosen after healthy machines whose figures scatter.

use super::prelude::*;
use explain::Figure;

/// How badly a figure must fit, bits. Chosen: more than the 6 that a change must gain to count as a cause.
const LEAST_BITS: f64 = 8.0;

rule! {
    "not-explained", Info, One(judge);
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let explanation = evidence.explanation();
    let is_open = |figure: &&Figure| figure.is_low && figure.misfit_bits >= LEAST_BITS;
    let mut open: Vec<&Figure> = explanation.unexplained.iter().filter(is_open).collect();
    open.sort_by(|one, other| other.misfit_bits.total_cmp(&one.misfit_bits));
    let worst = open.first()?;
    let ends = open.iter().flat_map(|figure| figure.key.flow.ends());
    let gpus: Vec<u32> = words::unique(ends.filter_map(Endpoint::gpu));
    let mut names = open.iter().filter_map(|figure| name(evidence, &figure.key));
    let first = names.next()?;
    let more = words::further("; so are ", open.len() - 1, "other figure");
    let unfinished = if explanation.gave_up { "; the search for one was not finished" } else { "" };
    let message = format!(
        "A figure of {} is below {} GB/s, and no fault explains it; {}{more}{unfinished}",
        worst.key.flow,
        GbPerSecond(worst.healthy_gbps),
        first,
    );
    Some(
        RULE.on_gpus(&gpus, message, [Step::CheckIdle]).fact(
            "figures_not_explained",
            Fact::Texts(std::iter::once(first).chain(names).collect()),
        ),
    )
}

/// Returns the name of a figure, for people.
fn name(evidence: &Evidence<'_>, key: &FigureKey) -> Option<String> {
    let of = |one: &dyn Measurement| (0..one.parts()).any(|at| one.key_of(one.flow_of(at)) == *key);
    let one = evidence.measured().each().find(|one| of(*one))?;
    let flow = if one.parts() > 1 { format!(", {}", key.flow) } else { String::new() };
    Some(one.identity() + &flow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_no_known_model;
    use crate::testing::prelude::*;

    /// Returns what is found if copies from GPU 0 to GPU 2 have this part of the rate of all others.
    fn found(part: f64) -> Vec<Finding> {
        let machine = of_no_known_model(h200_vm(4));
        let mut measurements = measured(&machine, 0.9);
        for cell in &mut measurements.peer {
            if (cell.pair.source, cell.pair.destination) == (0, 2) {
                cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * part));
            }
        }
        findings(&machine, Some(&measurements))
    }

    #[test]
    fn a_figure_that_does_not_pay_for_a_cause_is_information_and_a_small_loss_is_not() {
        let all = found(0.855);
        assert_advice(&RULE, &all, &["check-again-idle"], &[]);
        let one = only(&all, "not-explained", Severity::Info);
        assert!(one.message.contains("GPU 0 → GPU 2"), "{}", one.message);
        assert_eq!(fact(&one, "gpus"), serde_json::json!([0, 2]));
        assert_eq!(found(0.93), []);
        // Another finding on the same GPUs says more.
        let more = found(0.5);
        assert!(more.iter().all(|one| one.code != RULE.id), "{more:#?}");
        assert!(!more.is_empty());
    }
}

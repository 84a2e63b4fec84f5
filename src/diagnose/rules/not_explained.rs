//! # What it means
//!
//! Some figures are lower than this machine should give, and no change of a part of the machine accounts for them.
//!
//! # How it is detected
//!
//! The explanation of all figures ([docs/explanation.md](../explanation.md)) looks for the fewest changes that account
//! for every figure. These figures fit none, and each of them fits by `least_bits` or more too badly, where three per
//! cent of a rate count as one bit. Figures of GPUs that another warning or error is about are left out. The finding
//! also mentions it if the search ended before it had tried everything.
//!
//! # Why it matters
//!
//! A single low figure may be chance, such as other work at that moment, or a fault that few figures show.
//!
//! # What to do
//!
//! Check again with the machine idle. If the same figures are low again, compare them with an earlier report of the
//! machine.
//!
//! # Sources
//!
//! The margins are those of the explanation, chosen after healthy machines whose figures scatter.

use super::prelude::*;
use explain::Figure;
use model::flow::{Endpoint, Flow};

const BITS: Parameter = Parameter {
    name: "least_bits",
    default: 6.0,
    about: "how badly a figure must fit, in bits; chosen: what a change must gain to count as a cause",
};

pub(crate) const RULE: Rule = Rule::new(
    "not-explained",
    Severity::Info,
    include_str!("not_explained.rs"),
    judge,
)
.with(&[BITS]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(explanation) = evidence.explanation() else {
        return Vec::new();
    };
    let least = RULE.parameter(evidence, &BITS);
    let is_open = |figure: &&Figure| figure.is_low && figure.misfit_bits >= least;
    let mut open: Vec<&Figure> = explanation.unexplained.iter().filter(is_open).collect();
    open.sort_by(|one, other| other.misfit_bits.total_cmp(&one.misfit_bits));
    let Some(worst) = open.first() else {
        return Vec::new();
    };
    let of_name = flows(evidence);
    let flows = open.iter().filter_map(|figure| of_name.get(&figure.name));
    let gpus: BTreeSet<u32> = flows
        .flat_map(|flow| flow.ends())
        .filter_map(Endpoint::gpu)
        .collect();
    let gpus: Vec<u32> = gpus.into_iter().collect();
    let more = match open.len() - 1 {
        0 => String::new(),
        more => format!(" (and {})", words::count(more, "other figure")),
    };
    let unfinished = if explanation.gave_up {
        "; the search for one was not finished"
    } else {
        ""
    };
    let message = format!(
        "No change of the machine explains why this is below {} GB/s: {}{more}{unfinished}",
        GbPerSecond(worst.healthy_gbps),
        worst.name,
    );
    let names = open.iter().map(|figure| figure.name.clone());
    let found = RULE
        .finding(Subject::of_gpus(&gpus), message, [Step::CheckIdle])
        .gpus(&gpus)
        .fact("figures_not_explained", Fact::Texts(names.collect()));
    vec![found]
}

/// Returns the flow of every figure of a single flow, by its name.
fn flows(evidence: &Evidence<'_>) -> BTreeMap<String, Flow> {
    let all = evidence.measurements.into_iter();
    let all = all.flat_map(|measurements| measurements.each());
    let mut flows: BTreeMap<String, Flow> = all
        .filter(|one| one.parts() == 1)
        .map(|one| (one.identity(), one.part(0).flow))
        .collect();
    let loads = evidence.measurements.into_iter();
    for load in loads.flat_map(|measurements| &measurements.load) {
        for flow in load.flows.iter().map(model::load::LoadFlow::flow) {
            flows.insert(explain::name_of_flow(load, flow), flow);
        }
    }
    flows
}

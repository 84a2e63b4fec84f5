//! The plan: which copies, in which rounds, with how many bytes. It is pure: it turns the known facts of the machine
//! into a list of rounds that a worker can run one by one.

mod batches;
mod follow;
pub(crate) mod in_full;
mod left_out;
pub(crate) mod one_gpu;
pub mod profile;
mod second_looks;
pub(crate) mod slot;
mod wanted;

use std::collections::BTreeSet;

pub use self::follow::follow;
pub use self::left_out::{gpus_left_out, left_out, links_left_out, load_left_out, thinned_out};
pub use self::profile::Profile;
pub use self::second_looks::second_looks;
use self::slot::{Slot, numbered};
use self::wanted::Wanted;
pub use crate::addresses::plan::addresses_left_out;
pub use crate::soak::plan::soak;
use crate::{Action, Request, Round};
use crate::{addresses, asynchrony, contention, host, links, live, load, local, pipeline, share};
use model::flow::{Endpoint, Flow};
use model::measurement::DriverFacts;
use model::placement::{Pair, Path, Side};

/// Plans the rounds of a request. Staged copies come first, so that peer access is switched twice per pair and not at
/// every round. Direct copies follow, in batches of pairs that share nothing, and then the measurements of one pair at
/// a time. Copies both ways come after these, once for the two directions. A direction that hangs is then found alone,
/// and is not blamed on the pair that it is joined with. Then kernels talk, which the copies have shown to reach each
/// other. Copies between host and GPU follow, which concern no pair. Last come several flows at once, each of which was
/// alone before.
///
/// With more than [`in_full::MOST_GPUS_IN_FULL`] GPUs this is done for some pairs only. All others are verified and measured
/// in the reference placement, on the path that they have.
pub fn rounds(request: &Request<'_>) -> Vec<Round> {
    let wanted = Wanted::of(request);
    let mut planned: Vec<Slot> = Vec::new();
    for &pair in &wanted.pairs {
        let tasks = wanted.staged(pair).into_iter();
        planned.extend(tasks.map(|task| Slot::one(task, vec![pair.into()])));
    }
    for batch in wanted.batches() {
        planned.extend(wanted.direct(&batch));
    }
    let (mut both_ways, mut seen) = (Vec::new(), BTreeSet::new());
    for &pair in &wanted.pairs {
        for task in wanted.one_at_a_time(pair) {
            let mut flows = vec![Flow::from(pair)];
            // Without access in the other direction, the round has an obstacle, and its single flow gets the reason.
            if task.is_both_ways() && request.driver.is_direct(pair.reversed()) {
                flows.push(flows[0].reversed());
            }
            let key = (
                flows.iter().copied().collect::<BTreeSet<_>>(),
                task.setup.of_any_size(),
                matches!(task.action, Action::Verify(_)),
            );
            match task.is_both_ways() {
                false => planned.push(Slot::one(task, flows)),
                true if seen.insert(key) => both_ways.push(Slot::one(task, flows)),
                true => {}
            }
        }
    }
    planned.extend(local::plan::rounds(request));
    planned.extend(both_ways);
    planned.extend(live::plan::rounds(request, &wanted.heats()));
    planned.extend(links::plan::rounds(request, &wanted.in_full()));
    planned.extend(addresses::plan::rounds(request));
    planned.extend(host::plan::rounds(request));
    planned.extend(contention::plan::rounds(request));
    planned.extend(pipeline::plan::rounds(request));
    planned.extend(asynchrony::plan::rounds(request));
    planned.extend(share::plan::rounds(request));
    let mut rounds = numbered(planned, request);
    let next = |of: fn(&Round) -> u32| rounds.last().map_or(0, |last| of(last).saturating_add(1));
    let next = (next(|round| round.id), next(|round| round.slot));
    rounds.extend(load::plan::rounds(request, next));
    rounds
}

/// Returns the reason why a round cannot be run with this driver, if there is one.
pub fn obstacle(round: &Round, driver: &DriverFacts) -> Option<String> {
    let setup = round.task.setup;
    let needs_kernels = round.needs().kernels;
    let gpus = round.flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu);
    let without_kernels =
        gpus.filter(|_| needs_kernels).find_map(|gpu| Some((gpu, driver.kernels_failure_of(gpu)?)));
    if let Some((gpu, why)) = without_kernels {
        let onto = if driver.kernels_failure.is_some() {
            String::new()
        } else {
            format!(" onto GPU {gpu}")
        };
        return Some(format!("the GPU kernels could not be loaded{onto}: {why}"));
    }
    // Access is granted per direction. Without it, a copy engine would go through the host, and a kernel would break
    // its context.
    let needs_reverse = setup.path == Path::Direct
        && (setup.issuer == Side::Destination || round.task.is_both_ways());
    let mut reversed =
        round.flows.iter().filter(|_| needs_reverse).filter_map(|flow| flow.reversed().pair());
    let Pair { source, destination } = reversed.find(|pair| !driver.is_direct(*pair))?;
    Some(format!("GPU {source} may not reach the memory of GPU {destination}, which this needs"))
}

#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod one_gpu_tests;
#[cfg(test)]
mod tests;

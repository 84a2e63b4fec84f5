//! Plans the rounds of a soak, which are repeated until its time is over.

use std::time::Duration;

use crate::bench::compared::PLACES;
use crate::load::patterns::for_hours;
use crate::load::plan::bytes;
use crate::{DEADLINE_BASE, Request, Round, Task};
use model::flow::{Flow, Setup};
use model::load::Pattern;
use model::placement::Engine;

/// Longest round. Chosen: a round that hangs costs little, and a minute has several.
const LONGEST: Duration = Duration::from_secs(10);
/// Shortest round, for soaks of seconds.
const SHORTEST: Duration = Duration::from_millis(250);
/// Rounds of each kind that a soak should have at least.
const TIMES_AT_LEAST: u32 = 4;
/// Time in which every round should have run once.
const ONCE_IN: Duration = Duration::from_secs(60);
/// Bursts of a round. The bytes of each are compared.
const BURSTS: u32 = 2;
/// Factor by which a burst may last longer than planned until the round counts as hung. Rates that fall so far have been
/// seen in the rounds before.
const SLOWER: u32 = 4;

/// Plans the rounds of a soak of this length: load patterns, both ways, copies with the host, and copies by kernels within
/// each GPU, which heat it and its memory.
pub fn soak(request: &Request<'_>, length: Duration) -> Vec<Round> {
    let patterns = for_hours(request).into_iter();
    let mut planned: Vec<(Option<Pattern>, String, Vec<Flow>)> =
        patterns.map(|planned| (Some(planned.pattern), planned.of, planned.flows)).collect();
    let kernels = |gpu: u32| request.driver.kernels_failure_of(gpu).is_none();
    let heated: Vec<Flow> = request
        .usable()
        .map(|device| device.index)
        .filter(|gpu| kernels(*gpu))
        .map(Flow::inside)
        .collect();
    if !heated.is_empty() {
        planned.push((None, String::new(), heated));
    }
    let many = u32::try_from(planned.len()).unwrap_or(u32::MAX).max(1);
    let each = (ONCE_IN / many).min(length / many / TIMES_AT_LEAST).clamp(SHORTEST, LONGEST);
    let rounds = planned.into_iter().zip(0_u32..);
    rounds
        .filter_map(|((pattern, of, flows), number)| {
            let mut setup = Setup::REFERENCE.with_bytes(bytes(request, &flows, PLACES)?);
            if pattern.is_none() {
                setup.engine = Engine::Kernel;
            }
            let action = super::Soak {
                pattern,
                millis: u32::try_from(each.as_millis()).unwrap_or(u32::MAX),
                bursts: BURSTS,
            };
            let longest = DEADLINE_BASE + each * SLOWER;
            let deadline = request.deadline.map_or(longest, |given| given + each);
            Some(Round {
                id: number,
                slot: number,
                flows,
                task: Task::new(setup, action),
                deadline,
                timeline: false,
                name: of,
            })
        })
        .collect()
}

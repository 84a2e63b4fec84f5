//! What is done around a round: where its calls are made, and what it leaves behind.

use std::collections::BTreeSet;

use super::bench::Bench;
use crate::hardware::HardwareError;
use crate::model::flow::Endpoint;
use crate::model::placement::{Path, Side};
use crate::plan::{Action, Round};

impl Bench<'_> {
    /// Waits until the devices of a round have done all that was enqueued on them.
    ///
    /// # Errors
    ///
    /// What the driver says, of that work too.
    pub fn drain(&self, round: &Round) -> Result<(), HardwareError> {
        let gpus: BTreeSet<u32> = round
            .flows
            .iter()
            .flat_map(|flow| flow.ends())
            .filter_map(Endpoint::gpu)
            .collect();
        gpus.into_iter()
            .filter_map(|gpu| self.seat(gpu).ok())
            .try_for_each(|seat| self.driver.drain(seat.device))
    }

    /// Runs something near the GPU that issues a round's copies, where they go through host memory: what the host
    /// touches first is of its own node, and so are the calls that wait for it.
    pub fn near<T>(&self, round: &Round, run: impl FnOnce() -> T) -> T {
        let setup = round.task.setup;
        let pair = round
            .flows
            .first()
            .and_then(|flow| flow.pair())
            .filter(|_| setup.path == Path::Staged);
        let issuer = pair.map(|pair| {
            if setup.issuer == Side::Source {
                pair.source
            } else {
                pair.destination
            }
        });
        let issuer = issuer.or_else(|| with_host(round));
        let seat = issuer
            .and_then(|gpu| self.seat(gpu).ok())
            .filter(|seat| !seat.processors.is_empty());
        let Some(seat) = seat else { return run() };
        self.driver.run_on(&seat.processors);
        let result = run();
        self.driver.run_on(&[]);
        result
    }
}

/// The GPU that a round copies to or from the host, where there is one alone.
fn with_host(round: &Round) -> Option<u32> {
    let is_host = round
        .flows
        .iter()
        .flat_map(|flow| flow.ends())
        .any(|end| end.gpu().is_none())
        && !matches!(round.task.action, Action::Pinning { .. });
    let gpus: BTreeSet<u32> = round
        .flows
        .iter()
        .flat_map(|flow| flow.ends())
        .filter_map(Endpoint::gpu)
        .collect();
    gpus.first().copied().filter(|_| is_host && gpus.len() == 1)
}

//! Work around a round: the processors that make its calls, and the work that it leaves on the devices.

use std::collections::BTreeSet;

use crate::bench::Bench;
use crate::{Action, Round};
use hardware::HardwareError;
use model::flow::Endpoint;
use model::placement::{Path, Side};

impl Bench<'_> {
    /// Waits until the devices of a round have done all work enqueued on them.
    ///
    /// # Errors
    ///
    /// The driver's error, including an error of that work.
    pub fn drain(&self, round: &Round) -> Result<(), HardwareError> {
        let gpus: BTreeSet<u32> =
            round.flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
        gpus.into_iter()
            .filter_map(|gpu| self.open_gpu(gpu).ok())
            .try_for_each(|open_gpu| self.driver.drain(open_gpu.device))
    }

    /// Runs a closure on processors near the GPU that issues a round's copies, if they go through host memory. Memory
    /// that the host touches first is then on that GPU's node, and the calls that wait for it run there too.
    pub fn near<T>(&self, round: &Round, run: impl FnOnce() -> T) -> T {
        let setup = round.task.setup;
        let pair =
            round.flows.first().and_then(|flow| flow.pair()).filter(|_| setup.path == Path::Staged);
        let issuer = pair
            .map(|pair| if setup.issuer == Side::Source { pair.source } else { pair.destination });
        let issuer = issuer.or_else(|| with_host(round));
        let open_gpu = issuer
            .and_then(|gpu| self.open_gpu(gpu).ok())
            .filter(|open_gpu| !open_gpu.processors.is_empty());
        let Some(open_gpu) = open_gpu else {
            return run();
        };
        self.driver.run_on(&open_gpu.processors);
        let result = run();
        self.driver.run_on(&[]);
        result
    }
}

/// Returns the GPU that a round copies to or from the host, if there is exactly one.
fn with_host(round: &Round) -> Option<u32> {
    let is_host = round.flows.iter().flat_map(|flow| flow.ends()).any(|end| end.gpu().is_none())
        && !matches!(round.task.action, Action::Pinning(_));
    let gpus: BTreeSet<u32> =
        round.flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
    gpus.first().copied().filter(|_| is_host && gpus.len() == 1)
}

//! Copies of scattered blocks.

use hardware::{Blocks, Buffer, ErrorKind, HardwareError, Stream};
use model::placement::Engine;
use model::small::BlockWay;

use super::copies::Repeat;
use super::failed;
use super::state::State;

/// Part of a copy's fixed cost that a block of a batch call has. Between 2 x H200 a block of 4 KiB took 1.1 us by a batch
/// call, and a copy costs 2.26 (docs/facts.md).
const BATCH_EACH: f64 = 0.45;
/// The same part for a block that a warp copies. Chosen: hundreds of warps hide it.
const GATHER_EACH: f64 = 0.02;
/// Part of the host's time for a call that a block of a batch call takes. Chosen.
const BATCH_CALL: f64 = 0.2;
/// The version of CUDA that brought batch calls.
const BATCHES_FROM: (u32, u32) = (12, 8);

impl State {
    /// Returns true if the driver has batch calls.
    pub(super) fn has_batches(&self) -> bool {
        let version = self.spec.host.cuda_version.split_once('.');
        let version =
            version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        version.is_some_and(|version: (u32, u32)| version >= BATCHES_FROM)
    }

    /// Enqueues blocks as one copy of all their bytes, with the fixed cost that they have together.
    pub(super) fn scatter(
        &mut self,
        way: BlockWay,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        blocks: Blocks,
    ) -> Result<(), HardwareError> {
        let invalid = |meaning| Err(failed(ErrorKind::Other, "cuMemcpyBatchAsync", meaning, 1));
        if way == BlockWay::Batch && !self.has_batches() {
            return invalid("the driver has no such function");
        }
        if way == BlockWay::Batch && stream.id == 0 {
            return invalid("invalid argument: the legacy default stream");
        }
        let count = f64::from(blocks.count);
        let (engine, each, calls) = match way {
            BlockWay::Loop => (Engine::Copy, count, count),
            BlockWay::Batch => (Engine::Copy, count * BATCH_EACH, count * BATCH_CALL),
            BlockWay::Gather => (Engine::Kernel, count * GATHER_EACH, 1.0),
        };
        let repeat = Repeat {
            bytes: 1.0,
            each: each.max(1.0),
        };
        self.copy(engine, stream, destination, source, blocks.total(), repeat)?;
        // The copy took the time of one call.
        self.clock_ns += self.spec.speeds.copy_call_us * 1e3 * (calls - 1.0).max(0.0);
        Ok(())
    }
}

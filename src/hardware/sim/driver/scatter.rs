//! Copies of scattered blocks.

use hardware::{Blocks, Buffer, ErrorKind, HardwareError, Stream};
use model::placement::Engine;
use model::small::BlockWay;

use super::copies::Repeat;
use super::failed;
use super::state::State;

/// Part of a copy's fixed cost that a block of a batch call has. Between 2 x H200 a block of 4 KiB took 1.1 us by a batch
/// call, and a copy costs 2.26 (docs/dev/facts.md).
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

    /// Enqueues blocks: a copy for each, or one of a kernel.
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
        if way == BlockWay::Gather {
            let repeat =
                Repeat { each: (f64::from(blocks.count) * GATHER_EACH).max(1.0), ..Repeat::ONCE };
            let total = blocks.total();
            return self.copy(Engine::Kernel, stream, (destination, source), total, repeat);
        }
        let part = |state: &mut Self, whole, at| {
            let part = state.memory.part(whole, at, blocks.bytes);
            part.map_err(|_| failed(ErrorKind::Other, "cuMemcpyAsync", "invalid argument", 1))
        };
        blocks.offsets().try_for_each(|at| {
            let ends = (part(self, destination, at)?, part(self, source, at)?);
            self.block(way, stream, ends, blocks.bytes)
        })
    }

    /// Enqueues one block of a loop or of a batch call.
    pub(super) fn block(
        &mut self,
        way: BlockWay,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let repeat = match way {
            BlockWay::Loop | BlockWay::Gather => Repeat::ONCE,
            BlockWay::Batch => Repeat { each: BATCH_EACH, call: BATCH_CALL, ..Repeat::ONCE },
        };
        self.copy(Engine::Copy, stream, (destination, source), bytes, repeat)
    }
}

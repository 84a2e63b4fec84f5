//! Whether NCCL's buffers fit into /dev/shm.

use model::units::{Bytes, MIB};

use super::between::Machine;

/// Bytes of the buffers of one connection in one channel: 512 KiB for LL, 4800 KiB for LL128, 4 MiB for Simple
/// (src/init.cc, src/include/device.h, NCCL 2.30.7).
const CONNECTION: u64 = (512 + 4800 + 4096) << 10;

/// Fewest channels of a ring: NCCL doubles each one that it finds (src/graph/connect.cc).
const CHANNELS: u64 = 2;

/// The room that a ring of these GPUs takes in /dev/shm at least, beside what is free.
pub(super) enum Room {
    Enough(String),
    TooSmall(String),
    NotKnown,
}

pub(super) fn room(machine: &Machine<'_>) -> Room {
    let Some(free) = machine.host.shm_free_bytes.get() else {
        return Room::NotKnown;
    };
    let gpus = machine.gpus.len() as u64;
    let needed = Bytes(gpus * CHANNELS * CONNECTION);
    let words = format!(
        "a ring of {gpus} GPUs takes {} MiB at least, {} MiB are free",
        needed.0.div_ceil(MIB),
        free.0 / MIB
    );
    match free < needed {
        true => Room::TooSmall(format!("/dev/shm is too small: {words}")),
        false => Room::Enough(format!("/dev/shm has room: {words}")),
    }
}

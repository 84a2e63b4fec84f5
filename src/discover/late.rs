//! What is read apart from all the other facts: who the GPUs are, before the driver starts, and what nobody needs
//! before copies run, while they run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::{not_started, read_slowly, seconds, start, unread_row, without_telemetry};
use crate::hardware::{ErrorKind, GpuGroup, HardwareError, Telemetry};
use crate::model::reading::{Reading, Unknown};
use crate::model::snapshot::{Gpu, GpuPair, SlowFact, Snapshot};

/// The GPUs as NVML names them, and nothing else: enough to choose some of them. Without any, where NVML does not say.
pub fn identified(telemetry: &Arc<dyn Telemetry>, limit: Duration) -> Snapshot {
    let (answer, inbox) = mpsc::channel();
    let telemetry = Arc::clone(telemetry);
    let started = start("identity", move || {
        let gpu = |index| {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            telemetry.read_gpu(GpuGroup::Identity, &mut gpu);
            gpu
        };
        // Nobody listens any more when it took too long.
        let _ = answer.send((0..telemetry.gpu_count().unwrap_or(0)).map(gpu).collect());
    });
    let gpus = started.ok().and_then(|()| inbox.recv_timeout(limit).ok()).unwrap_or_default();
    Snapshot { gpus, ..without_telemetry(&HardwareError::new(ErrorKind::Other, "not read yet")) }
}

/// Facts of pairs that are read while copies run.
pub struct Late {
    inbox: Receiver<GpuPair>,
    deadline: Instant,
    limit: Duration,
    problems: Vec<String>,
}

impl Late {
    /// Begins to read what was left out of these pairs, each row on a thread of its own, for at most about `limit`.
    pub fn begin(telemetry: &Arc<dyn Telemetry>, pairs: &[GpuPair], limit: Duration) -> Self {
        let (answer, inbox) = mpsc::channel();
        let mut problems = Vec::new();
        let left_out = pairs.iter().filter(|pair| is_left_out(pair)).cloned().collect::<Vec<_>>();
        for row in left_out.chunk_by(|one, other| one.source == other.source).map(<[GpuPair]>::to_vec) {
            let (telemetry, answer_of_row) = (Arc::clone(telemetry), answer.clone());
            let unread = row.clone();
            let read = move || {
                for mut pair in row {
                    read_slowly(&*telemetry, SlowFact::ALL, &mut pair);
                    // Nobody listens any more when it took too long.
                    let _ = answer_of_row.send(pair);
                }
            };
            if let Err(error) = start("peer access", read) {
                unread.into_iter().for_each(|pair| drop(answer.send(without(pair, &not_started(&error)))));
                problems.push(error.message);
            }
        }
        Self { inbox, deadline: Instant::now() + limit, limit, problems }
    }

    /// These pairs with what was read; what did not come in time has that reason. Beside them what went wrong, a
    /// sentence each.
    pub fn end(self, pairs: &[GpuPair]) -> (Vec<GpuPair>, Vec<String>) {
        let Self { inbox, deadline, limit, mut problems } = self;
        let next = || inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let mut read: BTreeMap<_, _> =
            std::iter::from_fn(next).map(|pair| ((pair.source, pair.destination), pair)).collect();
        let why = format!("no answer within {}", seconds(limit));
        let mut missing: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let mut take = |pair: &GpuPair| match read.remove(&(pair.source, pair.destination)) {
            Some(read) => read,
            None if is_left_out(pair) => {
                missing.entry(pair.source).or_default().push(pair.destination.to_string());
                without(pair.clone(), &Unknown::Failed(why.clone()))
            }
            None => pair.clone(),
        };
        let pairs = pairs.iter().map(&mut take).collect();
        problems.extend(missing.into_iter().map(|(source, peers)| unread_row(source, &peers, &why)));
        (pairs, problems)
    }
}

fn is_left_out(pair: &GpuPair) -> bool {
    pair.p2p_read.unknown() == Some(&SlowFact::PeerAccess.not_read())
}

/// A pair of which this could not be read.
fn without(pair: GpuPair, why: &Unknown) -> GpuPair {
    let unknown = || Reading::Unknown(why.clone());
    GpuPair { p2p_read: unknown(), p2p_write: unknown(), p2p_atomics: unknown(), p2p_pci: unknown(), ..pair }
}

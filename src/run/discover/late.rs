//! Facts that are read earlier or later than all others. The identity of the GPUs is read before the driver starts.
//! Facts that nobody needs before copies run are read while they run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::collected::{problem_of, unread_row};
use super::{not_started, read_slowly, seconds, start, without_telemetry};
use hardware::{ErrorKind, GpuGroup, HardwareError, Telemetry};
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, GpuPair, NvLink, SlowFact, Snapshot};

/// Returns the GPUs with only their identity from NVML, by which `--gpus` chooses. Returns no GPUs if NVML does not
/// answer.
pub fn identified(telemetry: &Arc<dyn Telemetry>, limit: Duration) -> Snapshot {
    let (answer, inbox) = mpsc::channel();
    let telemetry = Arc::clone(telemetry);
    let started = start("identity", move || {
        let gpu = |index| {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            telemetry.read_gpu(GpuGroup::Identity, &mut gpu);
            gpu
        };
        // The receiver is gone if reading took too long.
        let _ = answer.send((0..telemetry.gpu_count().unwrap_or(0)).map(gpu).collect());
    });
    let gpus = started.ok().and_then(|()| inbox.recv_timeout(limit).ok()).unwrap_or_default();
    Snapshot { gpus, ..without_telemetry(&HardwareError::new(ErrorKind::Other, "not read yet")) }
}

/// The index of a GPU and its NVLinks.
type LinksOfGpu = (u32, Vec<NvLink>);

/// The threads that read facts while copies run, and the answers so far.
pub struct Late {
    inbox: Receiver<Answer>,
    deadline: Instant,
    limit: Duration,
    /// Pairs received so far.
    pairs: BTreeMap<(u32, u32), GpuPair>,
    links: BTreeMap<u32, Vec<NvLink>>,
    problems: Vec<String>,
}

/// A result sent by a thread.
enum Answer {
    Pair(Box<GpuPair>),
    Links(LinksOfGpu),
}

/// The facts that [`Late`] read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LateFacts {
    /// All pairs of the snapshot.
    pub pairs: Vec<GpuPair>,
    /// GPUs whose links were read late, each with all its links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinksOfGpu>,
    /// Problems, a sentence each.
    pub problems: Vec<String>,
}

impl LateFacts {
    /// Puts these facts and problems into the snapshot.
    pub fn put_into(self, snapshot: &mut Snapshot) {
        snapshot.pairs = self.pairs;
        for (index, links) in self.links {
            if let Some(gpu) = snapshot.gpus.iter_mut().find(|gpu| gpu.index == index) {
                gpu.nvlinks = Reading::Known(links);
            }
        }
        snapshot.problems.extend(self.problems);
    }
}

impl Late {
    /// Starts reading the facts that were left out of this snapshot, for at most about `limit`. The links of each GPU
    /// and each row of pairs get a thread of their own. The links come first, so that their counters are read before
    /// the copies.
    pub fn begin(telemetry: &Arc<dyn Telemetry>, snapshot: &Snapshot, limit: Duration) -> Self {
        let (answer, inbox) = mpsc::channel();
        let mut problems = Vec::new();
        for gpu in snapshot.gpus.iter().filter(|gpu| gpu.has_link_errors_left_out()) {
            let (telemetry, answer_of_gpu, mut read) =
                (Arc::clone(telemetry), answer.clone(), gpu.clone());
            let work = move || {
                telemetry.read_gpu(GpuGroup::LinkErrors, &mut read);
                if let Reading::Known(links) = read.nvlinks {
                    // The receiver is gone if reading took too long, here and below.
                    let _ = answer_of_gpu.send(Answer::Links((read.index, links)));
                }
            };
            if let Err(error) = start("links", work) {
                let _ = answer
                    .send(Answer::Links((gpu.index, links_without(gpu, &not_started(&error)))));
                problems.push(error.message);
            }
        }
        let left_out =
            snapshot.pairs.iter().filter(|pair| is_left_out(pair)).cloned().collect::<Vec<_>>();
        for row in
            left_out.chunk_by(|one, other| one.source == other.source).map(<[GpuPair]>::to_vec)
        {
            let (telemetry, answer_of_row) = (Arc::clone(telemetry), answer.clone());
            let unread = row.clone();
            let read = move || {
                for mut pair in row {
                    read_slowly(&*telemetry, SlowFact::ALL, &mut pair);
                    let _ = answer_of_row.send(Answer::Pair(Box::new(pair)));
                }
            };
            if let Err(error) = start("peer access", read) {
                let unread = unread
                    .into_iter()
                    .map(|pair| Answer::Pair(Box::new(without(pair, &not_started(&error)))));
                unread.for_each(|unread| drop(answer.send(unread)));
                problems.push(error.message);
            }
        }
        let (pairs, links) = (BTreeMap::new(), BTreeMap::new());
        Self { inbox, deadline: Instant::now() + limit, limit, pairs, links, problems }
    }

    /// Waits until the links that were left out of this snapshot are read, and puts them into it. For callers that
    /// need them before anything is copied.
    pub fn wait_for_links(&mut self, snapshot: &mut Snapshot) {
        let left_out = snapshot.gpus.iter_mut().filter(|gpu| gpu.has_link_errors_left_out());
        for gpu in left_out {
            while !self.links.contains_key(&gpu.index) && self.receive() {}
            if let Some(links) = self.links.get(&gpu.index) {
                gpu.nvlinks = Reading::Known(links.clone());
            }
        }
    }

    /// Receives the next answer. Returns true if one came in time.
    fn receive(&mut self) -> bool {
        match self.inbox.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(Answer::Pair(pair)) => {
                drop(self.pairs.insert((pair.source, pair.destination), *pair))
            }
            Ok(Answer::Links((gpu, links))) => drop(self.links.insert(gpu, links)),
            Err(_) => return false,
        }
        true
    }

    /// Returns the facts that were read for this snapshot. Facts that did not arrive in time are
    /// unknown with that reason.
    pub fn end(mut self, snapshot: &Snapshot) -> LateFacts {
        while self.receive() {}
        let Self { limit, mut pairs, mut links, mut problems, .. } = self;
        let why = format!("no answer within {}", seconds(limit));
        let unread = || Unknown::Failed(why.clone());
        let mut missing: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let mut take = |pair: &GpuPair| match pairs.remove(&(pair.source, pair.destination)) {
            Some(read) => read,
            None if is_left_out(pair) => {
                missing.entry(pair.source).or_default().push(pair.destination.to_string());
                without(pair.clone(), &unread())
            }
            None => pair.clone(),
        };
        let pairs = snapshot.pairs.iter().map(&mut take).collect();
        for gpu in snapshot.gpus.iter().filter(|gpu| gpu.has_link_errors_left_out()) {
            links.entry(gpu.index).or_insert_with(|| {
                problems.extend(problem_of(gpu, &[GpuGroup::LinkErrors], &why));
                links_without(gpu, &unread())
            });
        }
        problems
            .extend(missing.into_iter().map(|(source, peers)| unread_row(source, &peers, &why)));
        LateFacts { pairs, links: links.into_iter().collect(), problems }
    }
}

fn is_left_out(pair: &GpuPair) -> bool {
    pair.p2p_read.unknown() == Some(&SlowFact::PeerAccess.not_read())
}

/// Returns the links of a GPU with their error counters unknown, for this reason.
fn links_without(gpu: &Gpu, why: &Unknown) -> Vec<NvLink> {
    let unknown = || Reading::Unknown(why.clone());
    let without = |link: NvLink| NvLink {
        crc_errors: unknown(),
        replay_errors: unknown(),
        recovery_errors: unknown(),
        packet_errors: Reading::Unknown(why.clone()),
        fec_histogram: Reading::Unknown(why.clone()),
        ..link
    };
    gpu.nvlinks.known().cloned().unwrap_or_default().into_iter().map(without).collect()
}

/// Returns the pair with its left-out facts unknown, for this reason.
fn without(pair: GpuPair, why: &Unknown) -> GpuPair {
    let common_ancestor = match pair.common_ancestor.unknown() {
        Some(left_out) if *left_out == GpuPair::ancestor_not_asked() => {
            Reading::Unknown(why.clone())
        }
        _ => pair.common_ancestor,
    };
    let unknown = || Reading::Unknown(why.clone());
    let (p2p_read, p2p_write, p2p_atomics, p2p_pci) = (unknown(), unknown(), unknown(), unknown());
    GpuPair { common_ancestor, p2p_read, p2p_write, p2p_atomics, p2p_pci, ..pair }
}

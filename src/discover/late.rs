//! What is read apart from all the other facts: who the GPUs are, before the driver starts, and what nobody needs
//! before copies run, while they run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::{not_started, problem_of, read_slowly, seconds, start, unread_row, without_telemetry};
use crate::hardware::{ErrorKind, GpuGroup, HardwareError, Telemetry};
use crate::model::reading::{Reading, Unknown};
use crate::model::snapshot::{Gpu, GpuPair, NvLink, SlowFact, Snapshot};

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
    let gpus = started
        .ok()
        .and_then(|()| inbox.recv_timeout(limit).ok())
        .unwrap_or_default();
    Snapshot {
        gpus,
        ..without_telemetry(&HardwareError::new(ErrorKind::Other, "not read yet"))
    }
}

/// A GPU by its index, with its NVLinks.
pub type LinksOfGpu = (u32, Vec<NvLink>);

/// Facts that are read while copies run.
pub struct Late {
    inbox: Receiver<Answer>,
    deadline: Instant,
    limit: Duration,
    /// What came so far.
    pairs: BTreeMap<(u32, u32), GpuPair>,
    links: BTreeMap<u32, Vec<NvLink>>,
    problems: Vec<String>,
}

/// What a thread hands in.
enum Answer {
    Pair(Box<GpuPair>),
    Links(LinksOfGpu),
}

/// What was read late.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LateFacts {
    /// All pairs.
    pub pairs: Vec<GpuPair>,
    /// The GPUs whose links were read late, with all of them.
    pub links: Vec<LinksOfGpu>,
    /// What went wrong, a sentence each.
    pub problems: Vec<String>,
}

impl LateFacts {
    /// Puts it in its place. The problems are added.
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
    /// Begins to read what was left out of this snapshot, the links of each GPU and each row of pairs on a thread of its
    /// own, for at most about `limit`. The links come first: their counters are those before the copies.
    pub fn begin(telemetry: &Arc<dyn Telemetry>, snapshot: &Snapshot, limit: Duration) -> Self {
        let (answer, inbox) = mpsc::channel();
        let mut problems = Vec::new();
        for gpu in snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu.has_link_errors_left_out())
        {
            let (telemetry, answer_of_gpu, mut read) =
                (Arc::clone(telemetry), answer.clone(), gpu.clone());
            let work = move || {
                telemetry.read_gpu(GpuGroup::LinkErrors, &mut read);
                if let Reading::Known(links) = read.nvlinks {
                    // Nobody listens any more when it took too long, here and below.
                    let _ = answer_of_gpu.send(Answer::Links((read.index, links)));
                }
            };
            if let Err(error) = start("links", work) {
                let _ = answer.send(Answer::Links((
                    gpu.index,
                    links_without(gpu, &not_started(&error)),
                )));
                problems.push(error.message);
            }
        }
        let left_out = snapshot
            .pairs
            .iter()
            .filter(|pair| is_left_out(pair))
            .cloned()
            .collect::<Vec<_>>();
        for row in left_out
            .chunk_by(|one, other| one.source == other.source)
            .map(<[GpuPair]>::to_vec)
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
        Self {
            inbox,
            deadline: Instant::now() + limit,
            limit,
            pairs,
            links,
            problems,
        }
    }

    /// Waits until the links that were left out of this snapshot are read, and puts them into it: for where that must
    /// be before anything is copied.
    pub fn wait_for_links(&mut self, snapshot: &mut Snapshot) {
        let left_out = snapshot
            .gpus
            .iter_mut()
            .filter(|gpu| gpu.has_link_errors_left_out());
        for gpu in left_out {
            while !self.links.contains_key(&gpu.index) && self.receive() {}
            if let Some(links) = self.links.get(&gpu.index) {
                gpu.nvlinks = Reading::Known(links.clone());
            }
        }
    }

    /// Takes the next answer; whether one came in time.
    fn receive(&mut self) -> bool {
        match self
            .inbox
            .recv_timeout(self.deadline.saturating_duration_since(Instant::now()))
        {
            Ok(Answer::Pair(pair)) => {
                drop(self.pairs.insert((pair.source, pair.destination), *pair))
            }
            Ok(Answer::Links((gpu, links))) => drop(self.links.insert(gpu, links)),
            Err(_) => return false,
        }
        true
    }

    /// What was read of this snapshot; what did not come in time has that reason.
    pub fn end(mut self, snapshot: &Snapshot) -> LateFacts {
        while self.receive() {}
        let Self {
            limit,
            mut pairs,
            mut links,
            mut problems,
            ..
        } = self;
        let why = format!("no answer within {}", seconds(limit));
        let unread = || Unknown::Failed(why.clone());
        let mut missing: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let mut take = |pair: &GpuPair| match pairs.remove(&(pair.source, pair.destination)) {
            Some(read) => read,
            None if is_left_out(pair) => {
                missing
                    .entry(pair.source)
                    .or_default()
                    .push(pair.destination.to_string());
                without(pair.clone(), &unread())
            }
            None => pair.clone(),
        };
        let pairs = snapshot.pairs.iter().map(&mut take).collect();
        for gpu in snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu.has_link_errors_left_out())
        {
            links.entry(gpu.index).or_insert_with(|| {
                problems.extend(problem_of(gpu, &[GpuGroup::LinkErrors], &why));
                links_without(gpu, &unread())
            });
        }
        problems.extend(
            missing
                .into_iter()
                .map(|(source, peers)| unread_row(source, &peers, &why)),
        );
        LateFacts {
            pairs,
            links: links.into_iter().collect(),
            problems,
        }
    }
}

fn is_left_out(pair: &GpuPair) -> bool {
    pair.p2p_read.unknown() == Some(&SlowFact::PeerAccess.not_read())
}

/// The links of a GPU whose error counters could not be read.
fn links_without(gpu: &Gpu, why: &Unknown) -> Vec<NvLink> {
    let unknown = || Reading::Unknown(why.clone());
    let without = |link: NvLink| NvLink {
        crc_errors: unknown(),
        replay_errors: unknown(),
        recovery_errors: unknown(),
        ..link
    };
    gpu.nvlinks
        .known()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .map(without)
        .collect()
}

/// A pair of which this could not be read.
fn without(pair: GpuPair, why: &Unknown) -> GpuPair {
    let common_ancestor = match pair.common_ancestor.unknown() {
        Some(left_out) if *left_out == GpuPair::ancestor_not_asked() => {
            Reading::Unknown(why.clone())
        }
        _ => pair.common_ancestor,
    };
    let unknown = || Reading::Unknown(why.clone());
    let (p2p_read, p2p_write, p2p_atomics, p2p_pci) = (unknown(), unknown(), unknown(), unknown());
    GpuPair {
        common_ancestor,
        p2p_read,
        p2p_write,
        p2p_atomics,
        p2p_pci,
        ..pair
    }
}

//! Hands memory from one process to another. Each of the two processes takes steps that the parent asks for: one offers
//! memory with a pattern in it, the other opens it, checks the pattern and writes another, and the first checks that.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::Outcome;
use super::bench::Bench;
use super::contents::Check;
use super::figures::without_figures;
use hardware::{Buffer, Device, ErrorKind, Handle, HardwareError, SharingFacts, Stream};
use model::measurement::{Obstacle, Rung, Sharing, Status, Verified};
use model::placement::Engine;
use model::status::Ending;
use plan::{Action, Round};

/// EPERM and ENOSYS.
const NOT_PERMITTED: u32 = 1;
const NO_SUCH_CALL: u32 = 38;

/// A step of one of the two processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Creates memory with a pattern, and a handle of it.
    Offer { rung: Rung, gpu: u32, bytes: u64 },
    /// Opens the memory, checks its pattern and writes another.
    Take {
        rung: Rung,
        gpu: u32,
        bytes: u64,
        handle: Vec<u8>,
        seed: u64,
    },
    /// Checks the pattern that the other process wrote.
    Confirm { seed: u64 },
    /// Gives back what was offered or taken.
    Leave,
}

/// The answer to a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Taken {
    Offered {
        handle: Vec<u8>,
        seed: u64,
        /// Size of the memory, which the driver may have rounded up.
        bytes: u64,
    },
    Opened {
        open_us: f64,
        /// Check of the owner's pattern; none for an event.
        check: Option<Check>,
        /// Seed of the pattern that was written.
        seed: u64,
    },
    Confirmed {
        check: Option<Check>,
    },
    Left,
    Refused {
        refusal: Box<Refusal>,
    },
}

/// A step that was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// True if the process that has the memory was refused, not the one that opens it.
    pub at_owner: bool,
    pub error: HardwareError,
    /// The facts of that process.
    pub facts: SharingFacts,
}

/// What both processes found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handed {
    /// Microseconds until the other process could use it.
    pub open_us: f64,
    /// The checks of both processes.
    pub checks: Vec<Check>,
}

/// The side of one process.
pub struct Sharer<'b, 'd> {
    bench: &'b Bench<'d>,
    held: RefCell<Option<Held>>,
}

/// Memory that a process offers or has taken. None for an event.
struct Held {
    buffer: Option<Buffer>,
    bytes: u64,
    /// The descriptor that the other process fetches by its number, which must stay open until then.
    _fetched: Option<OwnedFd>,
}

impl<'b, 'd> Sharer<'b, 'd> {
    pub const fn new(bench: &'b Bench<'d>) -> Self {
        Self {
            bench,
            held: RefCell::new(None),
        }
    }

    /// Takes a step. A descriptor comes with a step that opens memory by it, and goes with an offer.
    pub fn step(&self, step: Step, descriptor: Option<OwnedFd>) -> (Taken, Option<OwnedFd>) {
        let at_owner = !matches!(step, Step::Take { .. });
        let taken = match step {
            Step::Offer { rung, gpu, bytes } => self.offer(rung, gpu, bytes),
            Step::Take {
                rung,
                gpu,
                bytes,
                handle,
                seed,
            } => {
                let handle = Handle {
                    bytes: handle,
                    descriptor,
                };
                self.take(rung, gpu, bytes, handle, seed)
                    .map(|taken| (taken, None))
            }
            Step::Confirm { seed } => self.confirm(seed).map(|taken| (taken, None)),
            Step::Leave => self.leave().map(|()| (Taken::Left, None)),
        };
        taken.unwrap_or_else(|error| (self.refused(at_owner, error), None))
    }

    /// Returns the answer to a step that was refused, with the facts of this process.
    pub fn refused(&self, at_owner: bool, error: HardwareError) -> Taken {
        Taken::Refused {
            refusal: Box::new(Refusal {
                at_owner,
                error,
                facts: self.bench.driver.sharing_facts(),
            }),
        }
    }

    fn device(&self, gpu: u32) -> Result<Device, HardwareError> {
        self.bench.open_gpu(gpu).map(|open_gpu| open_gpu.device)
    }

    fn offer(
        &self,
        rung: Rung,
        gpu: u32,
        bytes: u64,
    ) -> Result<(Taken, Option<OwnedFd>), HardwareError> {
        let (driver, device) = (self.bench.driver, self.device(gpu)?);
        let seed = self.bench.seeds.next();
        let (buffer, handle) = if rung == Rung::LegacyEvent {
            let (event, handle) = driver.share_event(device)?;
            driver.record(event, Stream::default_of(device))?;
            (None, handle)
        } else {
            let (buffer, handle) = driver.share(device, rung, bytes)?;
            (Some(buffer), handle)
        };
        let bytes = buffer.map_or(bytes, |buffer| buffer.bytes);
        let Handle {
            bytes: handle,
            descriptor,
        } = handle;
        let (goes, fetched) = if rung.sends_descriptor() {
            (descriptor, None)
        } else {
            (None, descriptor)
        };
        *self.held.borrow_mut() = Some(Held {
            buffer,
            bytes,
            _fetched: fetched,
        });
        if let Some(buffer) = buffer {
            driver.fill(buffer, bytes, seed)?;
            driver.synchronize(Stream::default_of(device))?;
        }
        let offered = Taken::Offered {
            handle,
            seed,
            bytes,
        };
        Ok((offered, goes))
    }

    fn take(
        &self,
        rung: Rung,
        gpu: u32,
        bytes: u64,
        handle: Handle,
        seed: u64,
    ) -> Result<Taken, HardwareError> {
        let (driver, device) = (self.bench.driver, self.device(gpu)?);
        let began = driver.now();
        let since = || driver.now().saturating_sub(began).as_secs_f64() * 1e6;
        let held = |buffer| Held {
            buffer,
            bytes,
            _fetched: None,
        };
        if rung == Rung::LegacyEvent {
            let event = driver.open_event(device, handle)?;
            let open_us = since();
            *self.held.borrow_mut() = Some(held(None));
            let stream = Stream::default_of(device);
            driver.wait(stream, event)?;
            driver.synchronize(stream)?;
            return Ok(Taken::Opened {
                open_us,
                check: None,
                seed,
            });
        }
        let buffer = driver.open_shared(device, rung, handle, bytes)?;
        let open_us = since();
        *self.held.borrow_mut() = Some(held(Some(buffer)));
        let answer = self.bench.seeds.next();
        let check = self.exchange(gpu, buffer, bytes, seed, answer)?;
        Ok(Taken::Opened {
            open_us,
            check: Some(check),
            seed: answer,
        })
    }

    /// Checks the pattern of the other process by a kernel of this one's GPU, and writes another.
    fn exchange(
        &self,
        gpu: u32,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
        answer: u64,
    ) -> Result<Check, HardwareError> {
        let (driver, open_gpu) = (self.bench.driver, self.bench.open_gpu(gpu)?);
        let stream = Stream::default_of(open_gpu.device);
        if buffer.device().is_some() {
            let counted = driver.check(&[(buffer, seed)], bytes)?;
            driver.fill(buffer, bytes, answer)?;
            driver.synchronize(stream)?;
            return Ok(counted.first().map_or_else(no_count, Check::of));
        }
        // A kernel reads memory of the host, and a copy engine writes it.
        let (mine, back) = (open_gpu.receive, open_gpu.send);
        driver.poison(mine, bytes, seed)?;
        driver.copy(Engine::Kernel, stream, mine, buffer, bytes)?;
        driver.synchronize(stream)?;
        let counted = driver.check(&[(mine, seed)], bytes)?;
        driver.fill(back, bytes, answer)?;
        driver.copy(Engine::Copy, stream, buffer, back, bytes)?;
        driver.synchronize(stream)?;
        Ok(counted.first().map_or_else(no_count, Check::of))
    }

    fn confirm(&self, seed: u64) -> Result<Taken, HardwareError> {
        let held = self.held.borrow();
        let held = held
            .as_ref()
            .and_then(|held| Some((held.buffer?, held.bytes)));
        let Some((buffer, bytes)) = held else {
            return Ok(Taken::Confirmed { check: None });
        };
        let counted = self.bench.driver.check(&[(buffer, seed)], bytes)?;
        let check = counted.first().map_or_else(no_count, Check::of);
        Ok(Taken::Confirmed { check: Some(check) })
    }

    fn leave(&self) -> Result<(), HardwareError> {
        let held = self.held.borrow_mut().take();
        let Some(Held {
            buffer: Some(buffer),
            ..
        }) = held
        else {
            return Ok(());
        };
        self.bench.driver.free(buffer)
    }
}

fn no_count() -> Check {
    Check::inconclusive("the check counted nothing")
}

/// Returns the facts that explain a refusal.
fn obstacles(rung: Rung, bytes: u64, refusal: &Refusal) -> Vec<Obstacle> {
    let Refusal {
        at_owner,
        error,
        facts,
    } = refusal;
    let holds = |fact: Option<bool>, obstacle| (fact == Some(true)).then_some(obstacle);
    let in_the_way = |obstacles: Vec<Option<Obstacle>>| obstacles.into_iter().flatten().collect();
    match error.kind {
        ErrorKind::Impossible => return vec![Obstacle::NotOffered],
        ErrorKind::Unsupported if error.code.is_none() => return vec![Obstacle::DriverTooOld],
        // Without a channel, no limit of files would change the answer.
        _ if rung == Rung::Fabric && facts.imex_channels == Some(0) => {
            return vec![Obstacle::NoImexChannel];
        }
        _ if facts.no_file_left == Some(true) => return vec![Obstacle::OpenFiles],
        _ => {}
    }
    let confined = || {
        vec![
            holds(facts.wsl, Obstacle::Wsl),
            holds(facts.own_ipc_namespace, Obstacle::IpcNamespace),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]
    };
    match rung {
        Rung::Fabric => Vec::new(),
        Rung::SharedMemory if *at_owner => {
            let full = facts.shared_memory_bytes.is_some_and(|free| free < bytes);
            in_the_way(vec![match facts.shared_memory {
                Some(false) => Some(Obstacle::NoSharedMemory),
                _ => full.then_some(Obstacle::SharedMemoryFull),
            }])
        }
        Rung::SharedMemory => Vec::new(),
        Rung::Pidfd if !at_owner && error.code == Some(NOT_PERMITTED) => in_the_way(vec![
            facts
                .ptrace_scope
                .filter(|scope| *scope > 0)
                .map(|_| Obstacle::Yama),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]),
        Rung::Pidfd if !at_owner && error.code == Some(NO_SUCH_CALL) => {
            vec![if facts.seccomp_filter == Some(true) {
                Obstacle::Seccomp
            } else {
                Obstacle::KernelTooOld
            }]
        }
        Rung::HostNode => in_the_way(vec![
            (facts.numa_policy == Some(false)).then_some(Obstacle::NumaRefused),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]),
        Rung::LegacyMemory | Rung::LegacyEvent | Rung::Descriptor | Rung::Pidfd => {
            in_the_way(confined())
        }
    }
}

/// Returns true if the platform does not have this way, so that there is nothing to mend.
fn is_lack(rung: Rung, obstacles: &[Obstacle]) -> bool {
    obstacles.iter().any(|obstacle| match obstacle {
        Obstacle::NotOffered
        | Obstacle::DriverTooOld
        | Obstacle::NoImexChannel
        | Obstacle::KernelTooOld => true,
        // NVIDIA, CUDA on WSL user guide: known limitations.
        Obstacle::Wsl => matches!(rung, Rung::LegacyMemory | Rung::LegacyEvent),
        _ => false,
    })
}

/// Returns the worse of two results.
const fn worse(one: Verified, other: Verified) -> Verified {
    match (one, other) {
        (Verified::Corrupt, _) | (_, Verified::Corrupt) => Verified::Corrupt,
        (Verified::Dropped, _) | (_, Verified::Dropped) => Verified::Dropped,
        (Verified::Inconclusive, _) | (_, Verified::Inconclusive) => Verified::Inconclusive,
        (Verified::Ok, _) | (_, Verified::Ok) => Verified::Ok,
        _ => Verified::Skipped,
    }
}

/// Returns the cell of a round.
pub(super) fn cell(round: &Round, outcome: &Outcome) -> Option<Sharing> {
    let Action::Share { rung, view } = round.task.action else {
        return None;
    };
    let flow = round.flows.first()?;
    let (owner, user) = (flow.from.gpu()?, flow.to.gpu()?);
    let bytes = round.task.setup.bytes;
    let mut cell = Sharing::blank(owner, user, view, rung, bytes);
    match outcome {
        Outcome::Handed { handed } => {
            cell.works = Some(true);
            cell.open_us = Some(handed.open_us);
            let checks = handed.checks.iter().map(|check| check.verified);
            cell.verified = checks.fold(Verified::Skipped, worse);
        }
        Outcome::Refused { refusal } => {
            cell.obstacles = obstacles(rung, bytes.0, refusal);
            let side = if refusal.at_owner {
                "the process that has it"
            } else {
                "the process that opens it"
            };
            let why = format!("{side} was refused: {}", refusal.error.message);
            if is_lack(rung, &cell.obstacles) {
                cell.ending = Ending {
                    not_supported: true,
                    ..Ending::without(Status::Skipped, Some(why))
                };
            } else {
                cell.works = Some(false);
                cell.refused = Some(why);
            }
        }
        other => cell.ending = without_figures(other),
    }
    Some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(at_owner: bool, code: Option<u32>, facts: SharingFacts) -> Refusal {
        let error = HardwareError::new(ErrorKind::Other, "refused");
        Refusal {
            at_owner,
            error: code.map_or(error.clone(), |code| error.with_code(code)),
            facts,
        }
    }

    #[test]
    fn a_refusal_is_explained_by_facts_that_were_read_and_by_nothing_else() {
        let known = |rung, refusal: &Refusal| obstacles(rung, 4 << 20, refusal);
        let free = SharingFacts {
            own_ipc_namespace: Some(false),
            seccomp_filter: Some(false),
            ptrace_scope: Some(0),
            imex_channels: Some(2),
            shared_memory_bytes: Some(1 << 30),
            shared_memory: Some(true),
            numa_policy: Some(true),
            no_file_left: Some(false),
            wsl: Some(false),
        };
        for rung in Rung::ALL {
            for at_owner in [true, false] {
                for facts in [free.clone(), SharingFacts::default()] {
                    let none = known(rung, &refusal(at_owner, Some(1), facts));
                    assert_eq!(none, [], "{rung}");
                }
            }
        }
        let with = |change: fn(&mut SharingFacts)| {
            let mut facts = free.clone();
            change(&mut facts);
            facts
        };
        let yama = with(|facts| facts.ptrace_scope = Some(1));
        assert_eq!(
            known(Rung::Pidfd, &refusal(false, Some(1), yama.clone())),
            [Obstacle::Yama]
        );
        assert_eq!(
            known(Rung::Pidfd, &refusal(false, Some(22), yama.clone())),
            []
        );
        assert_eq!(known(Rung::Descriptor, &refusal(false, Some(1), yama)), []);
        assert_eq!(
            known(Rung::Pidfd, &refusal(false, Some(38), free.clone())),
            [Obstacle::KernelTooOld]
        );
        let channels = with(|facts| facts.imex_channels = Some(0));
        assert_eq!(
            known(Rung::Fabric, &refusal(true, Some(800), channels)),
            [Obstacle::NoImexChannel]
        );
        let full = with(|facts| facts.shared_memory_bytes = Some((4 << 20) - 1));
        assert_eq!(
            known(Rung::SharedMemory, &refusal(true, Some(28), full)),
            [Obstacle::SharedMemoryFull]
        );
        let container = with(|facts| {
            (facts.own_ipc_namespace, facts.seccomp_filter) = (Some(true), Some(true));
        });
        assert_eq!(
            known(Rung::LegacyMemory, &refusal(false, Some(201), container)),
            [Obstacle::IpcNamespace, Obstacle::Seccomp]
        );
        let files = with(|facts| facts.no_file_left = Some(true));
        assert_eq!(
            known(Rung::Descriptor, &refusal(false, Some(2), files)),
            [Obstacle::OpenFiles]
        );
    }

    #[test]
    fn wrong_bytes_on_one_side_are_the_result() {
        use Verified::{Corrupt, Inconclusive, Ok, Skipped};
        assert_eq!(worse(Ok, Corrupt), Corrupt);
        assert_eq!(worse(Inconclusive, Ok), Inconclusive);
        assert_eq!(worse(Skipped, Ok), Ok);
    }
}

//! Hands memory from one process to another. Each of the two processes takes steps that the parent asks for: one offers
//! memory with a pattern in it, the other opens it, checks the pattern and writes another, and the first checks that.

mod cell;
mod obstacles;

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

pub(super) use self::cell::cell;
use super::bench::Bench;
use super::contents::Check;
use hardware::{Buffer, Device, Handle, HardwareError, SharingFacts, Stream};
use model::measurement::Rung;
use model::placement::Engine;

/// A step of one of the two processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Creates memory with a pattern, and a handle of it.
    Offer { rung: Rung, gpu: u32, bytes: u64 },
    /// Opens the memory, checks its pattern and writes another.
    Take { rung: Rung, gpu: u32, bytes: u64, handle: Vec<u8>, seed: u64 },
    /// Checks the pattern that the other process wrote.
    Confirm { seed: u64 },
    /// Gives back what was taken; if nothing was, what was offered.
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
    offered: RefCell<Option<Held>>,
    taken: RefCell<Option<Held>>,
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
        Self { bench, offered: RefCell::new(None), taken: RefCell::new(None) }
    }

    /// Takes a step. A descriptor comes with a step that opens memory by it, and goes with an offer.
    pub fn step(&self, step: Step, descriptor: Option<OwnedFd>) -> (Taken, Option<OwnedFd>) {
        let at_owner = !matches!(step, Step::Take { .. });
        let taken = match step {
            Step::Offer { rung, gpu, bytes } => self.offer(rung, gpu, bytes),
            Step::Take { rung, gpu, bytes, handle, seed } => {
                let handle = Handle { bytes: handle, descriptor };
                self.take(rung, gpu, bytes, handle, seed).map(|taken| (taken, None))
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
        let Handle { bytes: handle, descriptor } = handle;
        let (goes, fetched) =
            if rung.sends_descriptor() { (descriptor, None) } else { (None, descriptor) };
        *self.offered.borrow_mut() = Some(Held { buffer, bytes, _fetched: fetched });
        if let Some(buffer) = buffer {
            driver.fill(buffer, bytes, seed)?;
            driver.synchronize(Stream::default_of(device))?;
        }
        let offered = Taken::Offered { handle, seed, bytes };
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
        let held = |buffer| Held { buffer, bytes, _fetched: None };
        if rung == Rung::LegacyEvent {
            let event = driver.open_event(device, handle)?;
            let open_us = since();
            *self.taken.borrow_mut() = Some(held(None));
            let stream = Stream::default_of(device);
            driver.wait(stream, event)?;
            driver.synchronize(stream)?;
            return Ok(Taken::Opened { open_us, check: None, seed });
        }
        let buffer = driver.open_shared(device, rung, handle, bytes)?;
        let open_us = since();
        *self.taken.borrow_mut() = Some(held(Some(buffer)));
        let answer = self.bench.seeds.next();
        let check = self.exchange(gpu, buffer, bytes, seed, answer)?;
        Ok(Taken::Opened { open_us, check: Some(check), seed: answer })
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
            let counted = driver.check(&[(buffer, seed.into())], bytes)?;
            driver.fill(buffer, bytes, answer)?;
            driver.synchronize(stream)?;
            return Ok(counted.first().map_or_else(no_count, Check::of));
        }
        // A kernel reads memory of the host, and a copy engine writes it.
        let (mine, back) = (open_gpu.receive, open_gpu.send);
        driver.poison(mine, bytes, seed)?;
        driver.copy(Engine::Kernel, stream, mine, buffer, bytes)?;
        driver.synchronize(stream)?;
        let counted = driver.check(&[(mine, seed.into())], bytes)?;
        driver.fill(back, bytes, answer)?;
        driver.copy(Engine::Copy, stream, buffer, back, bytes)?;
        driver.synchronize(stream)?;
        Ok(counted.first().map_or_else(no_count, Check::of))
    }

    fn confirm(&self, seed: u64) -> Result<Taken, HardwareError> {
        let held = self.offered.borrow();
        let held = held.as_ref().and_then(|held| Some((held.buffer?, held.bytes)));
        let Some((buffer, bytes)) = held else {
            return Ok(Taken::Confirmed { check: None });
        };
        let counted = self.bench.driver.check(&[(buffer, seed.into())], bytes)?;
        let check = counted.first().map_or_else(no_count, Check::of);
        Ok(Taken::Confirmed { check: Some(check) })
    }

    fn leave(&self) -> Result<(), HardwareError> {
        // The memory of the other process first: it must not give that back while it is open here.
        let taken = self.taken.borrow_mut().take();
        let held = match taken {
            Some(taken) => Some(taken),
            None => self.offered.borrow_mut().take(),
        };
        let Some(Held { buffer: Some(buffer), .. }) = held else {
            return Ok(());
        };
        self.bench.driver.free(buffer)
    }
}

fn no_count() -> Check {
    Check::inconclusive("the check counted nothing")
}

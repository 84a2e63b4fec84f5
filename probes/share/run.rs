//! Hands memory from one process to another. Each of the two processes takes steps that the parent asks for: one offers
//! memory with a pattern in it, the other opens it, checks the pattern and writes another, and the first checks that.

use std::cell::Cell;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::bench::check::Check;
use crate::bench::{Bench, OpenGpu};

use hardware::{Buffer, Handle, HardwareError, SharingFacts, Stream};
use model::measurement::Rung;
use model::placement::Engine;

/// A step of one of the two processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// Creates memory with a pattern, and a handle of it.
    Offer { rung: Rung, gpu: u32, bytes: u64 },
    /// Opens the memory, checks its pattern, writes another, and gives it back.
    Take { rung: Rung, gpu: u32, bytes: u64, handle: Vec<u8>, seed: u64 },
    /// Checks the pattern that the other process wrote, if it did, and gives back what was offered.
    Confirm { seed: Option<u64> },
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
        /// Check of the owner's pattern.
        check: Check,
        /// Seed of the pattern that was written.
        seed: u64,
    },
    Confirmed {
        check: Option<Check>,
    },
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

/// The result of both processes.
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
    offered: Cell<Option<Buffer>>,
}

impl<'b, 'd> Sharer<'b, 'd> {
    pub const fn new(bench: &'b Bench<'d>) -> Self {
        Self { bench, offered: Cell::new(None) }
    }

    /// Takes a step. A descriptor comes with a step that opens memory by it, and goes with an offer.
    pub fn step(&self, step: Turn, descriptor: Option<OwnedFd>) -> (Taken, Option<OwnedFd>) {
        let at_owner = !matches!(step, Turn::Take { .. });
        let taken = match step {
            Turn::Offer { rung, gpu, bytes } => self.offer(rung, gpu, bytes),
            Turn::Take { rung, gpu, bytes, handle, seed } => {
                let handle = Handle { bytes: handle, descriptor };
                self.take(rung, gpu, bytes, handle, seed).map(|taken| (taken, None))
            }
            Turn::Confirm { seed } => self.confirm(seed).map(|taken| (taken, None)),
        };
        taken.unwrap_or_else(|error| (self.refused(at_owner, error), None))
    }

    /// Returns the answer to a step that was refused, with the facts of this process.
    pub fn refused(&self, at_owner: bool, error: HardwareError) -> Taken {
        let facts = self.bench.driver.sharing_facts();
        Taken::Refused { refusal: Box::new(Refusal { at_owner, error, facts }) }
    }

    fn offer(
        &self,
        rung: Rung,
        gpu: u32,
        bytes: u64,
    ) -> Result<(Taken, Option<OwnedFd>), HardwareError> {
        let (driver, device) = (self.bench.driver, self.bench.open_gpu(gpu)?.device);
        let seed = self.bench.seeds.next();
        let (buffer, Handle { bytes: handle, descriptor }) = driver.share(device, rung, bytes)?;
        let bytes = buffer.bytes;
        self.offered.set(Some(buffer));
        driver.fill(buffer, bytes, seed)?;
        driver.synchronize(Stream::default_of(device))?;
        Ok((Taken::Offered { handle, seed, bytes }, descriptor))
    }

    fn take(
        &self,
        rung: Rung,
        gpu: u32,
        bytes: u64,
        handle: Handle,
        seed: u64,
    ) -> Result<Taken, HardwareError> {
        let (driver, gpu) = (self.bench.driver, self.bench.open_gpu(gpu)?);
        let began = driver.now();
        let buffer = driver.open_shared(gpu.device, rung, handle, bytes)?;
        let open_us = driver.now().saturating_sub(began).as_secs_f64() * 1e6;
        let answer = self.bench.seeds.next();
        let check = self.exchange(gpu, buffer, bytes, [seed, answer]);
        // Before the other process gives it back.
        let freed = driver.free(buffer);
        Ok(Taken::Opened {
            open_us,
            check: check.and_then(|check| freed.map(|()| check))?,
            seed: answer,
        })
    }

    /// Checks the pattern of the other process by a kernel of a GPU, and writes another.
    fn exchange(
        &self,
        gpu: &OpenGpu,
        buffer: Buffer,
        bytes: u64,
        [seed, answer]: [u64; 2],
    ) -> Result<Check, HardwareError> {
        let (driver, stream) = (self.bench.driver, Stream::default_of(gpu.device));
        let check = if buffer.device().is_some() {
            let check = self.check(buffer, bytes, seed)?;
            driver.fill(buffer, bytes, answer)?;
            check
        } else {
            // A kernel reads memory of the host, and a copy engine writes it.
            driver.poison(gpu.receive, bytes, seed)?;
            driver.copy(Engine::Kernel, stream, gpu.receive, buffer, bytes)?;
            driver.synchronize(stream)?;
            let check = self.check(gpu.receive, bytes, seed)?;
            driver.fill(gpu.send, bytes, answer)?;
            driver.copy(Engine::Copy, stream, buffer, gpu.send, bytes)?;
            check
        };
        driver.synchronize(stream)?;
        Ok(check)
    }

    fn check(&self, buffer: Buffer, bytes: u64, seed: u64) -> Result<Check, HardwareError> {
        let counted = self.bench.driver.check(&[(buffer, seed.into())], bytes)?;
        let none = || Check::inconclusive("the check counted nothing");
        Ok(counted.first().map_or_else(none, Check::of))
    }

    fn confirm(&self, seed: Option<u64>) -> Result<Taken, HardwareError> {
        let Some(buffer) = self.offered.take() else { return Ok(Taken::Confirmed { check: None }) };
        let check = seed.map(|seed| self.check(buffer, buffer.bytes, seed)).transpose();
        let freed = self.bench.driver.free(buffer);
        Ok(Taken::Confirmed { check: check.and_then(|check| freed.map(|()| check))? })
    }
}

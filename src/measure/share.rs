//! Hands memory from one process to another, in steps that the parent asks for: the one offers memory with a pattern in
//! it, the other opens it and checks the pattern.

mod cell;
mod obstacles;

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

pub(super) use self::cell::cell;
use super::bench::Bench;
use super::contents::Check;

use hardware::{Handle, HardwareError, SharingFacts, Stream};
use model::measurement::Rung;
use model::placement::Engine;

/// A step of one of the two processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Creates memory with a pattern, and a handle of it.
    Offer { rung: Rung, gpu: u32, bytes: u64 },
    /// Opens the memory, and checks its pattern.
    Take { rung: Rung, gpu: u32, bytes: u64, handle: Vec<u8>, seed: u64 },
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
        handed: Box<Handed>,
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

/// What the other process found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handed {
    /// Microseconds until it could use the memory.
    pub open_us: f64,
    /// Its check of the pattern.
    pub check: Check,
}

/// Takes a step. A descriptor comes with a step that opens memory by it, and goes with an offer. What is offered stays
/// until the process ends.
pub fn step(
    bench: &Bench<'_>,
    step: Step,
    descriptor: Option<OwnedFd>,
) -> (Taken, Option<OwnedFd>) {
    let at_owner = matches!(step, Step::Offer { .. });
    let taken = match step {
        Step::Offer { rung, gpu, bytes } => offer(bench, rung, gpu, bytes),
        Step::Take { rung, gpu, bytes, handle, seed } => {
            let handle = Handle { bytes: handle, descriptor };
            let taken = take(bench, rung, gpu, bytes, handle, seed);
            taken.map(|handed| (Taken::Opened { handed: Box::new(handed) }, None))
        }
    };
    taken.unwrap_or_else(|error| (refused(bench, at_owner, error), None))
}

/// Returns the answer to a step that was refused, with the facts of this process.
pub fn refused(bench: &Bench<'_>, at_owner: bool, error: HardwareError) -> Taken {
    let facts = bench.driver.sharing_facts();
    Taken::Refused { refusal: Box::new(Refusal { at_owner, error, facts }) }
}

fn offer(
    bench: &Bench<'_>,
    rung: Rung,
    gpu: u32,
    bytes: u64,
) -> Result<(Taken, Option<OwnedFd>), HardwareError> {
    let (driver, device) = (bench.driver, bench.open_gpu(gpu)?.device);
    let seed = bench.seeds.next();
    let (buffer, Handle { bytes: handle, descriptor }) = driver.share(device, rung, bytes)?;
    let bytes = buffer.bytes;
    driver.fill(buffer, bytes, seed)?;
    driver.synchronize(Stream::default_of(device))?;
    Ok((Taken::Offered { handle, seed, bytes }, descriptor))
}

fn take(
    bench: &Bench<'_>,
    rung: Rung,
    gpu: u32,
    bytes: u64,
    handle: Handle,
    seed: u64,
) -> Result<Handed, HardwareError> {
    let (driver, gpu) = (bench.driver, bench.open_gpu(gpu)?);
    let began = driver.now();
    let opened = driver.open_shared(gpu.device, rung, handle, bytes)?;
    let open_us = driver.now().saturating_sub(began).as_secs_f64() * 1e6;
    // A kernel reads memory of the host too.
    let checked = if opened.device().is_some() {
        opened
    } else {
        let stream = Stream::default_of(gpu.device);
        driver.poison(gpu.receive, bytes, seed)?;
        driver.copy(Engine::Kernel, stream, gpu.receive, opened, bytes)?;
        driver.synchronize(stream)?;
        gpu.receive
    };
    let counted = driver.check(&[(checked, seed.into())], bytes)?;
    driver.free(opened)?;
    let none = || Check::inconclusive("the check counted nothing");
    Ok(Handed { open_us, check: counted.first().map_or_else(none, Check::of) })
}

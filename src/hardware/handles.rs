//! Handles that a driver returns: devices, streams, events, buffers.

use serde::{Deserialize, Serialize};

use super::{ErrorKind, HardwareError};
use model::flow::HostMemory;
use model::measurement::CudaAttributes;
use model::placement::{Engine, StreamKind};
use model::units::PciAddress;

/// A device by CUDA's ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(pub u32);

/// The facts that CUDA reports about a device before a context exists.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// CUDA's ordinal.
    pub device: Device,
    /// UUID of the GPU as NVML writes it, `GPU-…`, if CUDA reports one.
    pub uuid: Option<String>,
    /// UUID of the MIG instance, `MIG-…`, if the device is one and not a whole GPU.
    pub instance: Option<String>,
    /// PCI address, if CUDA reports one.
    pub pci: Option<PciAddress>,
    /// What CUDA says that it can do.
    pub attributes: CudaAttributes,
}

impl DeviceInfo {
    /// Fails if CUDA says that memory of a process cannot be registered for this device.
    pub fn may_register(&self) -> Result<(), HardwareError> {
        match self.attributes.registers_memory.get() {
            Some(false) => Err(HardwareError::new(
                ErrorKind::Impossible,
                "memory of a process cannot be registered on this platform, as CUDA says: pin it by cuMemHostAlloc",
            )),
            _ => Ok(()),
        }
    }
}

/// Memory of a device in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    pub free: u64,
    pub total: u64,
}

/// A stream of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream {
    pub device: Device,
    /// 0 is the legacy default stream; the driver numbers the others.
    pub id: u32,
    pub kind: StreamKind,
}

impl Stream {
    /// Returns the legacy default stream of a device.
    pub const fn default_of(device: Device) -> Self {
        Self { device, id: 0, kind: StreamKind::Default }
    }
}

/// An event of a device, with timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    pub device: Device,
    /// Numbered by the driver.
    pub id: u32,
}

/// The memory that a buffer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Location {
    Device(Device),
    /// The host's, on a NUMA node if one was asked for.
    Host {
        memory: HostMemory,
        node: Option<u32>,
    },
}

/// A buffer on a device or in the memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub location: Location,
    /// Numbered by the driver.
    pub id: u32,
    /// Size in bytes.
    pub bytes: u64,
}

impl Buffer {
    /// Returns the device that the buffer is on; none for the host's memory.
    pub const fn device(self) -> Option<Device> {
        match self.location {
            Location::Device(device) => Some(device),
            Location::Host { .. } => None,
        }
    }

    /// Returns the way in which the host's memory was allocated; none on a device.
    pub const fn host_memory(self) -> Option<HostMemory> {
        match self.location {
            Location::Device(_) => None,
            Location::Host { memory, .. } => Some(memory),
        }
    }

    /// Returns true for pageable memory of the host.
    pub const fn is_pageable(self) -> bool {
        matches!(self.host_memory(), Some(HostMemory::Pageable))
    }

    /// Returns a buffer of the host with another kind of allocation.
    #[must_use]
    pub const fn with_host_memory(mut self, memory: HostMemory) -> Self {
        if let Location::Host { memory: of, .. } = &mut self.location {
            *of = memory;
        }
        self
    }
}

/// The bytes that a buffer should hold: a part of a seed's pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Seed of the pattern.
    pub seed: u64,
    /// Word of the pattern that the buffer's first word is.
    pub from: u64,
    /// The same of the copy before the last; `from` if both sent the same.
    pub before: u64,
}

impl From<u64> for Sent {
    /// Returns the pattern of a seed from its beginning on.
    fn from(seed: u64) -> Self {
        Self { seed, from: 0, before: 0 }
    }
}

/// Counts of a check over a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternCheck {
    /// 8-byte words checked.
    pub words: u64,
    /// Words that differ from the pattern.
    pub wrong: u64,
    /// Wrong words that still hold the poison: they were never written.
    pub poisoned: u64,
    /// Wrong words that the copy before the last has sent.
    pub stale: u64,
    /// Byte offset of the first wrong word.
    pub first_wrong: Option<u64>,
    /// Copies with wrong words.
    pub copies: u64,
}

/// Many copies of two sources in turn into two places in turn, which may be the same.
#[derive(Debug, Clone, Copy)]
pub struct SteadyCopies {
    pub engine: Engine,
    /// The stream of the copies.
    pub stream: Stream,
    pub sources: [Buffer; 2],
    pub places: [Buffer; 2],
    /// Bytes of each copy.
    pub bytes: u64,
    /// Number of copies.
    pub copies: u32,
    pub compared: Option<Comparison>,
}

/// A kernel of the destination that compares each copy, and poisons its place before the next one arrives there.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    pub sent: [Sent; 2],
    /// The stream of the destination that compares.
    pub stream: Stream,
    /// Number of the counts at the destination, below [`MOST_TALLIES`].
    pub tally: u32,
    /// An event of the issuer for each place: its copy has ended.
    pub arrived: [Event; 2],
    /// An event of the destination for each place: it is poisoned.
    pub poisoned: [Event; 2],
}

/// Most counts of compared copies that a device keeps.
pub const MOST_TALLIES: u32 = 64;

impl PatternCheck {
    /// The counts of no words.
    pub const NONE: Self =
        Self { words: 0, wrong: 0, poisoned: 0, stale: 0, first_wrong: None, copies: 0 };

    /// Returns the counts of so many alike.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        let Self { words, wrong, poisoned, stale, first_wrong, copies } = self;
        Self {
            words: words * times,
            wrong: wrong * times,
            poisoned: poisoned * times,
            stale: stale * times,
            first_wrong: if times > 0 { first_wrong } else { None },
            copies: copies * times,
        }
    }

    /// Returns the counts of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let first = [self.first_wrong, other.first_wrong];
        Self {
            words: self.words + other.words,
            wrong: self.wrong + other.wrong,
            poisoned: self.poisoned + other.poisoned,
            stale: self.stale + other.stale,
            first_wrong: first.into_iter().flatten().min(),
            copies: self.copies + other.copies,
        }
    }
}

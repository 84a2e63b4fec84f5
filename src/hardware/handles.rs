//! What a driver hands out: devices, streams, events, buffers.

use serde::{Deserialize, Serialize};

use model::units::PciAddress;

/// A device by CUDA's ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(pub u32);

/// What CUDA says of a device before a context exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// CUDA's ordinal.
    pub device: Device,
    /// UUID as NVML writes it, `GPU-…`, where CUDA tells.
    pub uuid: Option<String>,
    /// PCI address, where CUDA tells.
    pub pci: Option<PciAddress>,
}

/// Memory of a device in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Free now.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// A stream of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream {
    pub device: Device,
    /// 0 is the legacy default stream, others are numbered by the driver room.
    pub id: u32,
}

impl Stream {
    /// The legacy default stream of a device.
    pub const fn default_of(device: Device) -> Self {
        Self { device, id: 0 }
    }
}

/// An event of a device, with timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    pub device: Device,
    /// Numbered by the driver room.
    pub id: u32,
}

/// A buffer on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub device: Device,
    /// Numbered by the driver room.
    pub id: u32,
    /// Size in bytes.
    pub bytes: u64,
}

/// What the check kernel counted over a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternCheck {
    /// 8-byte words looked at.
    pub words: u64,
    /// Words that differ from the pattern.
    pub wrong: u64,
    /// Of those, words that still hold the poison: they were never written.
    pub poisoned: u64,
    /// Byte offset of the first wrong word.
    pub first_wrong: Option<u64>,
}

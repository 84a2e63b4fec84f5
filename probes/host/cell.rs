//! Copies between the memory of the host and GPUs, and what it costs to page-lock that memory.

use std::fmt;

use super::axis::axes;
use super::cell::{Apart, Measurement, Subject, cell};
pub use super::flow::Allocation;
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::placement::{Direction, Engine};
use super::status::Verified;
use super::units::{Bytes, GbPerSecond};

words! {
    /// Direction of a copy between host and GPU.
    HostDirection {
        /// From the memory of the host to the GPU.
        ToDevice = "to device",
        /// From the GPU to the memory of the host.
        ToHost = "to host",
        /// Both at the same time.
        BothWays = "both ways",
    }
}

axes!(HostDirection, Allocation);

cell! {
    /// Bandwidth between host memory and a GPU in one configuration.
    HostCopy: Host
    with {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// NUMA node of the host's buffer. Null if not known.
        numa_node: Option<u32>,
        /// Allocation of the host's buffer.
        memory: HostMemory,
        /// Direction of the copy.
        direction: HostDirection,
        /// The engine that moved the bytes: a copy engine, or a kernel over mapped memory.
        engine: Engine,
        /// Origin of the buffers: reused, made for each copy, or filled from pageable memory for each copy.
        allocation: Allocation,
        /// GPUs that copied in this way at the same time, this one included. 1 is this GPU alone.
        #[serde(default = "alone")]
        at_once: u32,
        /// Size of one copy.
        bytes: Bytes,
    }
    has {
        /// Bytes divided by the time of a plain row of copies, for one direction, median over the rows. For both ways,
        /// the mean of the two directions. For a buffer made or filled for each copy, the time includes that.
        achieved_gbps: Option<GbPerSecond> => main Rate,
        /// Rate to the device of a copy both ways. Null for one way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_device_gbps: Option<GbPerSecond> => Rate,
        /// Rate to the host of a copy both ways. Null for one way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_host_gbps: Option<GbPerSecond> => Rate,
        /// Payload rate of the narrowest hop between the GPU and the host. GPUs that copy through it at the same time
        /// each get a share. Null if no hop's rate is known.
        #[serde(default)]
        theoretical_gbps: Option<GbPerSecond> => given Rate,
        /// Place of that hop, for people: `GPU 3's slot 0000:3b:00.0 (Gen4 x4)`.
        #[serde(default)]
        bottleneck: Option<String>,
        /// Achieved rate as a percentage of the theoretical rate.
        #[serde(default)]
        percent: Option<f64> => Percent,
        /// Rate that healthy machines reach. Null if the theoretical rate is not known, or if the figure depends on the
        /// host's processor more than on a link.
        #[serde(default)]
        expected_gbps: Option<GbPerSecond> => given Rate,
        /// Lowest rate that healthy machines are known to have reached there. Null if none is known.
        #[serde(default)]
        expected_low_gbps: Option<GbPerSecond> => given Rate,
        /// Highest rate that healthy machines are known to have reached there. Null if none is known.
        #[serde(default)]
        expected_high_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the expected rate.
        #[serde(default)]
        expected_percent: Option<f64> => Percent,
        /// Rate that this copy reaches on a healthy machine of this kind: every link as wide and fast as both its ends can
        /// be, all NVLinks of the model up; the middle of what healthy machines reach. Null if none is known.
        #[serde(default)]
        healthy_gbps: Option<GbPerSecond> => given Rate,
        /// Achieved rate as a percentage of the healthy rate.
        #[serde(default)]
        healthy_percent: Option<f64> => Percent,
        /// Number of rows.
        samples: u32,
        /// (Largest - smallest) / median of the rows, per cent.
        spread_percent: Option<f64> => Amount,
        /// Time that the host spent in the call that enqueued one copy, microseconds. It includes filling the buffer.
        host_blocked_us: Option<f64> => Amount,
        /// Result of checking the bytes, for both directions if both were copied.
        verified: Verified => checked,
        /// Description of the wrong bytes. Null if nothing was wrong.
        #[serde(default)]
        verification_detail: Option<String>,
    }
}

const fn alone() -> u32 {
    1
}

/// Everything about a copy between host and GPU except the GPU, the node and the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostWay {
    /// Allocation of the host's buffer.
    pub memory: HostMemory,
    /// Direction of the copy.
    pub direction: HostDirection,
    /// The engine that moves the bytes.
    pub engine: Engine,
    /// Origin of the buffer.
    pub allocation: Allocation,
}

impl HostWay {
    /// The copy from reused pinned memory to the device by copy engine.
    pub const PINNED: Self = Self {
        memory: HostMemory::Pinned,
        direction: HostDirection::ToDevice,
        engine: Engine::Copy,
        allocation: Allocation::Reused,
    };

    /// Returns the same way in another direction.
    #[must_use]
    pub const fn with_direction(self, direction: HostDirection) -> Self {
        Self { direction, ..self }
    }

    /// Returns the same way with other buffers.
    #[must_use]
    pub const fn with_allocation(self, allocation: Allocation) -> Self {
        Self { allocation, ..self }
    }

    /// Returns true if some profile measures it.
    pub fn exists(self) -> bool {
        match self.allocation {
            Allocation::Reused => true,
            Allocation::Anew => self.memory != HostMemory::Pageable,
            allocation => self == Self::PINNED.with_allocation(allocation),
        }
    }

    /// Returns the same way with other memory.
    #[must_use]
    pub const fn with_memory(self, memory: HostMemory) -> Self {
        Self { memory, ..self }
    }
}

impl fmt::Display for HostWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.memory)?;
        match self.allocation {
            Allocation::Reused => {}
            Allocation::Anew | Allocation::AnewFilled => write!(f, " {}", self.allocation)?,
            allocation => write!(f, ", {allocation}")?,
        }
        if self.engine == Engine::Kernel {
            write!(f, ", by kernel")?;
        }
        write!(f, ", {}", self.direction)
    }
}

impl HostCopy {
    /// Returns the way in which its bytes are copied.
    pub const fn way(&self) -> HostWay {
        let Self { memory, direction, engine, allocation, .. } = *self;
        HostWay { memory, direction, engine, allocation }
    }

    /// Returns its flow. A copy both ways is named by the flow to the device.
    pub const fn flow(&self) -> Flow {
        let up = Flow::from_host(self.numa_node, self.memory, self.gpu);
        if matches!(self.direction, HostDirection::ToHost) { up.reversed() } else { up }
    }

    /// Returns its rate, if it was measured, undisturbed, and its bytes are not wrong.
    pub fn rate(&self) -> Option<GbPerSecond> {
        self.achieved_gbps.filter(|_| self.is_sound())
    }
}

impl Subject for HostCopy {
    fn flow(&self) -> Flow {
        Self::flow(self)
    }

    fn setup(&self) -> Setup {
        let direction = if self.direction == HostDirection::BothWays {
            Direction::BothWays
        } else {
            Direction::OneWay
        };
        Setup::REFERENCE.with_engine(self.engine).with_direction(direction).with_bytes(self.bytes)
    }

    fn apart(&self) -> Apart {
        Apart::Host(self.allocation, self.at_once)
    }

    fn what(&self) -> String {
        let at_once = if self.at_once > 1 {
            format!(", {} GPUs at once", self.at_once)
        } else {
            String::new()
        };
        format!("{}{at_once}, {}", self.way(), self.bytes)
    }
}

cell! {
    /// The cost of page-locking memory of one NUMA node.
    Pinning: Pinning
    with {
        /// NUMA node of the memory. Null if not known.
        numa_node: Option<u32>,
        /// Size of the buffers that were tried.
        bytes: Bytes,
    }
    has {
        /// Milliseconds per GiB to allocate page-locked memory.
        allocate_ms_per_gib: Option<f64> => main Amount,
        /// Milliseconds per GiB to free it.
        free_ms_per_gib: Option<f64> => Amount,
        /// Milliseconds per GiB to page-lock memory that the process already owns and has written to.
        register_ms_per_gib: Option<f64> => main Amount,
        /// Milliseconds per GiB to unlock it.
        unregister_ms_per_gib: Option<f64> => Amount,
        /// Host memory used when page-locked `bytes` are allocated, by the process's own accounting.
        allocating_takes_bytes: Option<Bytes>,
        /// Host memory used when `bytes` are allocated as usual and a page-locked copy is made of them, both together.
        copying_takes_bytes: Option<Bytes>,
        /// The limit that page-locking hit or comes nearest to, in words. Null if there is none.
        #[serde(default)]
        limit: Option<String>,
        /// Bytes that this limit leaves to this process. Null if it is not a number, or there is no limit.
        #[serde(default)]
        limit_bytes: Option<Bytes>,
        /// True if the driver or a limit refused page-locking, as opposed to a measurement that was left out or cut off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
        /// Number of samples.
        samples: u32,
    }
}

impl Subject for Pinning {
    /// Returns a flow within host memory, where its bytes stay.
    fn flow(&self) -> Flow {
        let host = Endpoint::Host { node: self.numa_node, memory: HostMemory::Pinned };
        Flow { from: host, to: host }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        self.bytes.to_string()
    }

    fn what_of_any_size(&self) -> String {
        "copies".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Measurements;
    use crate::status::{Ending, Status};
    use crate::testing::host_copy;

    #[test]
    fn a_host_copy_says_its_way() {
        let copy = host_copy(3, 55.0);
        assert_eq!(copy.cell().flow.to_string(), "pinned host memory → GPU 3");
        let down =
            HostCopy { direction: HostDirection::ToHost, numa_node: Some(1), ..copy.clone() };
        assert_eq!(down.cell().flow.to_string(), "GPU 3 → pinned host memory of NUMA node 1");
        assert_eq!(down.way().to_string(), "pinned, to host");
        let anew = HostCopy { allocation: Allocation::Anew, ..copy.clone() };
        assert_eq!(anew.way().to_string(), "pinned anew, to device");
        assert!(copy.cell().tested() && copy.rate().is_some());
        let mut disturbed = copy;
        disturbed.ending.disturbed = true;
        assert_eq!(disturbed.rate(), None);
    }

    #[test]
    fn of_several_sizes_the_largest_that_was_measured_is_shown() {
        let small = HostCopy { bytes: Bytes(1), ..host_copy(0, 20.0) };
        let large = HostCopy {
            bytes: Bytes(3),
            ending: Ending::without(Status::Hung, None),
            ..host_copy(0, 99.0)
        };
        let at_once = HostCopy { at_once: 2, bytes: Bytes(9), ..host_copy(0, 30.0) };
        let host = vec![small, host_copy(0, 55.0), large, at_once, host_copy(1, 54.0)];
        let measurements = Measurements { host, ..Measurements::default() };
        let rates: Vec<_> = measurements
            .host_alone(HostWay::PINNED)
            .iter()
            .filter_map(|copy| copy.rate())
            .collect();
        assert_eq!(rates, [GbPerSecond(55.0), GbPerSecond(54.0)]);
    }
}

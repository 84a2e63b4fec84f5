//! Pipelines of copies and kernels on one GPU, and the copy engines that they need.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cell::{Measurement, ended, figures};
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::probe::Probe;
use super::status::Ending;
use super::units::Bytes;

/// The resource that a pipeline waits for most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The copies of the pipeline.
    Copy,
    /// The kernels of the pipeline.
    Kernel,
    /// The host, which enqueues copies and kernels.
    Host,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Copy => "copies",
            Self::Kernel => "kernels",
            Self::Host => "host",
        })
    }
}

/// A pipeline on one GPU: several batches, each copied in, processed by a kernel and copied out. It runs once in one
/// stream, where each step waits for all earlier ones. It runs once more in several streams, which take the batches
/// in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Pipeline {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// NUMA node of the host's buffers. Null if not known.
    pub numa_node: Option<u32>,
    /// Allocation of the host's buffers.
    pub memory: HostMemory,
    /// Number of batches.
    pub batches: u32,
    /// Bytes of each batch that are copied in; the same number is copied out.
    pub bytes: Bytes,
    /// Number of streams in the run with several streams.
    pub streams: u32,
    /// Time of all batches in one stream, microseconds, median.
    pub one_stream_us: Option<f64>,
    /// Time of all batches in several streams, microseconds, median.
    pub several_streams_us: Option<f64>,
    /// Speed-up from several streams.
    pub speed_up: Option<f64>,
    /// Speed-up if steps waited only for the same copy direction or the same kernel. Calculated from the times of
    /// single stages.
    pub possible_speed_up: Option<f64>,
    /// Time to copy a batch in, alone, microseconds.
    pub copy_in_us: Option<f64>,
    /// Time of a batch's kernel, alone, microseconds. Chosen as a fraction of the copies' time.
    pub kernel_us: Option<f64>,
    /// Time to copy a batch out, alone, microseconds.
    pub copy_out_us: Option<f64>,
    /// Time that the host spends to enqueue all batches, microseconds, median.
    pub enqueue_us: Option<f64>,
    /// The resource that the pipeline in several streams waits for most of the time.
    pub bound: Option<Bound>,
    /// Number of samples.
    pub samples: u32,
    /// (Largest - smallest) / median of the time in several streams, per cent.
    pub spread_percent: Option<f64>,
    /// Status of the measurement.
    #[serde(flatten)]
    pub ending: Ending,
}

impl Measurement for Pipeline {
    fn probe(&self) -> Probe {
        Probe::Pipeline
    }

    fn flow(&self) -> Flow {
        let host = Endpoint::Host {
            node: self.numa_node,
            memory: self.memory,
        };
        Flow {
            from: host,
            to: Endpoint::Gpu(self.gpu),
        }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!(
            "{} batches of {} in {} streams",
            self.batches, self.bytes, self.streams
        )
    }

    figures! {
        measured {
            speed_up: Amount,
            one_stream_us: Amount,
            several_streams_us: Amount,
            possible_speed_up: Amount,
            copy_in_us: Amount,
            kernel_us: Amount,
            copy_out_us: Amount,
            enqueue_us: Amount,
            spread_percent: Amount,
        }
        also { bound }
        other { gpu, numa_node, memory, batches, bytes, streams, samples, ending }
    }

    ended!(ending);
}

/// Copies of one GPU that run at the same time. They show the number of its copy engines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Engines {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// NUMA node of the host's buffers. Null if not known.
    pub numa_node: Option<u32>,
    /// Bytes of each copy, between the GPU and pinned memory.
    pub bytes: Bytes,
    /// Copy engines that the driver reports (`CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT`). Null if it does not report
    /// them.
    pub reported: Option<u32>,
    /// Copy engines that worked at the same time, as far as copies between host and GPU show. 0 if a copy and a
    /// kernel take turns. 1 if copies to the GPU and to the host take turns. 2 if these overlap. One more for each
    /// direction in which two copies overlap.
    pub observed: Option<u32>,
    /// Overlap of a copy to the GPU with one to the host, per cent of the shorter one.
    pub opposite_percent: Option<f64>,
    /// Overlap of two copies to the GPU, per cent. They share the link: 0 is one after the other, 100 is side by side
    /// at half the rate each.
    pub both_to_device_percent: Option<f64>,
    /// Overlap of two copies to the host, per cent.
    pub both_to_host_percent: Option<f64>,
    /// Overlap of a copy to the GPU with a kernel, per cent of the shorter one.
    pub kernel_to_device_percent: Option<f64>,
    /// Overlap of a copy to the host with a kernel, per cent of the shorter one.
    pub kernel_to_host_percent: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// Status of the measurement.
    #[serde(flatten)]
    pub ending: Ending,
}

impl Measurement for Engines {
    fn probe(&self) -> Probe {
        Probe::Engines
    }

    fn flow(&self) -> Flow {
        let host = Endpoint::Host {
            node: self.numa_node,
            memory: HostMemory::Pinned,
        };
        Flow {
            from: host,
            to: Endpoint::Gpu(self.gpu),
        }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("copies of {}", self.bytes)
    }

    figures! {
        measured {
            opposite_percent: Share,
            both_to_device_percent: Share,
            both_to_host_percent: Share,
            kernel_to_device_percent: Share,
            kernel_to_host_percent: Share,
            observed: Amount,
        }
        other { gpu, numa_node, bytes, reported, samples, ending }
    }

    ended!(ending);
}

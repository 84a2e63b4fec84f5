//! Pipelines of copies and kernels on one GPU, and the copy engines that they need.

use super::cell::{Subject, cell};
use super::flow::{Flow, HostMemory, Setup};
use super::units::Bytes;

words! {
    /// The resource that a pipeline waits for most of the time.
    Bound {
        /// The copies of the pipeline.
        Copy = "copies",
        /// The kernels of the pipeline.
        Kernel = "kernels",
        /// The host, which enqueues copies and kernels.
        Host = "host",
    }
}

cell! {
    /// A pipeline on one GPU: several batches, each copied in, processed by a kernel and copied out. It runs once in one
    /// stream, where each step waits for all earlier ones. It runs once more in several streams, which take the batches
    /// in turn.
    Pipeline: Pipeline
    with {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// NUMA node of the host's buffers. Null if not known.
        numa_node: Option<u32>,
        /// Allocation of the host's buffers.
        memory: HostMemory,
        /// Number of batches.
        batches: u32,
        /// Bytes of each batch that are copied in; the same number is copied out.
        bytes: Bytes,
        /// Number of streams in the run with several streams.
        streams: u32,
    }
    has {
        /// Time of all batches in one stream, microseconds, median.
        one_stream_us: Option<f64> => Amount,
        /// Time of all batches in several streams, microseconds, median.
        several_streams_us: Option<f64> => Amount,
        /// Bytes of the GPU that the batch in flight takes in one stream: what is copied in and what is copied out.
        #[serde(default)]
        one_stream_bytes: Option<Bytes> => Amount,
        /// Bytes of the GPU that the batches in flight take in several streams: one batch for each, if the buffers hold as many.
        #[serde(default)]
        several_streams_bytes: Option<Bytes> => Amount,
        /// Speed-up from several streams.
        speed_up: Option<f64> => main Amount,
        /// Speed-up if steps waited only for the same copy direction or the same kernel. Calculated from the times of
        /// single stages.
        possible_speed_up: Option<f64> => Amount,
        /// Time to copy a batch in, alone, microseconds.
        copy_in_us: Option<f64> => Amount,
        /// Time of a batch's kernel, alone, microseconds. Chosen as a fraction of the copies' time.
        kernel_us: Option<f64> => Amount,
        /// Time to copy a batch out, alone, microseconds.
        copy_out_us: Option<f64> => Amount,
        /// Time that the host spends to enqueue all batches, microseconds, median.
        enqueue_us: Option<f64> => Amount,
        /// The resource that the pipeline in several streams waits for most of the time.
        bound: Option<Bound> => also,
        /// Number of samples.
        samples: u32,
        /// (Largest - smallest) / median of the time in several streams, per cent.
        spread_percent: Option<f64> => Amount,
    }
}

impl Subject for Pipeline {
    fn flow(&self) -> Flow {
        Flow::from_host(self.numa_node, self.memory, self.gpu)
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{} batches of {} in {} streams", self.batches, self.bytes, self.streams)
    }
}

cell! {
    /// Copies of one GPU that run at the same time. They show the number of its copy engines.
    Engines: Engines
    with {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// NUMA node of the host's buffers. Null if not known.
        numa_node: Option<u32>,
        /// Bytes of each copy, between the GPU and pinned memory.
        bytes: Bytes,
    }
    has {
        /// Copy engines that the driver reports (`CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT`). Null if it does not report
        /// them.
        reported: Option<u32>,
        /// Copy engines that worked at the same time, as far as copies between host and GPU show. 0 if a copy and a
        /// kernel take turns. 1 if copies to the GPU and to the host take turns. 2 if these overlap. One more for each
        /// direction in which two copies overlap.
        observed: Option<u32> => Amount,
        /// Overlap of a copy to the GPU with one to the host, per cent of the shorter one.
        opposite_percent: Option<f64> => main Share,
        /// Overlap of two copies to the GPU, per cent. They share the link: 0 is one after the other, 100 is side by side
        /// at half the rate each.
        both_to_device_percent: Option<f64> => Share,
        /// Overlap of two copies to the host, per cent.
        both_to_host_percent: Option<f64> => Share,
        /// Overlap of a copy to the GPU with a kernel, per cent of the shorter one.
        kernel_to_device_percent: Option<f64> => Share,
        /// Overlap of a copy to the host with a kernel, per cent of the shorter one.
        kernel_to_host_percent: Option<f64> => Share,
        /// Number of samples.
        samples: u32,
    }
}

impl Subject for Engines {
    fn flow(&self) -> Flow {
        Flow::from_host(self.numa_node, HostMemory::Pinned, self.gpu)
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("copies of {}", self.bytes)
    }
}

//! Copies and kernels that run at the same time.

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::placement::Engine;
use super::units::{Bytes, GbPerSecond};

words! {
    /// The resource that a kernel uses most.
    KernelNeed {
        /// It reads the memory of its GPU.
        Memory = "memory",
        /// It multiplies matrices: on the matrix units if the images have code of the GPU's own that uses them, from compute
        /// capability 7.5 on.
        Arithmetic = "arithmetic",
    }
}

axes!(KernelNeed);

cell! {
    /// A copy and a kernel of the GPU that issues it, each alone and both at the same time.
    Contention: Contention
    with {
        /// The GPU of the kernel, by NVML's index. It issues the copy.
        of_gpu: u32,
        /// The GPU that the copy reads, by NVML's index. Null for memory of the host.
        source: Option<u32>,
        /// The GPU that the copy writes, by NVML's index. Null for memory of the host.
        destination: Option<u32>,
        /// The engine that copies.
        engine: Engine,
        /// The resource that the kernel uses most.
        kernel: KernelNeed,
        /// Size of one copy.
        bytes: Bytes,
    }
    has {
        /// Rate of the copy beside the kernel, per cent of its rate alone; 0 if it waits for the kernel's end.
        copy_keeps_percent: Option<f64> => main Percent,
        /// Speed of the kernel beside the copy, per cent of its speed alone; 0 if it waits for the copy's end.
        kernel_keeps_percent: Option<f64> => Percent,
        /// Rate of the copy alone, fastest sample.
        copy_alone_gbps: Option<GbPerSecond> => Rate,
        /// Rate of the copy beside the kernel, fastest sample. Null if it waits for the kernel's end.
        copy_beside_gbps: Option<GbPerSecond> => Rate,
        /// Time of the kernel alone, microseconds, fastest sample. It is about as long as a row of copies.
        kernel_alone_us: Option<f64> => Amount,
        /// Time of the kernel beside the copy, microseconds, fastest sample. Null if it waits for the copy's end.
        kernel_beside_us: Option<f64> => Amount,
        /// Number of samples.
        samples: u32,
    }
}

impl Subject for Contention {
    fn flow(&self) -> Flow {
        let end = |gpu: Option<u32>| {
            gpu.map_or(Endpoint::Host { node: None, memory: HostMemory::Pinned }, Endpoint::Gpu)
        };
        Flow { from: end(self.source), to: end(self.destination) }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_engine(self.engine).with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        let Self { of_gpu, engine, kernel, bytes, .. } = self;
        let by_kernel = if *engine == Engine::Kernel { "by kernel, " } else { "" };
        format!("{by_kernel}{bytes}, beside a kernel that needs {kernel}, on GPU {of_gpu}")
    }
}

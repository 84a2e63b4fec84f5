//! Resources of probes on one GPU, and work that is released at the same time.

use std::time::Duration;

use crate::Round;
use crate::bench::{Bench, Origin};
use hardware::{Buffer, Device, ErrorKind, Event, HardwareError, Location, Stream};
use model::flow::{Endpoint, Flow, HostMemory};
use model::placement::Engine;
use model::timeline::WorkKind;

/// A GPU, its buffers, and the host buffers that it exchanges bytes with.
#[derive(Clone, Copy)]
pub(crate) struct GpuBuffers {
    pub gpu: u32,
    pub device: Device,
    pub send: Buffer,
    pub receive: Buffer,
    /// The host buffer that is copied to the GPU, and the one that receives the GPU's bytes.
    pub host: Option<[Buffer; 2]>,
    /// Bytes per copy.
    pub bytes: u64,
}

/// An activity of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// A copy from the host.
    In,
    /// A copy to the host.
    Out,
    /// A copy within the GPU.
    Within,
    /// A kernel of this length.
    Kernel(Duration),
}

impl Work {
    /// Returns its name for a timeline.
    pub(crate) fn name(self, gpu: u32) -> String {
        match self {
            Self::In => format!("copy to GPU {gpu}"),
            Self::Out => "copy to the host".to_owned(),
            Self::Within => "copy within the GPU".to_owned(),
            Self::Kernel(_) => "kernel".to_owned(),
        }
    }

    /// Returns its kind for a timeline.
    pub(crate) const fn kind(self) -> WorkKind {
        match self {
            Self::In | Self::Out | Self::Within => WorkKind::Copy,
            Self::Kernel(_) => WorkKind::Kernel,
        }
    }
}

impl Bench<'_> {
    /// Returns the resources of a round on one GPU. Its bytes are at most what every buffer holds.
    pub(crate) fn gpu_buffers(&self, round: &Round) -> Result<GpuBuffers, HardwareError> {
        let gpu = round
            .flows
            .iter()
            .flat_map(|flow| flow.ends())
            .find_map(Endpoint::gpu)
            .ok_or_else(no_gpu)?;
        let open_gpu = self.open_gpu(gpu)?;
        let location = round.flows.iter().find_map(host_end);
        let host = match location {
            Some((memory, node)) => Some(self.host_buffers(
                open_gpu.device,
                Location::Host { memory, node },
                round.task.setup.bytes.0,
            )?),
            None => None,
        };
        let in_host = host.into_iter().flatten().map(|buffer| buffer.bytes);
        let bytes = in_host
            .chain([open_gpu.send.bytes, open_gpu.receive.bytes])
            .fold(round.task.setup.bytes.0, u64::min);
        Ok(GpuBuffers {
            gpu,
            device: open_gpu.device,
            send: open_gpu.send,
            receive: open_gpu.receive,
            host,
            bytes,
        })
    }

    /// Returns two buffers of host memory, the second of which is written to.
    fn host_buffers(
        &self,
        device: Device,
        location: Location,
        bytes: u64,
    ) -> Result<[Buffer; 2], HardwareError> {
        let first = self.lend(device, location, bytes, true, &[])?;
        let second = self.lend(device, location, bytes, false, &[first.id])?;
        self.holds(second, None);
        Ok([first, second])
    }

    pub(crate) fn enqueue_work(
        &self,
        buffers: &GpuBuffers,
        stream: Stream,
        work: Work,
    ) -> Result<(), HardwareError> {
        let GpuBuffers { send, receive, bytes, .. } = *buffers;
        let host = || {
            buffers
                .host
                .ok_or_else(|| HardwareError::new(ErrorKind::Other, "no host memory was planned"))
        };
        let copy = |to, from| self.driver.copy(Engine::Copy, stream, to, from, bytes);
        let run = || match work {
            Work::In => copy(receive, host()?[0]),
            Work::Out => copy(host()?[1], send),
            Work::Within => copy(receive, send),
            Work::Kernel(length) => self.driver.spin(stream, length),
        };
        let verb = if matches!(work, Work::Kernel(_)) { "launch the " } else { "" };
        self.call(|| format!("{verb}{}", work.name(buffers.gpu)), run)
    }

    /// Releases pieces of work at the same time, each in a stream of its own. Returns the nanoseconds from the release
    /// to the end of each.
    pub(crate) fn set_off(
        &self,
        buffers: &GpuBuffers,
        works: &[Work],
    ) -> Result<Vec<f64>, HardwareError> {
        let streams = self.streams(buffers.device, works.len())?;
        let ends = self.events(buffers.device, works.len())?;
        let opened = self.gated(|| {
            let opened = self.close_gate(buffers.gpu)?;
            for ((&stream, &work), &end) in streams.iter().zip(works).zip(&ends) {
                self.driver.wait(stream, opened)?;
                self.enqueue_work(buffers, stream, work)?;
                self.driver.record(end, stream)?;
            }
            Ok(opened)
        })?;
        streams.iter().try_for_each(|stream| self.driver.synchronize(*stream))?;
        self.gates_held()?;
        ends.iter().map(|end| self.lasted(opened, *end)).collect()
    }

    /// Returns the nanoseconds from one event to another.
    ///
    /// # Errors
    ///
    /// The time is not a number, or the second event is not after the first.
    pub(crate) fn lasted(&self, start: Event, end: Event) -> Result<f64, HardwareError> {
        let origin = Origin { event: start, at: Duration::ZERO };
        let spans = self.spans(origin, &[start, end])?;
        spans.first().map(|span| span.length_ns()).ok_or_else(no_gpu)
    }
}

/// Returns the host's end of a flow, if it has one.
pub(crate) fn host_end(flow: &Flow) -> Option<(HostMemory, Option<u32>)> {
    flow.ends().into_iter().find_map(|end| match end {
        Endpoint::Host { node, memory } => Some((memory, node)),
        Endpoint::Gpu(_) => None,
    })
}

fn no_gpu() -> HardwareError {
    HardwareError::new(ErrorKind::Other, "a round on one GPU names none")
}

/// Returns the GPU of a round, and the node and the kind of allocation of its host memory.
pub(crate) fn ends(round: &Round) -> Option<(u32, Option<u32>, Option<HostMemory>)> {
    let mut ends = round.flows.iter().flat_map(|flow| flow.ends());
    let gpu = ends.clone().find_map(Endpoint::gpu)?;
    let host = ends.find_map(|end| match end {
        Endpoint::Host { node, memory } => Some((node, memory)),
        Endpoint::Gpu(_) => None,
    });
    Some((gpu, host.and_then(|(node, _)| node), host.map(|(_, memory)| memory)))
}

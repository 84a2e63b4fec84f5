//! Copies: which way they go, what they take, and how they go wrong.

use std::sync::Arc;

use crate::hardware::pattern::pattern;
use crate::hardware::sim::engine::{Flow, Submission, Work};
use crate::hardware::sim::spec::{CopyFault, PairFault};
use crate::hardware::{Buffer, Device, ErrorKind, HardwareError, Stream};
use crate::model::placement::{Engine, Path};
use crate::model::units::MIB;

use super::failed;
use super::state::{Effect, SharedPath, State};

/// Nanoseconds from the launch of a kernel to the access that kills it.
const ILLEGAL_ACCESS_NS: f64 = 5e3;

/// What the first copy of a row costs besides does not all come at once. Single copies on H200 took
/// 9.3 us more than their bytes at 397.5 GB/s at 1 MiB, 11.7 at 16, 12.0 at 64 and 512 (facts.md,
/// section 1): of 9 us, this share comes at once,
const FIRST_AT_ONCE: f64 = 0.7;
/// and the rest with the first of so many bytes. Copies that the destination issues do not have it.
const FIRST_BYTES: f64 = 16.0 * MIB as f64;

/// Fixed cost of every copy within a GPU: 1.4 to 2.9 us are published (p2pBandwidthLatencyTest: cuda-samples issue 230,
/// nccl-tests issues 100 and 117).
const LOCAL_EACH_NS: f64 = 2.5e3;

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mover {
    CopyEngine,
    Kernel,
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
impl State {
    /// Enqueues a copy.
    pub fn copy(
        &mut self,
        mover: Mover,
        stream: Stream,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let call = match mover {
            Mover::CopyEngine => "cuMemcpyPeerAsync",
            Mover::Kernel => "cuLaunchKernel",
        };
        for device in [stream.device, source.device, destination.device] {
            self.usable_device(device)?;
        }
        if stream.device != source.device && stream.device != destination.device {
            return Err(failed(ErrorKind::Other, call, "the stream is of neither device", 400));
        }
        for buffer in [source, destination] {
            self.usable_buffer(call, buffer, bytes)?;
        }
        let own = self.lane(stream)?;
        let ends = (source.device, destination.device);
        let other = if stream.device == ends.0 { ends.1 } else { ends.0 };
        let mut lanes = vec![own];
        // Measured: a peer copy on a legacy default stream, of either device, serialises with the
        // legacy default streams of both.
        if mover == Mover::CopyEngine && stream.id == 0 && other != stream.device {
            lanes.push(self.lane(Stream::default_of(other))?);
        }
        let servers = self.servers(stream.device)?;
        let server = match mover {
            Mover::Kernel => servers.multiprocessors,
            Mover::CopyEngine if stream.device == ends.0 => servers.copies_out,
            Mover::CopyEngine => servers.copies_in,
        };
        let local = ends.0 == ends.1;
        let direct = local || self.reaches(mover, stream.device, other);
        self.spend(direct, bytes);
        let at = self.clock_ns;
        let (work, effect) = if !direct && mover == Mover::Kernel {
            (Work::Busy(ILLEGAL_ACCESS_NS), Some(Effect::IllegalAddress(stream.device)))
        } else {
            let pair = (self.index(ends.0)?, self.index(ends.1)?);
            let engine = match mover {
                Mover::CopyEngine => Engine::Copy,
                Mover::Kernel => Engine::Kernel,
            };
            let path = if direct { Path::Direct } else { Path::Staged };
            let fault = if local { None } else { self.spec.copy_fault(pair.0, pair.1, engine, path) };
            let mut flow = self.flow(mover, stream.device, ends, direct, bytes)?;
            self.delay(&mut flow, pair, fault);
            match fault.map(|fault| fault.fault) {
                Some(CopyFault::Hangs) => (Work::Never, None),
                Some(CopyFault::Crashes) => std::process::abort(),
                fault => (Work::Flow(flow), Some(Effect::Moved { destination, source, bytes, fault })),
            }
        };
        let submission = Submission { lanes, after: Vec::new(), at, server: Some(server), work };
        self.submit(submission, [source, destination], effect);
        Ok(())
    }

    /// Whether a copy between these devices goes directly. A copy engine needs access one way or
    /// the other, a kernel its own device's access to the peer.
    fn reaches(&self, mover: Mover, device: Device, peer: Device) -> bool {
        let backwards = mover == Mover::CopyEngine && self.access.contains(&(peer, device));
        backwards || self.access.contains(&(device, peer))
    }

    /// The host spends the time that enqueuing a copy takes: without peer access it stages the
    /// bytes itself, so even the asynchronous call holds it.
    fn spend(&mut self, direct: bool, bytes: u64) {
        let speeds = &self.spec.speeds;
        let staging = if direct { 0.0 } else { speeds.staged_call_us_per_mib * bytes as f64 / MIB as f64 };
        self.clock_ns += (speeds.copy_call_us + staging) * 1e3;
    }

    /// Makes a copy take as much longer as noise and fault have it.
    fn delay(&mut self, flow: &mut Flow, (source, destination): (u32, u32), fault: Option<PairFault>) {
        self.copies += 1;
        let noise = self.spec.noise;
        let mut draws = draws(noise.seed, self.copies, source, destination);
        let mut longer = 1.0 + draws.f64() * noise.percent / 100.0;
        match fault.map(|fault| fault.fault) {
            Some(CopyFault::Slow { share }) if fault.is_some_and(|fault| fault.both_ways) => flow.both_ways *= share,
            Some(CopyFault::Slow { share }) => flow.cap *= share,
            Some(CopyFault::Unstable { percent }) => longer *= 1.0 + draws.f64() * percent / 100.0,
            _ => {}
        }
        // More work rather than a lower rate: it holds whatever limits the rate.
        flow.bytes *= longer;
        flow.each_ns *= longer;
        flow.first_ns *= longer;
    }

    fn flow(
        &mut self,
        mover: Mover,
        issuer: Device,
        (source, destination): (Device, Device),
        direct: bool,
        bytes: u64,
    ) -> Result<Flow, HardwareError> {
        let (from, to) = (self.index(source)?, self.index(destination)?);
        if source == destination {
            let cap = self.gpu(source)?.local_gbps;
            let each_ns = LOCAL_EACH_NS;
            let hops = Arc::new([]);
            return Ok(Flow { bytes: bytes as f64, hops, cap, both_ways: 1.0, each_ns, first_ns: 0.0 });
        }
        let SharedPath { speed, bottleneck_gbps, hops } = self.path(from, to, direct);
        let (share, extra_us) = match mover {
            Mover::CopyEngine if issuer == source => (speed.copy, 0.0),
            Mover::CopyEngine => (speed.copy, speed.from_destination_us),
            Mover::Kernel if issuer == source => (speed.push, 0.0),
            Mover::Kernel => (speed.pull, 0.0),
        };
        let warmed_up = if issuer == source { (bytes as f64 / FIRST_BYTES).min(1.0) } else { 0.0 };
        let first_us = speed.first_us * (FIRST_AT_ONCE + (1.0 - FIRST_AT_ONCE) * warmed_up);
        Ok(Flow {
            bytes: bytes as f64,
            cap: share * bottleneck_gbps,
            hops,
            both_ways: speed.both_ways,
            each_ns: (speed.each_us + extra_us) * 1e3,
            first_ns: first_us * 1e3,
        })
    }
}

/// Draws for one copy: the same seed, number and pair give the same ones.
fn draws(seed: u64, number: u64, source: u32, destination: u32) -> fastrand::Rng {
    let pair = u64::from(source) << 32 | u64::from(destination);
    fastrand::Rng::with_seed(pattern(pattern(seed, number), pair))
}

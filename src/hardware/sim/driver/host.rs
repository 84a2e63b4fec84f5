//! Memory of the simulated host, and copies between it and the devices.
//!
//! Copies from and to pageable memory block the host until they have ended, as the driver's do. The processor moves the
//! bytes to a buffer of the driver's and from there to the device, or the other way round.

use crate::engine::{Few, Flow, Submission, Work};
use crate::memory::{Content, MemoryError, host_device};
use crate::spec::{CopyFault, HostSpeeds, HostWay, PairFault, Pairs};
use hardware::{
    Buffer, Device, ErrorKind, HardwareError, HostBuffer, HostDriver, HostRoom, PatternCheck,
    ProcessMemory, Stream, WORDS_LOOKED_AT,
};
use model::flow::HostMemory;
use model::units::{Bytes, GIB, MIB};

use super::copies::Mover;
use super::effect::Effect;
use super::state::State;
use super::{SimDriver, failed};

/// Memory of this process beside the buffers, bytes.
const RESIDENT: u64 = 200 * MIB;

/// A buffer of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The same buffer, as an entry of the simulated memory.
    pub(super) buffer: Buffer,
    memory: HostMemory,
    node: u32,
}

/// The contents written to host memory.
#[derive(Debug, Clone, Copy)]
pub enum Written<'a> {
    /// The pattern of this seed.
    Pattern(u64),
    /// The poison of this value.
    Poison(u64),
    Bytes(&'a [u8]),
}

/// A copy between host and device.
#[derive(Clone, Copy)]
struct HostCopy {
    mover: Mover,
    way: HostWay,
    stream: Stream,
    on_device: Buffer,
    on_host: HostBuffer,
    bytes: u64,
}

impl HostCopy {
    const fn call(self) -> &'static str {
        match (self.mover, self.way) {
            (Mover::Kernel, _) => "cuLaunchKernel",
            (Mover::CopyEngine, HostWay::ToDevice) => "cuMemcpyHtoDAsync",
            (Mover::CopyEngine, HostWay::ToHost) => "cuMemcpyDtoHAsync",
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn ns_of(ms_per_gib: f64, bytes: u64) -> f64 {
    ms_per_gib * 1e6 * bytes as f64 / GIB as f64
}

impl SimDriver {
    /// Returns a buffer in its current state, if it can be used.
    pub(super) fn held(
        &self,
        call: &str,
        buffer: HostBuffer,
        bytes: u64,
    ) -> Result<Held, HardwareError> {
        let held = self.hosts.borrow().get(&buffer.id).copied();
        let same =
            held.filter(|held| held.memory == buffer.memory && held.buffer.bytes == buffer.bytes);
        let fits = same.filter(|_| bytes <= buffer.bytes);
        fits.ok_or_else(|| {
            failed(
                ErrorKind::Other,
                call,
                "invalid argument: no such memory of the host",
                1,
            )
        })
    }

    /// Fails with the machine's fault of page-locking, if it has one.
    fn refusal(state: &State, call: &str) -> Result<(), HardwareError> {
        match &state.spec.faults.pinning {
            Some(fault) => Err(failed(
                ErrorKind::OutOfMemory,
                call,
                &fault.meaning,
                fault.code,
            )),
            None => Ok(()),
        }
    }

    /// Runs a memory access by the processor, and advances the clock by the time that it takes.
    fn by_processor<T>(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        then: impl FnOnce(&mut State, Buffer) -> T,
    ) -> Result<T, HardwareError> {
        let held = self.held("memory access", buffer, bytes)?;
        let mut state = self.caught_up();
        let done = then(&mut state, held.buffer);
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        let ns = bytes as f64 / state.spec.speeds.host.processor_gbps;
        state.clock_ns += ns;
        Ok(done)
    }

    fn copy_host(&self, copy: HostCopy) -> Result<(), HardwareError> {
        let HostCopy {
            mover,
            stream,
            on_device,
            on_host,
            bytes,
            ..
        } = copy;
        let held = self.held(copy.call(), on_host, bytes)?;
        let mut state = self.state.borrow_mut();
        state.answers(stream.device)?;
        state.usable_buffer(copy.call(), on_device, bytes)?;
        if on_device.device != stream.device {
            return Err(failed(
                ErrorKind::Other,
                copy.call(),
                "the stream is of another device",
                400,
            ));
        }
        if mover == Mover::Kernel {
            state.kernels_loaded()?;
            if held.memory == HostMemory::Pageable {
                return Err(failed(
                    ErrorKind::Other,
                    copy.call(),
                    "invalid argument: memory that is not mapped",
                    1,
                ));
            }
        }
        state.copy_host(copy, held)?;
        if held.memory == HostMemory::Pageable {
            state.wait_for_buffer(on_device);
        }
        Ok(())
    }
}

impl State {
    /// Enqueues a copy between host and device.
    fn copy_host(&mut self, copy: HostCopy, held: Held) -> Result<(), HardwareError> {
        let HostCopy {
            mover,
            way,
            stream,
            on_device,
            bytes,
            ..
        } = copy;
        let gpu = self.index(stream.device)?;
        let fault = self.spec.host_fault(gpu, held.node, held.memory, way);
        let mut flow = self.host_flow(copy, gpu, held);
        let of_pair = fault.map(|fault| PairFault::new(Pairs::All, fault));
        self.delay(&mut flow, (gpu, held.buffer.device.0), of_pair);
        let servers = self.servers(stream.device)?;
        let server = match (mover, way) {
            (Mover::Kernel, _) => servers.multiprocessors,
            (Mover::CopyEngine, HostWay::ToDevice) => servers.from_host,
            (Mover::CopyEngine, HostWay::ToHost) => servers.to_host,
        };
        let (source, destination) = match way {
            HostWay::ToDevice => (held.buffer, on_device),
            HostWay::ToHost => (on_device, held.buffer),
        };
        let (work, effect) = match fault {
            Some(CopyFault::Hangs) => (Work::Never, None),
            Some(CopyFault::Crashes) => std::process::abort(),
            _ => {
                let issuer = stream.device;
                (
                    Work::Flow(flow),
                    Some(Effect::Moved {
                        issuer,
                        destination,
                        source,
                        bytes,
                        fault: of_pair,
                    }),
                )
            }
        };
        let lanes = Few::one(self.lane(stream)?);
        self.spend(true, bytes);
        let submission = Submission {
            lanes,
            after: None,
            at: self.clock_ns,
            servers: Few::one(server),
            work,
        };
        self.submit(submission, [source, destination], effect);
        Ok(())
    }

    /// Returns the flow of such a copy: its hops and its rate.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn host_flow(&mut self, copy: HostCopy, gpu: u32, held: Held) -> Flow {
        let HostSpeeds {
            up,
            down,
            both_ways,
            kernel_up,
            kernel_down,
            each_us,
            first_us,
            ..
        } = self.spec.speeds.host;
        let to_device = copy.way == HostWay::ToDevice;
        let share = match copy.mover {
            Mover::CopyEngine if to_device => up,
            Mover::CopyEngine => down,
            Mover::Kernel if to_device => kernel_up,
            Mover::Kernel => kernel_down,
        };
        let route = self.spec.host_route(gpu, held.node, to_device);
        let link = self.spec.bottleneck_gbps(&route);
        let speeds = &self.spec.speeds.host;
        let staged = match held.memory {
            HostMemory::Pageable if to_device => speeds.pageable_up_gbps,
            HostMemory::Pageable => speeds.pageable_down_gbps,
            _ => f64::INFINITY,
        };
        // If the route has no link, the rate of the GPU's own memory in the description is the limit.
        let cap = (share * link)
            .min(staged)
            .min(self.spec.gpus[gpu as usize].local_gbps);
        let hops = route.hops.iter().map(|hop| self.shared_hop(*hop)).collect();
        Flow {
            hops,
            places: [gpu, held.buffer.device.0],
            both_ways,
            with_host: true,
            each_ns: each_us * 1e3,
            first_ns: first_us * 1e3,
            ..Flow::new(copy.bytes as f64, cap)
        }
    }
}

impl HostDriver for SimDriver {
    fn host_room(&self) -> Result<HostRoom, HardwareError> {
        let state = self.state.borrow();
        Ok(state.spec.host_room(state.memory.taken_on_host()))
    }

    fn process_memory(&self) -> Option<ProcessMemory> {
        let taken = self.state.borrow().memory.taken_on_host();
        Some(ProcessMemory {
            resident: Bytes(RESIDENT + taken),
        })
    }

    fn host_allocate(
        &self,
        device: Device,
        memory: HostMemory,
        node: Option<u32>,
        bytes: u64,
    ) -> Result<HostBuffer, HardwareError> {
        let mut state = self.call(device)?;
        let call = if memory == HostMemory::Pinned {
            "cuMemHostAlloc"
        } else {
            "mmap"
        };
        let own = state
            .spec
            .function(state.gpu(device)?.pci)
            .and_then(|function| function.numa_node);
        let node = node.or(own).unwrap_or(0);
        let full = |_| failed(ErrorKind::OutOfMemory, call, "out of memory of the host", 2);
        let there = state
            .spec
            .numa_nodes
            .get(node as usize)
            .map(|node| node.memory.0);
        let there = there.ok_or_else(|| full(MemoryError::Full))?;
        if memory == HostMemory::Pinned {
            Self::refusal(&state, call)?;
        }
        let room = state.spec.host_room(state.memory.taken_on_host());
        if bytes > room.group_leaves.unwrap_or(room.available).0 {
            return Err(full(MemoryError::Full));
        }
        let buffer = state
            .memory
            .allocate(host_device(node), bytes, there)
            .map_err(full)?;
        let HostSpeeds {
            pin_ms_per_gib,
            touch_ms_per_gib,
            ..
        } = state.spec.speeds.host;
        let ms = if memory == HostMemory::Pinned {
            pin_ms_per_gib
        } else {
            touch_ms_per_gib
        };
        state.clock_ns += ns_of(ms, bytes);
        drop(state);
        let first = if memory == HostMemory::Registered {
            HostMemory::Pageable
        } else {
            memory
        };
        self.hosts.borrow_mut().insert(
            buffer.id,
            Held {
                buffer,
                memory: first,
                node,
            },
        );
        let taken = HostBuffer {
            id: buffer.id,
            bytes,
            memory: first,
        };
        if memory != HostMemory::Registered {
            return Ok(taken);
        }
        let registered = self.host_register(device, taken);
        if registered.is_err() {
            self.host_free(taken)?;
        }
        registered
    }

    fn host_free(&self, buffer: HostBuffer) -> Result<(), HardwareError> {
        let held = self.held("cuMemFreeHost", buffer, 0)?;
        if held.memory == HostMemory::Registered {
            return self
                .host_unregister(buffer)
                .and_then(|buffer| self.host_free(buffer));
        }
        let mut state = self.state.borrow_mut();
        state.call();
        state.wait_for_buffer(held.buffer);
        let ms = if held.memory == HostMemory::Pinned {
            state.spec.speeds.host.unpin_ms_per_gib
        } else {
            0.0
        };
        state.clock_ns += ns_of(ms, buffer.bytes);
        state.forget_buffer(held.buffer);
        self.hosts.borrow_mut().remove(&buffer.id);
        Ok(())
    }

    fn host_register(
        &self,
        device: Device,
        buffer: HostBuffer,
    ) -> Result<HostBuffer, HardwareError> {
        let held = self.held("cuMemHostRegister", buffer, 0)?;
        let mut state = self.call(device)?;
        if held.memory != HostMemory::Pageable {
            let meaning = "part or all of the requested memory range is already mapped";
            return Err(failed(ErrorKind::Other, "cuMemHostRegister", meaning, 712));
        }
        Self::refusal(&state, "cuMemHostRegister")?;
        let ms = state.spec.speeds.host.register_ms_per_gib;
        state.clock_ns += ns_of(ms, buffer.bytes);
        self.hosts.borrow_mut().insert(
            buffer.id,
            Held {
                memory: HostMemory::Registered,
                ..held
            },
        );
        Ok(HostBuffer {
            memory: HostMemory::Registered,
            ..buffer
        })
    }

    fn host_unregister(&self, buffer: HostBuffer) -> Result<HostBuffer, HardwareError> {
        let held = self.held("cuMemHostUnregister", buffer, 0)?;
        let mut state = self.state.borrow_mut();
        state.call();
        if held.memory != HostMemory::Registered {
            let meaning = "pointer does not correspond to a registered memory region";
            return Err(failed(
                ErrorKind::Other,
                "cuMemHostUnregister",
                meaning,
                713,
            ));
        }
        state.wait_for_buffer(held.buffer);
        let ms = state.spec.speeds.host.unregister_ms_per_gib;
        state.clock_ns += ns_of(ms, buffer.bytes);
        self.hosts.borrow_mut().insert(
            buffer.id,
            Held {
                memory: HostMemory::Pageable,
                ..held
            },
        );
        Ok(HostBuffer {
            memory: HostMemory::Pageable,
            ..buffer
        })
    }

    fn copy_to_device(
        &self,
        stream: Stream,
        destination: Buffer,
        source: HostBuffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let (mover, way) = (Mover::CopyEngine, HostWay::ToDevice);
        self.copy_host(HostCopy {
            mover,
            way,
            stream,
            on_device: destination,
            on_host: source,
            bytes,
        })
    }

    fn copy_to_host(
        &self,
        stream: Stream,
        destination: HostBuffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let (mover, way) = (Mover::CopyEngine, HostWay::ToHost);
        self.copy_host(HostCopy {
            mover,
            way,
            stream,
            on_device: source,
            on_host: destination,
            bytes,
        })
    }

    fn kernel_copy_to_device(
        &self,
        stream: Stream,
        destination: Buffer,
        source: HostBuffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let (mover, way) = (Mover::Kernel, HostWay::ToDevice);
        self.copy_host(HostCopy {
            mover,
            way,
            stream,
            on_device: destination,
            on_host: source,
            bytes,
        })
    }

    fn kernel_copy_to_host(
        &self,
        stream: Stream,
        destination: HostBuffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        let (mover, way) = (Mover::Kernel, HostWay::ToHost);
        self.copy_host(HostCopy {
            mover,
            way,
            stream,
            on_device: source,
            on_host: destination,
            bytes,
        })
    }

    fn host_fill(&self, buffer: HostBuffer, bytes: u64, seed: u64) -> Result<(), HardwareError> {
        self.by_processor(buffer, bytes, |state, buffer| {
            state.memory.write(buffer, bytes, Content::Pattern(seed))
        })
    }

    fn host_poison(&self, buffer: HostBuffer, bytes: u64, value: u64) -> Result<(), HardwareError> {
        self.by_processor(buffer, bytes, |state, buffer| {
            state.memory.write(buffer, bytes, Content::Poison(value))
        })
    }

    fn host_check(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        seed: u64,
        poison: u64,
    ) -> Result<PatternCheck, HardwareError> {
        self.by_processor(buffer, bytes, |state, buffer| {
            state.memory.check(buffer, bytes, seed, poison)
        })
    }

    fn host_look(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        seed: u64,
        poison: u64,
    ) -> Result<PatternCheck, HardwareError> {
        // Each word costs a cache line.
        let seen = self.by_processor(buffer, WORDS_LOOKED_AT * 64, |state, buffer| {
            state.memory.check(buffer, bytes, seed, poison)
        })?;
        let share = |words: u64| {
            words
                .saturating_mul(WORDS_LOOKED_AT)
                .checked_div(seen.words)
                .unwrap_or(0)
        };
        Ok(PatternCheck {
            words: WORDS_LOOKED_AT,
            wrong: share(seen.wrong),
            poisoned: share(seen.poisoned),
            ..seen
        })
    }

    fn copy_engines(&self, device: Device) -> Result<u32, HardwareError> {
        // One engine for peers, plus those for the host.
        let state = self.state.borrow();
        state
            .gpu(device)
            .map(|gpu| gpu.engines_reported.unwrap_or(1 + 2 * gpu.host_engines))
    }
}

//! Memory of the simulated host, and the cost of copies between it and the devices.
//!
//! Copies from and to pageable memory block the host until they have ended, as the driver's do. The processor moves the
//! bytes to a buffer of the driver's and from there to the device, or the other way round.

use crate::engine::{Few, Flow};
use crate::memory::{MemoryError, host_device};
use crate::spec::{HostSpeeds, HostWay, PairFault, Pairs};
use hardware::{
    Buffer, Device, Driver, ErrorKind, HardwareError, HostDriver, HostRoom, Location, PatternCheck,
    ProcessMemory, WORDS_LOOKED_AT,
};
use model::flow::HostMemory;
use model::placement::Engine;
use model::snapshot::ConfidentialComputing;
use model::units::{Bytes, GIB, MIB};

use super::copies::Prepared;
use super::state::State;
use super::{SimDriver, failed};

/// Memory of this process beside the buffers, bytes.
const RESIDENT: u64 = 200 * MIB;

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn ns_of(ms_per_gib: f64, bytes: u64) -> f64 {
    ms_per_gib * 1e6 * bytes as f64 / GIB as f64
}

impl SimDriver {
    /// Fails with the machine's fault of page-locking, if it has one.
    fn refusal(state: &State, call: &str) -> Result<(), HardwareError> {
        match &state.spec.faults.pinning {
            Some(fault) => Err(failed(ErrorKind::OutOfMemory, call, &fault.meaning, fault.code)),
            None => Ok(()),
        }
    }

    /// Frees memory of the host.
    pub(super) fn host_free(&self, buffer: Buffer) -> Result<(), HardwareError> {
        if buffer.host_memory() == Some(HostMemory::Registered) {
            return self.host_unregister(buffer).and_then(|buffer| self.free(buffer));
        }
        let mut state = self.state.borrow_mut();
        state.usable_buffer("cuMemFreeHost", buffer, 0)?;
        state.call();
        state.wait_for_buffer(buffer);
        let ms = if buffer.host_memory() == Some(HostMemory::Pinned) {
            *state.spec.speeds.host.unpin_ms_per_gib
        } else {
            0.0
        };
        state.clock_ns += ns_of(ms, buffer.bytes);
        state.forget_buffer(buffer);
        Ok(())
    }
}

impl State {
    /// Prepares a copy between a device and the host.
    pub(super) fn host_copy(
        &mut self,
        engine: Engine,
        device: Device,
        on_host: Buffer,
        way: HostWay,
        bytes: u64,
    ) -> Result<Prepared, HardwareError> {
        let (gpu, node) = (self.index(device)?, self.memory.node(on_host));
        let memory = on_host.host_memory().unwrap_or(HostMemory::Pageable);
        let fault = self.spec.host_fault(gpu, node, memory, way);
        let servers = self.servers(device)?;
        let server = match (engine, way) {
            (Engine::Kernel, _) => servers.multiprocessors,
            (Engine::Copy, HostWay::ToDevice) => servers.from_host,
            (Engine::Copy, HostWay::ToHost) => servers.to_host,
        };
        Ok(Prepared {
            servers: Few::one(server),
            flow: self.host_flow(engine, gpu, (node, memory), way, bytes),
            ends: (gpu, host_device(node).0),
            fault: fault.map(|fault| PairFault::new(Pairs::All, fault)),
        })
    }

    /// Returns the flow of such a copy: its hops and its rate.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn host_flow(
        &mut self,
        engine: Engine,
        gpu: u32,
        (node, memory): (u32, HostMemory),
        way: HostWay,
        bytes: u64,
    ) -> Flow {
        let HostSpeeds { up, down, both_ways, kernel_up, kernel_down, each_us, first_us, .. } =
            self.spec.speeds.host;
        let to_device = way == HostWay::ToDevice;
        let share = match engine {
            Engine::Copy if to_device => up,
            Engine::Copy => down,
            Engine::Kernel if to_device => kernel_up,
            Engine::Kernel => kernel_down,
        };
        let route = self.spec.host_route(gpu, node, to_device);
        let link = self.spec.bottleneck_gbps(&route);
        let speeds = &self.spec.speeds.host;
        let staged = match memory {
            HostMemory::Pageable if to_device => *speeds.pageable_up_gbps,
            HostMemory::Pageable => *speeds.pageable_down_gbps,
            _ => f64::INFINITY,
        };
        // If the route has no link, the rate of the GPU's own memory in the description is the limit.
        let cap = (*share * link).min(staged).min(*self.spec.gpus[gpu as usize].local_gbps);
        let hops = route.hops.iter().map(|hop| self.shared_hop(*hop)).collect();
        Flow {
            hops,
            places: [gpu, host_device(node).0],
            both_ways: *both_ways,
            each_ns: *each_us * 1e3,
            first_ns: *first_us * 1e3,
            ..Flow::new(bytes as f64, cap)
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
        Some(ProcessMemory { resident: Bytes(RESIDENT + taken) })
    }

    fn host_allocate(
        &self,
        device: Device,
        memory: HostMemory,
        node: Option<u32>,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        let mut state = self.call(device)?;
        let call = if memory == HostMemory::Pinned { "cuMemHostAlloc" } else { "mmap" };
        let own =
            state.spec.function(state.gpu(device)?.pci).and_then(|function| function.numa_node);
        let location = |memory| Location::Host { memory, node };
        let node = node.or(own).unwrap_or(0);
        let full = |_| failed(ErrorKind::OutOfMemory, call, "out of memory of the host", 2);
        let there = state.spec.numa_nodes.get(node as usize).map(|node| node.memory.0);
        let there = there.ok_or_else(|| full(MemoryError::Full))?;
        if memory == HostMemory::Pinned {
            Self::refusal(&state, call)?;
        }
        let room = state.spec.host_room(state.memory.taken_on_host());
        if bytes > room.group_leaves.unwrap_or(room.available).0 {
            return Err(full(MemoryError::Full));
        }
        let first = if memory == HostMemory::Registered { HostMemory::Pageable } else { memory };
        let buffer = state
            .memory
            .allocate(host_device(node), location(first), bytes, there)
            .map_err(full)?;
        let HostSpeeds { pin_ms_per_gib, touch_ms_per_gib, .. } = state.spec.speeds.host;
        let ms = if memory == HostMemory::Pinned { pin_ms_per_gib } else { touch_ms_per_gib };
        state.clock_ns += ns_of(*ms, bytes);
        drop(state);
        if memory != HostMemory::Registered {
            return Ok(buffer);
        }
        let registered = self.host_register(device, buffer);
        if registered.is_err() {
            self.free(buffer)?;
        }
        registered
    }

    fn host_register(&self, device: Device, buffer: Buffer) -> Result<Buffer, HardwareError> {
        let call = "cuMemHostRegister";
        let mut state = self.call(device)?;
        state.usable_buffer(call, buffer, 0)?;
        if !buffer.is_pageable() {
            let meaning = "part or all of the requested memory range is already mapped";
            return Err(failed(ErrorKind::Other, call, meaning, 712));
        }
        Self::refusal(&state, call)?;
        if let Some(info) = self.devices.iter().find(|info| info.device == device) {
            info.may_register()?;
        }
        if state.spec.host.confidential_computing != ConfidentialComputing::Off {
            let meaning = "operation not supported";
            return Err(failed(ErrorKind::Impossible, call, meaning, 801));
        }
        let ms = *state.spec.speeds.host.register_ms_per_gib;
        state.clock_ns += ns_of(ms, buffer.bytes);
        Ok(state.memory.set_memory(buffer, HostMemory::Registered))
    }

    fn host_unregister(&self, buffer: Buffer) -> Result<Buffer, HardwareError> {
        let call = "cuMemHostUnregister";
        let mut state = self.state.borrow_mut();
        state.usable_buffer(call, buffer, 0)?;
        state.call();
        if buffer.host_memory() != Some(HostMemory::Registered) {
            let meaning = "pointer does not correspond to a registered memory region";
            return Err(failed(ErrorKind::Other, call, meaning, 713));
        }
        state.wait_for_buffer(buffer);
        let ms = *state.spec.speeds.host.unregister_ms_per_gib;
        state.clock_ns += ns_of(ms, buffer.bytes);
        Ok(state.memory.set_memory(buffer, HostMemory::Pageable))
    }

    fn host_copy(
        &self,
        destination: Buffer,
        source: Buffer,
        bytes: u64,
    ) -> Result<(), HardwareError> {
        self.touch(source, bytes, |_| ())?;
        self.touch(destination, 0, |state| state.memory.copy(destination, source, bytes, None))
    }

    fn host_look(
        &self,
        buffer: Buffer,
        bytes: u64,
        seed: u64,
    ) -> Result<PatternCheck, HardwareError> {
        // Each word costs a cache line.
        let seen = self.touch(buffer, WORDS_LOOKED_AT * 64, |state| {
            state.memory.check(buffer, bytes, seed.into())
        })?;
        let share =
            |words: u64| words.saturating_mul(WORDS_LOOKED_AT).checked_div(seen.words).unwrap_or(0);
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
        state.gpu(device).map(|gpu| gpu.engines_reported.unwrap_or(1 + 2 * *gpu.host_engines))
    }
}

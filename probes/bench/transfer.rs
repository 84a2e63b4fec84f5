//! A flow with the resources to copy its bytes again and again.

use crate::Row;
use crate::bench::Bench;
use hardware::pattern::TURN_BYTES;
use hardware::{
    Buffer, Comparison, ErrorKind, HardwareError, Location, PatternCheck, Sent, Stream,
};
use model::flow::{Endpoint, Flow};
use model::placement::Engine;

/// One flow, with the resources to copy its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) flow: Flow,
    pub(crate) from: Buffer,
    pub(crate) to: Buffer,
    /// Room for another copy at the destination.
    pub(crate) spare: Option<Buffer>,
    /// How each copy is compared, if it is.
    pub(crate) comparison: Option<Comparison>,
    pub(crate) engine: Engine,
    /// NVML index of the GPU that issues the copies.
    pub(crate) issuer: u32,
    pub(crate) stream: Stream,
    /// The other GPU, by NVML index, and its current stream, if framework ordering ties it to the copies.
    pub(crate) partner: Option<(u32, Stream)>,
    /// Bytes per copy.
    pub(crate) bytes: u64,
    /// Bytes that are compared at the end.
    pub(crate) compared: u64,
    /// Copies per row.
    pub(crate) copies: u32,
    /// True if the GPUs at both ends have kernels, which fill and check.
    pub(crate) kernels: bool,
    /// The counts of a check of the poison, before any copy.
    pub(crate) poisoned: Option<PatternCheck>,
}

impl Transfer {
    /// Returns the buffer of the host, or the destination if there is none.
    pub(crate) const fn on_host(&self) -> Buffer {
        if self.from.device().is_none() { self.from } else { self.to }
    }

    /// Returns the same flow with another buffer of the host.
    pub(crate) const fn with_host(mut self, buffer: Buffer) -> Self {
        if self.from.device().is_none() {
            self.from = buffer;
        } else {
            self.to = buffer;
        }
        self
    }

    /// Returns the same flow with another number of copies in a row.
    pub(crate) const fn with_copies(self, copies: u32) -> Self {
        Self { copies, ..self }
    }

    /// Returns the bytes of the source that copies read, in two turns if it has as many.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.from.bytes.min(self.compared.saturating_add(TURN_BYTES))
    }

    /// Returns true if the processor takes part in the copies, which the host then waits for.
    pub(crate) const fn is_pageable(&self) -> bool {
        self.from.is_pageable() || self.to.is_pageable()
    }

    /// Returns the figures of this flow, still without rows.
    pub(crate) fn row(&self, at_once: u32) -> Row {
        Row {
            gpu: self.issuer,
            stream: self.stream.kind,
            copies: self.copies,
            at_once,
            ..Row::default()
        }
    }
}

impl Bench<'_> {
    /// Returns the resources of a flow: the buffers at its ends, host memory that is not in use among them, and the
    /// default stream of its issuer.
    pub(crate) fn transfer(
        &self,
        flow: Flow,
        engine: Engine,
        bytes: u64,
        in_use: &[Transfer],
    ) -> Result<Transfer, HardwareError> {
        let no_gpu = || HardwareError::new(ErrorKind::Other, "a flow without a GPU");
        let issuer = flow.from.gpu().or(flow.to.gpu()).ok_or_else(no_gpu)?;
        let device = self.open_gpu(issuer)?.device;
        let in_use: Vec<u32> =
            in_use.iter().flat_map(|transfer| [transfer.from.id, transfer.to.id]).collect();
        let buffer = |end: Endpoint, sends: bool| match end {
            Endpoint::Gpu(gpu) => {
                let open_gpu = self.open_gpu(gpu)?;
                Ok(if sends { open_gpu.send } else { open_gpu.receive })
            }
            Endpoint::Host { node, memory } => self.lend(
                device,
                Location::Host { memory, node },
                self.with_turn(bytes),
                sends,
                &in_use,
            ),
        };
        let mut gpus = flow.ends().into_iter().filter_map(Endpoint::gpu);
        Ok(Transfer {
            flow,
            from: buffer(flow.from, true)?,
            to: buffer(flow.to, false)?,
            spare: None,
            comparison: None,
            engine,
            issuer,
            stream: Stream::default_of(device),
            partner: None,
            bytes,
            compared: bytes,
            copies: 1,
            kernels: gpus.all(|gpu| self.facts().kernels_failure_of(gpu).is_none()),
            poisoned: None,
        })
    }

    /// Returns the source of a copy that follows so many others, and the part of the pattern that it holds. A source that
    /// the copies fill has one part only.
    pub(crate) fn turn(
        &self,
        transfer: &Transfer,
        before: u32,
    ) -> Result<(Buffer, u64), HardwareError> {
        let Transfer { from, compared, .. } = *transfer;
        if before.is_multiple_of(2) || compared.saturating_add(TURN_BYTES) > from.bytes {
            return Ok((from, 0));
        }
        let part = self.driver.part(from, TURN_BYTES, compared)?;
        Ok((part, TURN_BYTES / 8))
    }

    /// Returns what the destination holds if the last copy arrived.
    pub(crate) fn sent(&self, transfer: &Transfer) -> Result<Sent, HardwareError> {
        let seed = self.seed_in(transfer.from).unwrap_or_default();
        let arrived = self.copies_to(transfer.to);
        let of = |copy: u32| self.turn(transfer, copy).map(|(_, from)| from);
        let from = of(arrived.saturating_sub(1))?;
        let before = arrived.checked_sub(2).map_or(Ok(from), of)?;
        Ok(Sent { seed, from, before })
    }

    fn copies_to(&self, to: Buffer) -> u32 {
        self.arrived.borrow().get(&to.id).copied().unwrap_or(0)
    }

    /// Returns the sources of this many copies, in turn, and counts the copies. One of a part of the bytes repeats what the
    /// last copy sent: the whole stays of one part of the pattern.
    pub(crate) fn sources(
        &self,
        transfer: &Transfer,
        bytes: u64,
        times: u32,
    ) -> Result<[Buffer; 2], HardwareError> {
        let arrived = self.copies_to(transfer.to);
        if bytes != transfer.compared {
            let (source, _) = self.turn(transfer, arrived.wrapping_sub(1))?;
            return Ok([source; 2]);
        }
        let (first, second) =
            (self.turn(transfer, arrived)?, self.turn(transfer, arrived.wrapping_add(1))?);
        // Only the parity and the first two copies count.
        let made = arrived.saturating_add(times);
        let made = if made > 2 { 2 + made % 2 } else { made };
        self.arrived.borrow_mut().insert(transfer.to.id, made);
        Ok([first.0, second.0])
    }

    /// Returns the bytes of host memory for copies in turn, or for plain ones if there is no room for more.
    fn with_turn(&self, bytes: u64) -> u64 {
        let more = bytes.saturating_add(TURN_BYTES);
        if self.room(more).is_ok() { more } else { bytes }
    }

    /// Enqueues one copy of this size.
    pub(crate) fn copy_once(&self, transfer: &Transfer, bytes: u64) -> Result<(), HardwareError> {
        let Transfer { engine, stream, to, .. } = *transfer;
        let [from, _] = self.sources(transfer, bytes, 1)?;
        self.driver.copy(engine, stream, to, from, bytes)
    }

    /// Returns the host nanoseconds of a closure.
    #[allow(clippy::cast_precision_loss, reason = "host times need no more than 53 bits")]
    pub(crate) fn timed(
        &self,
        run: impl FnOnce() -> Result<(), HardwareError>,
    ) -> Result<f64, HardwareError> {
        let began = self.driver.now();
        run()?;
        Ok(self.driver.now().saturating_sub(began).as_nanos() as f64)
    }
}

//! Holds streams at the gate, and releases them together.

use std::time::{Duration, Instant};

use super::session::CudaDriver;
use hardware::{Device, ErrorKind, HardwareError, Stream};

/// Time after which a held stream opens by itself. It is longer than enqueuing ever takes, and shorter than the
/// deadline of a round, so that the report shows the cause rather than a hang. It is also shorter than the 2 s after
/// which Windows resets a GPU whose kernel does not end (TdrDelay; it holds under WSL2 too).
const GATE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time after which the driver is asked about a stream whose device does not wait yet. The query makes the driver
/// submit collected launches; under WSL2 it collects them. Chosen: ten times what a launch takes to begin.
const SUBMIT_AFTER: Duration = Duration::from_micros(100);
/// CU_STREAM_WAIT_VALUE_GEQ: wraps around, as the gate kernel's comparison does.
const WAIT_VALUE_GEQ: u32 = 0;
/// CU_STREAM_WRITE_VALUE_DEFAULT: earlier writes are visible before this one.
const WRITE_VALUE_DEFAULT: u32 = 0;

impl CudaDriver {
    /// Makes a stream wait until the gate opens.
    pub(super) fn close_gate(&self, stream: Stream) -> Result<(), HardwareError> {
        self.enter(stream.device)?;
        let handle = self.stream(stream)?;
        let gate = self.gate()?;
        let (words, reports) = (gate.addresses(stream.device)?, gate.tells(stream.device));
        let generation = gate.close();
        let held = || self.held.borrow_mut().extend(reports.then_some(stream));
        if !self.kernels_failures.borrow().contains_key(&stream.device) {
            let timeout = u64::try_from(GATE_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
            return self
                .with_kernels(stream.device, |kernels, _| {
                    kernels.gate(self.table, handle, words, generation, timeout)
                })
                .map(|()| held());
        }
        // Drivers before CUDA 11.7 have the first versions alone, which have the same parameters.
        let wait = self.table.stream_wait_value.or(self.table.stream_wait_value_v1);
        let write = self.table.stream_write_value.or(self.table.stream_write_value_v1);
        let wait = wait.ok_or_else(|| {
            HardwareError::new(
                ErrorKind::Unsupported,
                "streams cannot be held: no kernels, and no cuStreamWaitValue32",
            )
        })?;
        if let Some(write) = write {
            // SAFETY: the word is pinned host memory, mapped into every context.
            let written = unsafe { write(handle, words.arrived, generation, WRITE_VALUE_DEFAULT) };
            match self.table.check("cuStreamWriteValue32", written) {
                // Without this call the word is never written: the device never reports that it waits.
                Err(error) if error.kind == ErrorKind::Unsupported => {}
                written => written?,
            }
        }
        // SAFETY: as above.
        let waits = unsafe { wait(handle, words.flag, generation, WAIT_VALUE_GEQ) };
        self.table.check("cuStreamWaitValue32", waits).map(|()| held())
    }

    /// Waits until all held streams wait, at most this long. Returns the devices of the others.
    pub(super) fn not_held_within(&self, limit: Duration) -> Vec<Device> {
        let Some(gate) = self.gate.get() else {
            return Vec::new();
        };
        let (mut held, began, mut submitted) = (self.held.take(), Instant::now(), false);
        loop {
            // Read the clock before the words: if this thread was suspended in between, it checks once more.
            let waited = began.elapsed();
            held.retain(|stream| !gate.has(stream.device));
            if !held.is_empty() && !submitted && waited >= SUBMIT_AFTER {
                submitted = true;
                held.iter().for_each(|stream| self.submit(*stream));
            } else if held.is_empty() || waited >= limit {
                return held.into_iter().map(|stream| stream.device).collect();
            }
            std::hint::spin_loop();
        }
    }

    /// Releases all held streams.
    pub(super) fn open_gate(&self) {
        self.held.take();
        if let Some(gate) = self.gate.get() {
            gate.open();
        }
    }

    /// Makes the driver submit the launches that it has collected for a stream.
    fn submit(&self, stream: Stream) {
        if let (Some(query), Ok(handle), Ok(())) =
            (self.table.stream_query, self.stream(stream), self.enter(stream.device))
        {
            // SAFETY: the stream is alive. A later wait for the stream returns its errors.
            let _ = unsafe { query(handle) };
        }
    }
}

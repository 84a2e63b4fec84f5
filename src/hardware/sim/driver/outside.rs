//! Access from outside the driver: the fake driver, whose host memory is real, reads and writes the simulated memory.

use std::cell::RefMut;

use super::SimDriver;
use super::Written;
use super::state::State;
use crate::memory::Content;
use hardware::{HardwareError, HostBuffer, Stream};

impl SimDriver {
    /// Returns the state, caught up with the host's clock.
    pub(super) fn caught_up(&self) -> RefMut<'_, State> {
        let mut state = self.state.borrow_mut();
        state.catch_up();
        state
    }

    /// Reads the current bytes at the beginning of a buffer of the host.
    pub fn host_read(&self, buffer: HostBuffer, into: &mut [u8]) -> Result<(), HardwareError> {
        let held = self.held("reading", buffer, into.len() as u64)?;
        let mut state = self.caught_up();
        state.memory.read(held.buffer, into);
        Ok(())
    }

    /// Returns the seed if a buffer of the host now begins with `bytes` bytes of a pattern.
    pub fn host_pattern(
        &self,
        buffer: HostBuffer,
        bytes: u64,
    ) -> Result<Option<u64>, HardwareError> {
        let held = self.held("reading", buffer, bytes)?;
        let mut state = self.caught_up();
        Ok(state.memory.pattern(held.buffer, bytes))
    }

    /// Returns true if everything on a stream has ended.
    pub fn is_idle(&self, stream: Stream) -> Result<bool, HardwareError> {
        let state = self.caught_up();
        Ok(state
            .engine
            .last_of(state.lane(stream)?)
            .is_none_or(|last| state.engine.end_of(last).is_some()))
    }

    /// Writes a buffer of the host from its beginning on, in no time. These are bytes that the program has written
    /// itself.
    pub fn host_write(
        &self,
        buffer: HostBuffer,
        bytes: u64,
        written: Written<'_>,
    ) -> Result<(), HardwareError> {
        let held = self.held("writing", buffer, bytes)?;
        let content = match written {
            Written::Pattern(seed) => Content::Pattern(seed),
            Written::Poison(value) => Content::Poison(value),
            Written::Bytes(all) => Content::Bytes(all.into()),
        };
        let mut state = self.caught_up();
        state.memory.write(held.buffer, bytes, content);
        Ok(())
    }
}

//! Access from outside the driver: the fake driver, whose host memory is real, reads and writes the simulated memory.

use std::cell::RefMut;

use super::SimDriver;
use super::state::State;
use crate::memory::Content;
use hardware::{Buffer, HardwareError, Sent, Stream};

/// The contents written to host memory.
#[derive(Debug, Clone, Copy)]
pub enum Written<'a> {
    /// The pattern of this seed, from a byte of it on.
    Pattern(u64, u64),
    /// The poison of this seed, from a byte of it on.
    Poison(u64, u64),
    Bytes(&'a [u8]),
}

impl SimDriver {
    /// Returns the state, caught up with the host's clock.
    pub(super) fn caught_up(&self) -> RefMut<'_, State> {
        let mut state = self.state.borrow_mut();
        state.catch_up();
        state
    }

    /// Reads the current bytes at the beginning of a buffer of the host.
    pub fn host_read(&self, buffer: Buffer, into: &mut [u8]) -> Result<(), HardwareError> {
        let mut state = self.caught_up();
        state.usable_buffer("reading", buffer, into.len() as u64)?;
        state.memory.read(buffer, into);
        Ok(())
    }

    /// Returns the part of a pattern that the first `bytes` bytes of a buffer of the host now are, if they are one.
    pub fn host_pattern(&self, buffer: Buffer, bytes: u64) -> Result<Option<Sent>, HardwareError> {
        let mut state = self.caught_up();
        state.usable_buffer("reading", buffer, bytes)?;
        Ok(state.memory.pattern(buffer, bytes))
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
        buffer: Buffer,
        bytes: u64,
        written: Written<'_>,
    ) -> Result<(), HardwareError> {
        let mut state = self.caught_up();
        state.usable_buffer("writing", buffer, bytes)?;
        let (content, from) = match written {
            Written::Pattern(seed, from) => (Content::Pattern(seed), from),
            Written::Poison(value, from) => (Content::Poison(value), from),
            Written::Bytes(all) => (Content::Bytes(all.into()), 0),
        };
        state.memory.write_from(buffer, bytes, content, from);
        Ok(())
    }
}

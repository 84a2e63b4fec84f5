//! Host buffers. Page-locked ones are allocated once and reused, since page-locking costs half a millisecond per MiB.
//! All buffers together stay within the limit on host memory.

use super::bench::Bench;
use super::kept::Kept;
pub(super) use super::kept::Lent;
use hardware::{Buffer, Device, ErrorKind, HardwareError, Location};
use model::flow::HostMemory;
use model::units::Bytes;

/// Marks a shortage of host memory as a hindrance: it is no evidence about a GPU.
pub(super) fn of_host(error: HardwareError) -> HardwareError {
    let kind = if error.kind == ErrorKind::OutOfMemory {
        ErrorKind::Hindered
    } else {
        error.kind
    };
    HardwareError { kind, ..error }
}

impl Bench<'_> {
    /// Returns a buffer of at least this size that is not lent already: a kept one, or a new one. Prefers one with a
    /// pattern for copies to a device, and one without for copies from it.
    pub(super) fn lend(
        &self,
        device: Device,
        (memory, node): (HostMemory, Option<u32>),
        bytes: u64,
        filled: bool,
        lent: &[Lent],
    ) -> Result<Lent, HardwareError> {
        let is_lent = |kept: &Kept| lent.iter().any(|lent| lent.buffer.id == kept.buffer.id);
        let fits = |kept: &&Kept| {
            let Buffer {
                location,
                bytes: of,
                ..
            } = kept.buffer;
            location == Location::Host { memory, node } && of >= bytes && !is_lent(kept)
        };
        let best = |kept: &&Kept| kept.seed.is_some() != filled;
        let found = self
            .hosts
            .kept
            .borrow()
            .iter()
            .filter(fits)
            .min_by_key(best)
            .copied();
        if let Some(Kept { buffer, seed, .. }) = found {
            return Ok(Lent { buffer, seed });
        }
        if self.room(bytes).is_err() {
            self.let_go(|kept| !is_lent(kept))?;
        }
        let buffer = self.take_host(device, (memory, node), bytes)?;
        self.hosts
            .kept
            .borrow_mut()
            .push(Kept { buffer, seed: None });
        Ok(Lent { buffer, seed: None })
    }

    /// Records the contents of a buffer.
    pub(super) fn holds(&self, buffer: Buffer, seed: Option<u64>) {
        let mut kept = self.hosts.kept.borrow_mut();
        kept.iter_mut()
            .filter(|kept| kept.buffer.id == buffer.id)
            .for_each(|kept| kept.seed = seed);
    }

    /// Frees the buffers that are not worth keeping: all but pinned memory.
    pub(super) fn give_back(&self) -> Result<(), HardwareError> {
        self.let_go(|kept| kept.buffer.host_memory() != Some(HostMemory::Pinned))
    }

    fn let_go(&self, which: impl Fn(&Kept) -> bool) -> Result<(), HardwareError> {
        let (gone, kept) = self
            .hosts
            .kept
            .take()
            .into_iter()
            .partition::<Vec<_>, _>(which);
        self.hosts.kept.replace(kept);
        // Free all of them, even if one cannot be freed.
        let freed: Vec<_> = gone
            .into_iter()
            .map(|kept| self.free_host(kept.buffer))
            .collect();
        freed.into_iter().collect()
    }

    /// Allocates host memory, if there is room for it.
    ///
    /// # Errors
    ///
    /// It would exceed the limit, or the driver refuses it.
    pub(super) fn take_host(
        &self,
        device: Device,
        (memory, node): (HostMemory, Option<u32>),
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        self.room(bytes)?;
        let buffer = self
            .driver
            .host_allocate(device, memory, node, bytes)
            .map_err(of_host)?;
        self.hosts.taken.set(self.hosts.taken.get() + bytes);
        Ok(buffer)
    }

    /// Frees host memory.
    pub(super) fn free_host(&self, buffer: Buffer) -> Result<(), HardwareError> {
        self.driver.free(buffer)?;
        self.hosts
            .taken
            .set(self.hosts.taken.get().saturating_sub(buffer.bytes));
        Ok(())
    }

    /// Returns an error unless this many more bytes are within the limit.
    fn room(&self, bytes: u64) -> Result<(), HardwareError> {
        let taken = self.hosts.taken.get();
        let most = self.driver.host_room()?.most(taken);
        if taken.saturating_add(bytes) <= most {
            return Ok(());
        }
        let why = format!(
            "no more than {} of the host's memory are taken (5% of what is available, half of what the control group \
             leaves), and {} would be needed",
            Bytes(most),
            Bytes(taken.saturating_add(bytes))
        );
        Err(HardwareError::new(ErrorKind::Hindered, why))
    }
}

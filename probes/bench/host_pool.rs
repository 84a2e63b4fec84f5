//! Host buffers. They are allocated once and reused: page-locking costs half a millisecond per MiB, and fresh pages of
//! ordinary memory a third of that. All buffers together stay within the limit on host memory.

use crate::bench::Bench;
use hardware::{Buffer, Device, ErrorKind, HardwareError, Location};
use model::flow::HostMemory;
use model::units::Bytes;

/// Marks a shortage of memory as a hindrance: it is no evidence about a GPU.
pub(crate) fn of_host(error: HardwareError) -> HardwareError {
    let kind = if error.kind == ErrorKind::OutOfMemory { ErrorKind::Hindered } else { error.kind };
    HardwareError { kind, ..error }
}

impl Bench<'_> {
    /// Returns a buffer of at least this size that is not in use, by its number: a kept one, or a new one. Prefers one
    /// with a pattern for copies to a device, and one without for copies from it.
    pub(crate) fn lend(
        &self,
        device: Device,
        location: Location,
        bytes: u64,
        filled: bool,
        in_use: &[u32],
    ) -> Result<Buffer, HardwareError> {
        let fits = |kept: &&Buffer| {
            kept.location == location && kept.bytes >= bytes && !in_use.contains(&kept.id)
        };
        let best = |kept: &&Buffer| self.seed_in(**kept).is_some() != filled;
        let kept = self.kept.borrow();
        if let Some(buffer) = kept.iter().filter(fits).min_by_key(best) {
            return Ok(*buffer);
        }
        drop(kept);
        self.make_room(bytes, in_use)?;
        let buffer = self.take_host(device, location, bytes)?;
        self.kept.borrow_mut().push(buffer);
        Ok(buffer)
    }

    /// Frees all buffers that are not in use, if there is not enough room for this many more bytes.
    pub(crate) fn make_room(&self, bytes: u64, in_use: &[u32]) -> Result<(), HardwareError> {
        if self.room(bytes).is_ok() {
            return Ok(());
        }
        self.let_go(|kept| !in_use.contains(&kept.id))
    }

    /// Frees the buffers that no other round borrows: registered memory.
    pub(crate) fn give_back(&self) -> Result<(), HardwareError> {
        self.let_go(|kept| kept.host_memory() == Some(HostMemory::Registered))
    }

    fn let_go(&self, which: impl Fn(&Buffer) -> bool) -> Result<(), HardwareError> {
        let (gone, kept) = self.kept.take().into_iter().partition::<Vec<_>, _>(which);
        self.kept.replace(kept);
        // Free all of them, even if one cannot be freed.
        let freed: Vec<_> = gone.into_iter().map(|kept| self.free_host(kept)).collect();
        freed.into_iter().collect()
    }

    /// Allocates host memory, if there is room for it.
    ///
    /// # Errors
    ///
    /// It would exceed the limit, or the driver refuses it.
    pub(crate) fn take_host(
        &self,
        device: Device,
        location: Location,
        bytes: u64,
    ) -> Result<Buffer, HardwareError> {
        let Location::Host { memory, node } = location else {
            return Err(HardwareError::new(ErrorKind::Other, "no memory of the host"));
        };
        self.room(bytes)?;
        let buffer = self.driver.host_allocate(device, memory, node, bytes).map_err(of_host)?;
        self.taken.set(self.taken.get() + bytes);
        Ok(buffer)
    }

    /// Frees host memory.
    pub(crate) fn free_host(&self, buffer: Buffer) -> Result<(), HardwareError> {
        self.driver.free(buffer)?;
        self.holds(buffer, None);
        self.taken.set(self.taken.get().saturating_sub(buffer.bytes));
        Ok(())
    }

    /// Returns an error unless this many more bytes are within the limit.
    pub(crate) fn room(&self, bytes: u64) -> Result<(), HardwareError> {
        let taken = self.taken.get();
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

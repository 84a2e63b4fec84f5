//! Buffers of the host: page-locked ones are taken once and used again, since page-locking costs half a millisecond
//! per MiB, and all of them together stay within what may be taken.

use super::bench::Bench;
use super::kept::Kept;
pub(super) use super::kept::Lent;
use crate::hardware::{Device, ErrorKind, HardwareError, HostBuffer};
use crate::model::flow::HostMemory;
use crate::model::units::Bytes;

/// The host's memory is nothing of a GPU's: that there is none says nothing of the hardware.
pub(super) fn of_host(error: HardwareError) -> HardwareError {
    let kind = if error.kind == ErrorKind::OutOfMemory {
        ErrorKind::Hindered
    } else {
        error.kind
    };
    HardwareError { kind, ..error }
}

impl Bench<'_> {
    /// A buffer of at least this size, and none of those that are lent already: one that is kept, or a new one. For copies to
    /// a device one is preferred that holds a pattern, for copies from it one that does not.
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
            let Kept {
                node: of, buffer, ..
            } = kept;
            (buffer.memory, *of) == (memory, node) && buffer.bytes >= bytes && !is_lent(kept)
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
        self.hosts.kept.borrow_mut().push(Kept {
            node,
            buffer,
            seed: None,
        });
        Ok(Lent { buffer, seed: None })
    }

    /// Notes what a buffer holds now.
    pub(super) fn holds(&self, buffer: HostBuffer, seed: Option<u64>) {
        let mut kept = self.hosts.kept.borrow_mut();
        kept.iter_mut()
            .filter(|kept| kept.buffer.id == buffer.id)
            .for_each(|kept| kept.seed = seed);
    }

    /// Gives back what is not worth keeping: all but pinned memory.
    pub(super) fn give_back(&self) -> Result<(), HardwareError> {
        self.let_go(|kept| kept.buffer.memory != HostMemory::Pinned)
    }

    fn let_go(&self, which: impl Fn(&Kept) -> bool) -> Result<(), HardwareError> {
        let (gone, kept) = self
            .hosts
            .kept
            .take()
            .into_iter()
            .partition::<Vec<_>, _>(which);
        self.hosts.kept.replace(kept);
        // One that cannot be freed must not keep the others.
        let freed: Vec<_> = gone
            .into_iter()
            .map(|kept| self.free_host(kept.buffer))
            .collect();
        freed.into_iter().collect()
    }

    /// Takes memory of the host, if there is room for it.
    ///
    /// # Errors
    ///
    /// It would be more than may be taken, or the driver refuses it.
    pub(super) fn take_host(
        &self,
        device: Device,
        (memory, node): (HostMemory, Option<u32>),
        bytes: u64,
    ) -> Result<HostBuffer, HardwareError> {
        self.room(bytes)?;
        let buffer = self
            .driver
            .host_allocate(device, memory, node, bytes)
            .map_err(of_host)?;
        self.hosts.taken.set(self.hosts.taken.get() + bytes);
        Ok(buffer)
    }

    /// Gives memory of the host back.
    pub(super) fn free_host(&self, buffer: HostBuffer) -> Result<(), HardwareError> {
        self.driver.host_free(buffer)?;
        self.hosts
            .taken
            .set(self.hosts.taken.get().saturating_sub(buffer.bytes));
        Ok(())
    }

    /// An error unless so many bytes more may be taken.
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

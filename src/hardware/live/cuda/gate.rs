//! The words in host memory that hold streams and release them, and in which devices report that they wait.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use super::table::Table;
use hardware::{Device, ErrorKind, HardwareError};

/// CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: all contexts can access the words.
const HOST_PORTABLE_MAPPED: u32 = 3;

/// Index of the first device's word. It is in another cache line than the words that all devices read, and than the
/// neighbouring line, which processors fetch with it.
const ARRIVED: usize = 32;
/// Value of a device's word that the device has never written. Generations count from 0.
const NEVER: u32 = u32::MAX;

/// Words of pinned host memory: the generation up to which gates are open, the flag that one opened after its time
/// limit, and for each device the last generation that it waits for.
pub(super) struct Gate {
    words: *const AtomicU32,
    devices: usize,
    closed: Cell<u32>,
}

/// Addresses of the words that one device needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// The generation up to which gates are open.
    pub flag: u64,
    /// Set when a gate opens after its time limit.
    pub expired: u64,
    /// The generation that the device waits for.
    pub arrived: u64,
}

impl Gate {
    /// Allocates the words for this many devices; some context must be current. They are never freed.
    pub(super) fn new(table: &Table, devices: usize) -> Result<Self, HardwareError> {
        let mut words: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let result = unsafe {
            (table.host_allocate)(&raw mut words, (ARRIVED + devices) * 4, HOST_PORTABLE_MAPPED)
        };
        let words = table.made("cuMemHostAlloc", result, words)?.cast::<u32>();
        for at in 0..ARRIVED + devices {
            // SAFETY: the word lies within the memory allocated above, aligned to a page, and nobody else knows it yet.
            unsafe { words.add(at).write(if at < ARRIVED { 0 } else { NEVER }) };
        }
        Ok(Self { words: words.cast(), devices, closed: Cell::new(0) })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < ARRIVED + self.devices, "{at}");
        // SAFETY: callers pass the index of an existing word, which was initialised when it was allocated and is never
        // freed. Devices write no word that the host writes too but `expired`, each with a store that is atomic on the
        // bus.
        unsafe { &*self.words.add(at) }
    }

    fn arrived(&self, device: Device) -> Option<&AtomicU32> {
        let at = device.0 as usize;
        (at < self.devices).then(|| self.word(ARRIVED + at))
    }

    /// Returns the addresses of a device's words for devices. Under unified addressing, which every driver that
    /// peerscope runs on has, they are the host's addresses.
    ///
    /// # Errors
    ///
    /// There is no such device.
    pub(super) fn addresses(&self, device: Device) -> Result<Words, HardwareError> {
        let unknown =
            || HardwareError::new(ErrorKind::Other, format!("there is no device {}", device.0));
        let address = |word: &AtomicU32| std::ptr::from_ref(word) as u64;
        let arrived = self.arrived(device).map(address).ok_or_else(unknown)?;
        Ok(Words { flag: address(self.word(0)), expired: address(self.word(1)), arrived })
    }

    /// Returns the generation that streams are to wait for. Streams that are held before the next opening share it, and
    /// open together.
    pub(super) fn close(&self) -> u32 {
        if self.closed.get() == self.word(0).load(Ordering::Acquire) {
            self.closed.set(self.closed.get().wrapping_add(1));
        }
        self.closed.get()
    }

    /// Returns true if a device has ever reported that it waits. Before that, its silence proves nothing.
    pub(super) fn tells(&self, device: Device) -> bool {
        self.arrived(device).is_some_and(|word| word.load(Ordering::Acquire) != NEVER)
    }

    /// Returns true if a device waits for the generation of the last gate, or has passed it. Compares by the
    /// difference, as the kernel does.
    pub(super) fn has(&self, device: Device) -> bool {
        let waits = |word: &AtomicU32| {
            word.load(Ordering::Acquire).wrapping_sub(self.closed.get()) < 1 << 31
        };
        self.arrived(device).is_none_or(waits)
    }

    /// Opens the gate for all streams that wait.
    pub(super) fn open(&self) {
        self.word(0).store(self.closed.get(), Ordering::Release);
    }

    /// Returns true if a gate opened after its time limit since the last call.
    pub(super) fn take_expired(&self) -> bool {
        self.word(1).swap(0, Ordering::AcqRel) != 0
    }
}

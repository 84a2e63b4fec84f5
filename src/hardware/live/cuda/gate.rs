//! The two words in host memory that hold streams and release them.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use super::table::Table;
use hardware::HardwareError;

/// CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: all contexts reach the words.
const HOST_PORTABLE_MAPPED: u32 = 3;

/// Two words of pinned host memory: the generation up to which gates are open, and whether one
/// opened after its time limit.
pub struct Gate {
    words: *const [AtomicU32; 2],
    closed: Cell<u32>,
}

impl Gate {
    /// Takes the words; some context must be current. They are never given back.
    pub fn new(table: &Table) -> Result<Self, HardwareError> {
        let mut words: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let result = unsafe { (table.host_allocate)(&raw mut words, 8, HOST_PORTABLE_MAPPED) };
        let words = table.made("cuMemHostAlloc", result, words)?;
        // SAFETY: eight bytes, aligned to a page, that were just allocated and that nobody else
        // knows yet.
        unsafe { words.cast::<[u32; 2]>().write([0, 0]) };
        Ok(Self {
            words: words.cast(),
            closed: Cell::new(0),
        })
    }

    fn words(&self) -> &[AtomicU32; 2] {
        // SAFETY: the words were initialised when they were taken and are never freed. Devices
        // write only the second, with a store that is atomic on the bus.
        unsafe { &*self.words }
    }

    /// Addresses of both words for devices: under unified addressing, which every driver that
    /// peerscope runs on has, they are the host's.
    pub fn addresses(&self) -> (u64, u64) {
        let first = self.words as u64;
        (first, first + 4)
    }

    /// The generation that streams are to wait for. Several that are held before the next opening
    /// share it, and open together.
    pub fn close(&self) -> u32 {
        if self.closed.get() == self.words()[0].load(Ordering::Acquire) {
            self.closed.set(self.closed.get().wrapping_add(1));
        }
        self.closed.get()
    }

    /// Opens for all that wait.
    pub fn open(&self) {
        self.words()[0].store(self.closed.get(), Ordering::Release);
    }

    /// Whether a gate opened after its time limit since the last call.
    pub fn take_expired(&self) -> bool {
        self.words()[1].swap(0, Ordering::AcqRel) != 0
    }
}

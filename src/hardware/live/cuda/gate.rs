//! The words in host memory that hold streams and release them, and by which devices say that they wait.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use super::table::Table;
use hardware::{Device, ErrorKind, HardwareError};

/// CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: all contexts reach the words.
const HOST_PORTABLE_MAPPED: u32 = 3;

/// Where the words of the devices begin, in words: in another cache line than those that all devices read, and that
/// beside it, which processors fetch with it.
const ARRIVED: usize = 32;
/// The word of a device that has never written it. Generations count from 0.
const NEVER: u32 = u32::MAX;

/// Words of pinned host memory: the generation up to which gates are open, whether one opened after its time limit, and
/// for each device the last generation that it waits for.
pub struct Gate {
    words: *const AtomicU32,
    devices: usize,
    closed: Cell<u32>,
}

/// Addresses of the words that one device needs.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// The generation up to which gates are open.
    pub flag: u64,
    /// Set where a gate opened after its time limit.
    pub expired: u64,
    /// The generation that the device waits for.
    pub arrived: u64,
}

impl Gate {
    /// Takes the words for so many devices; some context must be current. They are never given back.
    pub fn new(table: &Table, devices: usize) -> Result<Self, HardwareError> {
        let mut words: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let result = unsafe {
            (table.host_allocate)(
                &raw mut words,
                (ARRIVED + devices) * 4,
                HOST_PORTABLE_MAPPED,
            )
        };
        let words = table.made("cuMemHostAlloc", result, words)?.cast::<u32>();
        for at in 0..ARRIVED + devices {
            // SAFETY: the word lies within what was just allocated, aligned to a page, and nobody else knows it yet.
            unsafe { words.add(at).write(if at < ARRIVED { 0 } else { NEVER }) };
        }
        Ok(Self {
            words: words.cast(),
            devices,
            closed: Cell::new(0),
        })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < ARRIVED + self.devices, "{at}");
        // SAFETY: callers name a word that there is; it was initialised when it was taken and is never freed. Devices
        // write no word that the host writes too but `expired`, each with a store that is atomic on the bus.
        unsafe { &*self.words.add(at) }
    }

    fn arrived(&self, device: Device) -> Option<&AtomicU32> {
        let at = device.0 as usize;
        (at < self.devices).then(|| self.word(ARRIVED + at))
    }

    /// Addresses of a device's words for devices: under unified addressing, which every driver that
    /// peerscope runs on has, they are the host's.
    ///
    /// # Errors
    ///
    /// There is no such device.
    pub fn addresses(&self, device: Device) -> Result<Words, HardwareError> {
        let unknown =
            || HardwareError::new(ErrorKind::Other, format!("there is no device {}", device.0));
        let address = |word: &AtomicU32| std::ptr::from_ref(word) as u64;
        let arrived = self.arrived(device).map(address).ok_or_else(unknown)?;
        Ok(Words {
            flag: address(self.word(0)),
            expired: address(self.word(1)),
            arrived,
        })
    }

    /// The generation that streams are to wait for. Several that are held before the next opening
    /// share it, and open together.
    pub fn close(&self) -> u32 {
        if self.closed.get() == self.word(0).load(Ordering::Acquire) {
            self.closed.set(self.closed.get().wrapping_add(1));
        }
        self.closed.get()
    }

    /// Whether a device has ever said that it waits. Before it has, nothing follows from its silence.
    pub fn tells(&self, device: Device) -> bool {
        self.arrived(device)
            .is_some_and(|word| word.load(Ordering::Acquire) != NEVER)
    }

    /// Whether a device waits for the generation of the last gate, or has come through it. Compared by the
    /// difference, as the kernel does.
    pub fn has(&self, device: Device) -> bool {
        let waits = |word: &AtomicU32| {
            word.load(Ordering::Acquire).wrapping_sub(self.closed.get()) < 1 << 31
        };
        self.arrived(device).is_none_or(waits)
    }

    /// Opens for all that wait.
    pub fn open(&self) {
        self.word(0).store(self.closed.get(), Ordering::Release);
    }

    /// Whether a gate opened after its time limit since the last call.
    pub fn take_expired(&self) -> bool {
        self.word(1).swap(0, Ordering::AcqRel) != 0
    }
}

//! What a process does where the system would end it: on a file that grows too large, and without memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

use rustix::process::{Resource, getrlimit};

/// The exit code of every contract for what could not be tested.
const INCOMPLETE: i32 = 3;

/// Makes a write beyond the limit of file sizes an error (EFBIG). By default SIGXFSZ ends the process.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The system's allocator. Where there is no memory, it says so and ends the process with the code for
/// "could not test"; Rust's own end is a crash, which looks like a fault.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: every call is handed on to the system's allocator, and only its answers are handed back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this very function.
        or_end(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        or_end(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
    }
}

fn or_end(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        end();
    }
    memory
}

/// Nothing here may allocate.
#[cold]
fn end() -> ! {
    let mut text = [0_u8; 160];
    let mut rest = &mut text[..];
    let written = match getrlimit(Resource::As).current {
        Some(limit) => writeln!(
            rest,
            "peerscope: out of memory: the limit of address space (ulimit -v) is {} KiB; raise it and check again",
            limit >> 10
        ),
        None => writeln!(rest, "peerscope: out of memory"),
    };
    let left = rest.len();
    if written.is_ok() {
        // If it cannot be written, the exit code still says so.
        let _ = rustix::io::write(rustix::stdio::stderr(), &text[..text.len() - left]);
    }
    // SAFETY: ends the process without anything that would need memory.
    unsafe { libc::_exit(INCOMPLETE) }
}

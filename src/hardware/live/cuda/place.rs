//! Memory of this process on a chosen NUMA node.

use std::ffi::c_void;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::affinity::Affinity;
use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError, root};

/// Most nodes that a mask of one word can name.
const MOST_NODES: u32 = 64;
/// MPOL_DEFAULT: memory comes from the node of the thread that touches it first.
const DEFAULT: libc::c_long = 0;
/// MPOL_PREFERRED. With MPOL_BIND and a full node, the kernel would end processes rather than use another node.
const PREFERRED: libc::c_long = 1;
/// MPOL_F_NODE | MPOL_F_ADDR: asks for the node of an address.
const NODE_OF_ADDRESS: libc::c_long = 3;

/// Memory from the system that is unmapped on drop.
pub(super) struct Mapping {
    pointer: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Allocates ordinary memory and writes to every page of it.
    pub(super) fn new(bytes: usize) -> Result<Self, HardwareError> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at an address that the system chooses.
        let pointer = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if pointer == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            let message = format!("no {bytes} bytes of memory: {error}");
            return Err(match limits::blame(Scarce::Memory) {
                Some(limit) => {
                    HardwareError::new(ErrorKind::Hindered, format!("{limit}: {message}"))
                }
                None => HardwareError::new(ErrorKind::OutOfMemory, message),
            });
        }
        let mapping = Self { pointer, bytes };
        for offset in (0..bytes).step_by(rustix::param::page_size()) {
            // SAFETY: a byte of the mapping above, which nobody else knows yet.
            unsafe { pointer.cast::<u8>().add(offset).write_volatile(1) };
        }
        Ok(mapping)
    }

    /// Returns the start of the mapping.
    pub(super) const fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing uses any more. It cannot fail for a whole mapping.
        let _ = unsafe { libc::munmap(self.pointer, self.bytes) };
    }
}

/// Runs a function so that the memory that it touches first comes from a node: on that node's processors, and with the
/// node preferred. Either may be refused (in a container, say), and one is enough.
pub(super) fn on_node<T>(affinity: &Affinity, node: Option<u32>, run: impl FnOnce() -> T) -> T {
    let Some(node) = node.filter(|node| *node < MOST_NODES) else {
        return run();
    };
    let before = sched_getaffinity(None).ok();
    affinity.run_on(&processors(&root(), node).unwrap_or_default());
    let preferred = prefer(Some(node));
    let done = run();
    if preferred {
        prefer(None);
    }
    if let Some(before) = before {
        // This set was allowed before.
        let _ = sched_setaffinity(None, &before);
    }
    done
}

/// Makes this thread's memory come from a node, or restores the default. Returns true if the kernel allows it.
fn prefer(node: Option<u32>) -> bool {
    let mask: libc::c_ulong = node.map_or(0, |node| 1 << node);
    let policy = if node.is_some() { PREFERRED } else { DEFAULT };
    let pointer = if node.is_some() {
        &raw const mask
    } else {
        std::ptr::null()
    };
    let bits = if node.is_some() {
        libc::c_ulong::from(MOST_NODES) + 1
    } else {
        0
    };
    // SAFETY: reads a mask of `bits` bits, from which the kernel subtracts one.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, pointer, bits) == 0 }
}

/// Fails if memory is known to be on another node than `node`. The kernel may not report the node of memory that the
/// driver allocated.
pub(super) fn is_on(node: Option<u32>, pointer: *mut c_void) -> Result<(), HardwareError> {
    // Below a test root, the nodes are not this machine's.
    let Some(wanted) = node.filter(|_| root() == Path::new("/")) else {
        return Ok(());
    };
    let mut found: libc::c_int = -1;
    let none = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: writes one int, the node of the page at this address.
    let code = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut found,
            none,
            0 as libc::c_ulong,
            pointer,
            NODE_OF_ADDRESS,
        )
    };
    match u32::try_from(found) {
        Ok(found) if code == 0 && found != wanted => {
            let why = format!(
                "memory of NUMA node {wanted} could not be had, the system gave some of node {found}: the node is full, \
                 or this process or container may not use it"
            );
            Err(HardwareError::new(ErrorKind::Hindered, why))
        }
        _ => Ok(()),
    }
}

/// Returns the processors of a node; `None` if the kernel does not list any.
fn processors(root: &Path, node: u32) -> Option<Vec<usize>> {
    let list =
        std::fs::read_to_string(root.join(format!("sys/devices/system/node/node{node}/cpulist")))
            .ok()?;
    let mut all = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        all.extend(first..=last.min(CpuSet::MAX_CPU));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_node_is_had_and_the_thread_comes_back() {
        let (before, affinity) = (sched_getaffinity(None).unwrap(), Affinity::default());
        let mapping = on_node(&affinity, Some(0), || Mapping::new(1 << 20)).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        is_on(Some(0), mapping.pointer()).unwrap();
        is_on(None, mapping.pointer()).unwrap();
        // Memory cannot come from a node that does not exist.
        let elsewhere = on_node(&affinity, Some(63), || Mapping::new(1 << 20)).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let error = is_on(Some(63), elsewhere.pointer());
        assert!(error.is_ok() || error.unwrap_err().kind == ErrorKind::Hindered);
    }

    #[test]
    fn lists_of_processors_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            let node = folder.path().join("sys/devices/system/node/node2");
            std::fs::create_dir_all(&node).unwrap();
            std::fs::write(node.join("cpulist"), text).unwrap();
        };
        assert_eq!(processors(folder.path(), 2), None);
        write("1-3,8\n");
        assert_eq!(processors(folder.path(), 2).unwrap(), [1, 2, 3, 8]);
        write("\n");
        assert_eq!(
            processors(folder.path(), 2),
            None,
            "a node with memory alone"
        );
    }
}

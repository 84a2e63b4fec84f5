//! Memory of this process on a chosen NUMA node.

use std::ffi::{OsStr, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FallocateFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::affinity::Affinity;
use super::error::addressable;
use super::words::Words;
use hardware::limits::{self, Scarce};
use hardware::{ErrorKind, HardwareError, root};

/// Words of a mask of nodes: Linux has at most 1024 nodes (CONFIG_NODES_SHIFT).
const MASK_WORDS: usize = 16;
/// MPOL_PREFERRED. With MPOL_BIND and a full node, the kernel would end processes rather than use another node.
const PREFERRED: libc::c_int = 1;

/// The places that memory of a thread comes from: a mode of set_mempolicy(2), and its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    mode: libc::c_int,
    nodes: [libc::c_ulong; MASK_WORDS],
}

impl Policy {
    /// Bits of a mask, plus the one that the kernel subtracts.
    const BITS: libc::c_ulong =
        MASK_WORDS as libc::c_ulong * libc::c_ulong::BITS as libc::c_ulong + 1;

    /// Returns the policy that prefers a node.
    fn preferring(node: u32) -> Option<Self> {
        let mut nodes = [0; MASK_WORDS];
        let word = nodes.get_mut((node / libc::c_ulong::BITS) as usize)?;
        *word = 1 << (node % libc::c_ulong::BITS);
        Some(Self { mode: PREFERRED, nodes })
    }

    /// Returns the policy of this thread, which numactl may have set. None if the kernel does not tell.
    fn now() -> Option<Self> {
        let (mut mode, mut nodes) = (0, [0; MASK_WORDS]);
        let nowhere = std::ptr::null_mut::<c_void>();
        // SAFETY: writes one int and a mask of `BITS` bits.
        let code = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.as_mut_ptr(),
                Self::BITS,
                nowhere,
                0 as libc::c_ulong,
            )
        };
        (code == 0).then_some(Self { mode, nodes })
    }

    /// Makes this the policy of this thread, if the kernel allows it.
    fn set(&self) {
        // SAFETY: reads a mask of `BITS` bits. A refusal leaves the policy as it was.
        let _ = unsafe {
            libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), Self::BITS)
        };
    }
}

/// Memory from the system that is unmapped on drop.
pub(super) struct Mapping {
    pointer: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Allocates ordinary memory and writes to every page of it, by several threads, which have the policy and the
    /// processors of this one. The kernel clears a page at its first write: one thread takes 6 to 14 ms for 32 MiB.
    pub(super) fn new(bytes: usize) -> Result<Self, HardwareError> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
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
        // SAFETY: the mapping above: whole pages, which nobody else knows yet.
        let words = unsafe { Words::new(pointer.cast(), bytes.div_ceil(8)) };
        words.touch(rustix::param::page_size() / 8);
        Ok(mapping)
    }

    /// Maps a file that other processes map too, and writes nothing to it.
    fn of_file(file: &std::fs::File, bytes: usize) -> Result<Self, HardwareError> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (nowhere, file) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping of an open file at an address that the system chooses. Others write to it too, so its
        // bytes are only read after they were waited for.
        let pointer = unsafe { libc::mmap(nowhere, bytes, access, libc::MAP_SHARED, file, 0) };
        if pointer == libc::MAP_FAILED {
            return Err(of_file("mmap", &std::io::Error::last_os_error()));
        }
        Ok(Self { pointer, bytes })
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

/// Folder for memory that processes share: where shm_open(3) puts it.
const SHARED: &str = "/dev/shm";

/// The path of a file that another process opens and then removes.
pub(super) struct SharedFile(PathBuf);

impl SharedFile {
    /// Returns the path for another process, or removes the file if none will open it.
    pub(super) fn keep_if(self, kept: bool) -> Vec<u8> {
        if !kept {
            let _ = std::fs::remove_file(&self.0);
        }
        self.0.into_os_string().into_vec()
    }
}

fn of_file(call: &str, error: &std::io::Error) -> HardwareError {
    let code = error.raw_os_error().unwrap_or_default().unsigned_abs();
    let message = format!("{call}, {SHARED}: {error}");
    match limits::of_error(error) {
        Some(limit) => HardwareError::new(ErrorKind::Hindered, format!("{message}; {limit}")),
        None => HardwareError::new(ErrorKind::Other, message),
    }
    .with_code(code)
}

/// Creates memory in a file of /dev/shm. Its room is taken at once: a write beyond it would end the process.
pub(super) fn create_shared(bytes: u64) -> Result<(Mapping, SharedFile), HardwareError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(SHARED).join(format!("peerscope-{}-{count}", std::process::id()));
    let opened = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = opened.map_err(|error| of_file("open", &error))?;
    let path = SharedFile(path);
    let room = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
    let mapped = room
        .map_err(|error| of_file("fallocate", &error.into()))
        .and_then(|()| Mapping::of_file(&file, addressable(bytes)?));
    match mapped {
        Ok(mapping) => Ok((mapping, path)),
        Err(error) => {
            path.keep_if(false);
            Err(error)
        }
    }
}

/// Maps memory of another process by the path of its file, and removes the file: no third process needs it.
pub(super) fn open_shared(path: &[u8], bytes: u64) -> Result<Mapping, HardwareError> {
    let path = Path::new(OsStr::from_bytes(path));
    let opened = File::options().read(true).write(true).open(path);
    let file = opened.map_err(|error| of_file("open", &error))?;
    let _ = std::fs::remove_file(path);
    // Beyond the end of the file an access would end the process.
    let there = file.metadata().map_err(|error| of_file("fstat", &error))?;
    if there.len() < bytes {
        let why = format!("{SHARED}: the file has {} of {bytes} bytes", there.len());
        return Err(HardwareError::new(ErrorKind::Other, why));
    }
    Mapping::of_file(&file, addressable(bytes)?)
}

/// Runs a function so that the memory that it touches first comes from a node: on that node's processors, and with the
/// node preferred. Either may be refused (in a container, say), and one is enough. Afterwards both are as before, so that
/// `numactl` holds for all other memory.
pub(super) fn on_node<T>(affinity: &Affinity, node: Option<u32>, run: impl FnOnce() -> T) -> T {
    let Some((node, preferring)) = node.and_then(|node| Some((node, Policy::preferring(node)?)))
    else {
        return run();
    };
    let before = sched_getaffinity(None).ok();
    affinity.run_on(&processors(&root(), node).unwrap_or_default());
    let policy = Policy::now();
    if policy.is_some() {
        preferring.set();
    }
    let done = run();
    if let Some(policy) = policy {
        policy.set();
    }
    if let Some(before) = before {
        // This set was allowed before.
        let _ = sched_setaffinity(None, &before);
    }
    done
}

/// Fails if a page of this memory is known to be on another node than `node`. The kernel may not report the node of
/// memory that the driver allocated.
pub(super) fn is_on(
    node: Option<u32>,
    pointer: *mut c_void,
    bytes: usize,
) -> Result<(), HardwareError> {
    // Below a test root, the nodes are not this machine's.
    let Some(wanted) = node.filter(|_| root() == Path::new("/")) else {
        return Ok(());
    };
    let offsets = (0..bytes).step_by(rustix::param::page_size());
    let pages: Vec<*mut c_void> = offsets.map(|offset| pointer.wrapping_byte_add(offset)).collect();
    let mut nodes: Vec<libc::c_int> = vec![-1; pages.len()];
    // SAFETY: without wanted nodes the call moves nothing. It reads the addresses of this process's pages, and writes a
    // node or a negative error for each.
    let code = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0 as libc::c_int,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<libc::c_int>(),
            nodes.as_mut_ptr(),
            0 as libc::c_int,
        )
    };
    match elsewhere(wanted, &nodes).filter(|_| code == 0) {
        Some((found, share)) => {
            let why = format!(
                "memory of NUMA node {wanted} could not be had, the system gave {share} of {} pages on node {found}: the \
                 node is full, or this process or container may not use it",
                pages.len()
            );
            Err(HardwareError::new(ErrorKind::Hindered, why))
        }
        None => Ok(()),
    }
}

/// Returns the first other node that pages are on, and the number of pages that are not on the wanted one. Errors in
/// place of a node count as that one.
fn elsewhere(wanted: u32, nodes: &[libc::c_int]) -> Option<(u32, usize)> {
    let mut others =
        nodes.iter().filter_map(|node| u32::try_from(*node).ok()).filter(|node| *node != wanted);
    let first = others.next()?;
    Some((first, 1 + others.count()))
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
        is_on(Some(0), mapping.pointer(), 1 << 20).unwrap();
        is_on(None, mapping.pointer(), 1 << 20).unwrap();
        // Memory cannot come from a node that does not exist.
        let elsewhere = on_node(&affinity, Some(63), || Mapping::new(1 << 20)).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let error = is_on(Some(63), elsewhere.pointer(), 1 << 20);
        assert!(error.is_ok() || error.unwrap_err().kind == ErrorKind::Hindered);
    }

    #[test]
    #[allow(clippy::disallowed_macros, reason = "a skipped test says so")]
    fn a_policy_of_numactl_is_kept() {
        // MPOL_INTERLEAVE, as `numactl --interleave=0` sets it for the whole process; here for this thread.
        let mut interleaved = Policy::preferring(0).unwrap();
        interleaved.mode = 3;
        interleaved.set();
        if Policy::now() != Some(interleaved) {
            eprintln!("SKIPPED: the kernel lets this process set no memory policy");
            return;
        }
        let inside = on_node(&Affinity::default(), Some(0), Policy::now);
        assert_eq!(inside, Policy::preferring(0));
        assert_eq!(Policy::now(), Some(interleaved));
    }

    #[test]
    fn one_page_elsewhere_is_found() {
        assert_eq!(elsewhere(0, &[0; 8]), None);
        assert_eq!(elsewhere(0, &[0, 0, 0, 1, 1, 0]), Some((1, 2)));
        // -EFAULT: the kernel does not tell the node of this page.
        assert_eq!(elsewhere(0, &[-14, 0, -2]), None);
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
        assert_eq!(processors(folder.path(), 2), None, "a node with memory alone");
    }
}

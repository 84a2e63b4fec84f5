//! The limits of this process, and which of them stopped an operation. A driver that gets no file or no memory returns
//! errors that look like those of a broken GPU, so they are never reported without the limit.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use super::{HardwareError, root};

/// Open files that suffice for every driver: the usual soft limit of Linux. With fewer, a driver may run short.
const ENOUGH_FILES: u64 = 1024;
/// Free files below which the limit counts as reached: chosen.
const FREE_FILES: u64 = 64;
/// Processes and threads of a user that suffice for a driver: chosen. CUDA starts some for every GPU.
const ENOUGH_PROCESSES: u64 = 256;
/// Free processes and threads below which a container's limit counts as reached: chosen.
const FREE_PIDS: u64 = 8;
/// Bytes of address space that suffice for a driver: chosen. CUDA reserves addresses for the memory of all GPUs and of
/// the host together. That is some 3.2 TB in a server with 8 GPUs of 141 GB and 2 TB of its own; what CUDA takes beside
/// that is tens to hundreds of GB in known reports.
const ENOUGH_ADDRESSES: u64 = 4 << 40;
/// Free bytes of address space below which the limit counts as reached: chosen.
const FREE_ADDRESSES: u64 = 64 << 30;
/// Bytes of locked memory that suffice for a driver: chosen, more than is page-locked here.
const ENOUGH_LOCKED: u64 = 1 << 30;

/// True if a limit has stopped any operation of this process.
static WAS_IN_THE_WAY: AtomicBool = AtomicBool::new(false);

/// The scarce resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scarce {
    /// Open files.
    Files,
    /// Open files, if hardly any are left now.
    LastFiles,
    /// Processes and threads.
    Threads,
    /// Address space.
    Memory,
    /// Lockable memory.
    Locked,
    FileSize,
    /// One of these; the driver does not report which.
    Something,
}

/// Raises the limit of open files as far as this process is allowed.
pub fn raise() {
    let files = getrlimit(Resource::Nofile);
    // If it cannot be raised, the limit is named once it is reached.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
}

/// Returns true if a limit has stopped any operation of this process so far.
pub fn was_in_the_way() -> bool {
    WAS_IN_THE_WAY.load(Ordering::Relaxed)
}

/// Returns the limit that explains a shortage: `the limit of open files (ulimit -n) is 24`. `None` if no limit explains
/// it.
pub fn blame(scarce: Scarce) -> Option<String> {
    let found = match scarce {
        Scarce::Files => open_files(),
        Scarce::LastFiles => last_files(),
        Scarce::Threads => pids(&root()).or_else(threads_by_memory).or_else(|| processes(u64::MAX)),
        Scarce::Memory => memory(),
        Scarce::Locked => locked(),
        Scarce::FileSize => file_size(),
        Scarce::Something => short_of_files()
            .or_else(|| pids(&root()))
            .or_else(|| processes(ENOUGH_PROCESSES))
            .or_else(memory),
    };
    WAS_IN_THE_WAY.fetch_or(found.is_some(), Ordering::Relaxed);
    found
}

/// Returns the limit that explains an error of the system. EAGAIN is excluded: it means a limit only if something was
/// to be started, see [`not_started`].
pub fn of_error(error: &io::Error) -> Option<String> {
    // A library that wraps an error keeps only its kind, and "too many open files" has no kind.
    let code = error.raw_os_error();
    let no_file_left =
        || rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0).err() == Some(Errno::MFILE);
    match error.kind() {
        ErrorKind::OutOfMemory => blame(Scarce::Memory),
        ErrorKind::FileTooLarge => blame(Scarce::FileSize),
        _ if code == Some(Errno::MFILE.raw_os_error()) || (code.is_none() && no_file_left()) => {
            blame(Scarce::Files)
        }
        _ => None,
    }
}

/// Reports that a thread or process could not be started, after the limit that explains the error. EAGAIN and ENOMEM
/// are a shortage of the system even if no limit is known: they accuse no hardware.
pub fn not_started(sentence: String, error: &io::Error) -> HardwareError {
    let is_shortage = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory);
    let limit = match error.kind() {
        ErrorKind::WouldBlock => blame(Scarce::Threads),
        _ => of_error(error),
    };
    match limit {
        Some(limit) => {
            HardwareError::new(super::ErrorKind::Hindered, format!("{limit}: {sentence}"))
        }
        None if is_shortage => HardwareError::new(super::ErrorKind::Hindered, sentence),
        None => HardwareError::new(super::ErrorKind::Other, sentence),
    }
}

fn named(what: &str, option: &str, value: u64) -> String {
    format!("the limit of {what} (ulimit {option}) is {value}")
}

fn open_files() -> Option<String> {
    getrlimit(Resource::Nofile).current.map(|limit| named("open files", "-n", limit))
}

fn short_of_files() -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    if limit < ENOUGH_FILES { open_files() } else { last_files() }
}

fn last_files() -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    // If the files cannot be counted, assume that none are left.
    let used = std::fs::read_dir("/proc/self/fd").map_or(u64::MAX, |files| files.count() as u64);
    (used.saturating_add(FREE_FILES) > limit).then(open_files).flatten()
}

/// Returns the limit of the user's processes if it is below `enough`. It does not bind root.
fn processes(enough: u64) -> Option<String> {
    let limit = getrlimit(Resource::Nproc)
        .current
        .filter(|limit| *limit < enough && !getuid().is_root())?;
    Some(named("processes and threads", "-u", limit))
}

/// Returns the limit of address space if it is below what a driver may need, or nearly used up.
fn memory() -> Option<String> {
    let limit = getrlimit(Resource::As).current?;
    let is_short =
        limit < ENOUGH_ADDRESSES || used_addresses()?.saturating_add(FREE_ADDRESSES) > limit;
    is_short.then(|| format!("{} KiB", named("address space", "-v", limit >> 10)))
}

/// Returns the bytes of address space that this process has mapped.
fn used_addresses() -> Option<u64> {
    let pages: u64 =
        std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Returns the limit of locked memory if it is below what drivers and their programs may need. It does not bind root.
fn locked() -> Option<String> {
    let limit = getrlimit(Resource::Memlock)
        .current
        .filter(|limit| *limit < ENOUGH_LOCKED && !getuid().is_root())?;
    Some(format!("{} KiB", named("locked memory", "-l", limit >> 10)))
}

/// Returns the limit of address space if a thread's stack no longer fits: the stack is mapped before the thread starts.
fn threads_by_memory() -> Option<String> {
    const STACK: u64 = 16 << 20;
    let limit = getrlimit(Resource::As).current?;
    (used_addresses()?.saturating_add(STACK) > limit).then(memory).flatten()
}

fn file_size() -> Option<String> {
    let limit = getrlimit(Resource::Fsize).current?;
    Some(format!("the limit of the size of files (ulimit -f) is {limit} bytes"))
}

/// Returns the limit of processes and threads of the control group (of a container, for example) if it is reached.
/// Checks the group itself and those above it.
fn pids(root: &Path) -> Option<String> {
    let read = |file: PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let folders = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let top = root.join(match controllers {
            "" => "sys/fs/cgroup",
            _ if controllers.split(',').any(|one| one == "pids") => "sys/fs/cgroup/pids",
            _ => return None,
        });
        let own = top.join(path.trim_start_matches('/'));
        let above: Vec<_> = own
            .ancestors()
            .take_while(|folder| folder.starts_with(&top))
            .map(Path::to_owned)
            .collect();
        Some(above)
    });
    folders.flatten().find_map(|folder| {
        let (most, now) = (read(folder.join("pids.max"))?, read(folder.join("pids.current"))?);
        (now + FREE_PIDS > most).then(|| {
            format!("the limit of processes and threads of the control group or container (pids.max) is {most}")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_is_full_is_named_and_one_that_is_not_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        assert_eq!(pids(folder.path()), None, "no groups at all");
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/b/pids.max", "max\n");
        write("sys/fs/cgroup/a/b/pids.current", "30\n");
        assert_eq!(pids(folder.path()), None);
        write("sys/fs/cgroup/a/pids.max", "32\n");
        write("sys/fs/cgroup/a/pids.current", "10\n");
        assert_eq!(pids(folder.path()), None);
        write("sys/fs/cgroup/a/pids.current", "32\n");
        assert!(pids(folder.path()).unwrap().contains("container (pids.max) is 32"));
        // The first cgroup version, and a container that sees its own group as the top.
        write("proc/self/cgroup", "8:pids:/docker/1\n0::/\n");
        write("sys/fs/cgroup/pids/pids.max", "20\n");
        write("sys/fs/cgroup/pids/pids.current", "19\n");
        assert!(pids(folder.path()).unwrap().contains("is 20"));
    }

    #[test]
    fn errors_of_the_system_are_explained_by_their_limit_alone() {
        let other = io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
        assert_eq!(of_error(&other), None);
        assert_eq!(
            not_started("it failed".into(), &other),
            HardwareError::new(super::super::ErrorKind::Other, "it failed")
        );
        let files = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        // EAGAIN from a stream that would block is no limit, regardless of the user.
        assert_eq!(of_error(&io::Error::from_raw_os_error(Errno::AGAIN.raw_os_error())), None);
        let threads = io::Error::from_raw_os_error(Errno::AGAIN.raw_os_error());
        let shortage = not_started("it failed".into(), &threads);
        assert_eq!(shortage.kind, super::super::ErrorKind::Hindered);
        assert!(shortage.message.ends_with("it failed"), "{shortage}");
        let error = not_started("it failed".into(), &files);
        assert_eq!(error.kind, super::super::ErrorKind::Hindered);
        assert!(error.message.starts_with("the limit of open files (ulimit -n) is "), "{error}");
        assert!(error.message.ends_with(": it failed"), "{error}");
    }
}

//! The lock that allows one check of a machine at a time. Two that measure at once would each see the other's copies as
//! slow links.
//!
//! The lock is an abstract Unix socket that listens. No file has to be writable, a process that dies leaves nothing
//! behind, and every user can take it. The kernel itself reports the holder, while a file would contain only what
//! somebody wrote into it. There is one lock per network namespace: a container with a network of its own has a lock of
//! its own. Such containers still share the driver's control device if its file is mounted into them, so that is locked
//! too.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use hardware::{Holder, Lock, NotLocked, root};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::peer::peer;

/// The socket's name, the same for every version.
const NAME: &[u8] = b"peerscope.check";
/// Environment variable for tests, whose machines are not this one: a suffix of the name.
const OTHER: &str = "PEERSCOPE_LOCK";

/// Takes the lock of this machine; never waits.
///
/// # Errors
///
/// Another process holds it, or no lock is possible here.
pub(crate) fn take() -> Result<Lock, NotLocked> {
    lock_both(&name(), &root()).inspect(pass_on)
}

/// Returns the holder of the lock; does not wait for that process.
pub(crate) fn holder() -> Holder {
    ask(&name()).unwrap_or_default()
}

/// Lets child processes inherit the lock. At exit the kernel closes their files from the last one opened to the first,
/// so the driver's files close before these.
fn pass_on(lock: &Lock) {
    for file in &lock.0 {
        // If this fails, the next check may begin a little early.
        let _ = fcntl_setfd(file, FdFlags::empty());
    }
}

fn name() -> Vec<u8> {
    let other = std::env::var_os(OTHER).unwrap_or_default();
    [NAME, other.as_bytes()].concat()
}

/// Takes both locks, or the one that is possible here.
fn lock_both(name: &[u8], root: &Path) -> Result<Lock, NotLocked> {
    let (socket, refused) = match lock(name) {
        Ok(socket) => (Some(socket), None),
        Err(NotLocked::Impossible(why)) => (None, Some(why)),
        Err(NotLocked::Taken) => return Err(NotLocked::Taken),
    };
    match (lock_device(root)?, refused) {
        (None, Some(why)) => Err(NotLocked::Impossible(why)),
        (device, _) => Ok(Lock(
            socket.map(OwnedFd::from).into_iter().chain(device.map(OwnedFd::from)).collect(),
        )),
    }
}

fn lock(name: &[u8]) -> Result<UnixListener, NotLocked> {
    match SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address))
    {
        Ok(socket) => Ok(socket),
        Err(why) if why.kind() == ErrorKind::AddrInUse => Err(NotLocked::Taken),
        Err(why) => Err(NotLocked::Impossible(format!(
            "this machine could not be locked ({why}): another check at the same time would not be noticed"
        ))),
    }
}

/// Locks the driver's control device; returns `None` if there is none that can be locked.
fn lock_device(root: &Path) -> Result<Option<File>, NotLocked> {
    let Ok(device) = File::open(root.join("dev/nvidiactl")) else {
        return Ok(None);
    };
    match flock(&device, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(device)),
        Err(why) if why == Errno::WOULDBLOCK => Err(NotLocked::Taken),
        Err(_) => Ok(None),
    }
}

fn ask(name: &[u8]) -> Result<Holder, Error> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    let (process, user) = peer(&socket)?;
    // The kernel reports 0 for a process of another container.
    let process = Some(process).filter(|process| *process != 0);
    Ok(Holder { process, user: Some(user), age: process.and_then(age) })
}

/// Returns the time since a process started; `None` if /proc hides it.
fn age(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Fields are counted after the name, which may contain anything. The start is field 22, in ticks since boot.
    let ticks: u64 = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(19)?.parse().ok()?;
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let up = Duration::new(u64::try_from(up.tv_sec).ok()?, 0);
    up.checked_sub(Duration::from_secs(ticks / rustix::param::clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(test: &str) -> Vec<u8> {
        format!("peerscope.test.{}.{test}", std::process::id()).into_bytes()
    }

    #[test]
    fn one_at_a_time_and_the_kernel_says_who() {
        let name = own("one");
        let first = lock(&name).unwrap();
        // More connections than the kernel queues for a process that accepts none.
        for _ in 0..10_000 {
            assert!(matches!(lock(&name), Err(NotLocked::Taken)), "it was taken twice");
        }
        for _ in 0..10 {
            let holder = ask(&name).unwrap();
            assert_eq!(holder.process, Some(std::process::id()));
            assert_eq!(holder.user, Some(rustix::process::getuid().as_raw()));
            assert!(holder.age.is_some_and(|age| age < Duration::from_secs(3600)), "{holder:?}");
            let words = holder.to_string();
            assert!(words.starts_with(&format!(
                "another peerscope checks this machine: process {}",
                std::process::id()
            )));
            assert!(words.contains(", since ") && words.ends_with(" s)"), "{words}");
        }
        drop(first);
        assert!(lock(&name).is_ok(), "it was not given back");
    }

    #[test]
    fn one_of_many_that_start_at_once_gets_it() {
        let name = own("many");
        let all = std::sync::Barrier::new(8);
        let held = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        all.wait();
                        let lock = lock(&name);
                        all.wait();
                        lock.is_ok()
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|held| *held).count()
        });
        assert_eq!(held, 1);
    }

    #[test]
    fn a_holder_that_does_not_listen_or_is_not_seen_is_reported_as_far_as_it_is_known() {
        // This socket is bound but does not listen: asking for its holder must not wait for ever.
        let name = own("deaf");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
        assert!(matches!(lock(&name), Err(NotLocked::Taken)), "it was taken twice");
        assert!(ask(&name).is_err());
        assert_eq!(
            Holder::default().to_string(),
            "another peerscope checks this machine: a process that cannot be seen from here"
        );
        let hidden = Holder { process: Some(7), user: Some(4_000_000_000), age: None };
        assert_eq!(
            hidden.to_string(),
            "another peerscope checks this machine: process 7 of user 4000000000"
        );
    }

    #[test]
    fn where_there_can_be_no_lock_a_sentence_says_so() {
        let Err(NotLocked::Impossible(why)) = lock(&[b'x'; 300]) else {
            panic!("a name that is too long")
        };
        assert!(why.starts_with("this machine could not be locked ("), "{why}");
    }

    #[test]
    fn the_control_device_is_held_by_one_and_need_not_be_there() {
        let root = tempfile::tempdir().unwrap();
        assert!(lock_device(root.path()).unwrap().is_none());
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        let held = lock_device(root.path()).unwrap();
        assert!(held.is_some());
        assert!(matches!(lock_device(root.path()), Err(NotLocked::Taken)), "it was taken twice");
        drop(held);
        assert!(lock_device(root.path()).unwrap().is_some(), "it was not given back");
    }

    #[test]
    fn where_one_lock_cannot_be_had_the_other_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let too_long = [b'x'; 300];
        assert!(matches!(lock_both(&too_long, root.path()), Err(NotLocked::Impossible(_))));
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        let held = lock_both(&too_long, root.path()).unwrap();
        assert!(matches!(lock_both(&own("other"), root.path()), Err(NotLocked::Taken)));
        assert!(matches!(lock_both(&too_long, root.path()), Err(NotLocked::Taken)));
        drop(held);
        assert!(lock_both(&own("other"), root.path()).is_ok(), "it was not given back");
    }

    #[test]
    fn what_a_worker_has_left_of_it_still_locks() {
        let name = own("inherited");
        let lock = Lock(vec![super::lock(&name).unwrap().into()]);
        pass_on(&lock);
        // The child holds the inherited files for as long as its end of the pipe is open.
        let mut worker =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        drop(lock);
        assert!(matches!(super::lock(&name), Err(NotLocked::Taken)), "it was given up");
        drop(worker.stdin.take());
        worker.wait().unwrap();
        assert!(super::lock(&name).is_ok());
    }
}

//! One check of a machine at a time: two that measure at once would each see the other's copies as slow
//! links.
//!
//! The lock is an abstract Unix socket that listens. No file has to be writable, nothing is left behind
//! by a process that dies, every user can take it, and the kernel itself says who holds it: what a file
//! would say is what somebody wrote into it. It is one per network namespace: a container with a network
//! of its own has a lock of its own. Containers share the driver's control device, though, where its file is
//! mounted into them; so that is locked too.

use std::fmt;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, test_kill_process};
use time::OffsetDateTime;

use super::{Machine, live, root};

/// The socket's name, the same for every version.
const NAME: &[u8] = b"peerscope.check";
/// For tests, whose machines are not this one: what is added to the name.
const OTHER: &str = "PEERSCOPE_LOCK";

/// Holds the machine until it is dropped, or the process ends however it does; and until the processes have ended
/// that this one starts meanwhile. They are workers, and the GPUs are not free before the last of them is gone.
#[derive(Debug)]
pub struct Lock {
    socket: Option<UnixListener>,
    device: Option<File>,
}

impl Lock {
    /// Lets other processes inherit it. The kernel closes their files from the last one opened to the first, so
    /// those of the driver before these.
    fn pass_on(&self) {
        let files = [
            self.socket.as_ref().map(AsFd::as_fd),
            self.device.as_ref().map(AsFd::as_fd),
        ];
        // Where it cannot be, the next check may begin a little early.
        for file in files.into_iter().flatten() {
            let _ = fcntl_setfd(file, FdFlags::empty());
        }
    }
}

/// Why the lock was not taken.
#[derive(Debug)]
pub enum NotLocked {
    /// Somebody else has it; [`Machine::holder`] says who.
    Taken,
    /// There can be no lock here; a sentence says why.
    Impossible(String),
}

impl Machine {
    /// Takes the lock of this machine; never waits. A simulated machine is nobody else's.
    ///
    /// # Errors
    ///
    /// Somebody else has it, or there can be none.
    pub fn lock(&self) -> Result<Lock, NotLocked> {
        match self {
            Self::Live => lock_both(&name(), &root()).inspect(Lock::pass_on),
            Self::Simulated(_) => Ok(Lock {
                socket: None,
                device: None,
            }),
        }
    }

    /// Who holds the lock, as far as the kernel tells. To be asked now and then only: the kernel keeps every
    /// question until the holder ends, and has room for some thousand.
    pub fn holder(&self) -> Holder {
        match self {
            Self::Live => Holder::of(&name()).unwrap_or_default(),
            Self::Simulated(_) => Holder::default(),
        }
    }
}

fn name() -> Vec<u8> {
    let other = std::env::var_os(OTHER).unwrap_or_default();
    [NAME, other.as_bytes()].concat()
}

/// Takes both locks, or the one that can be had here.
fn lock_both(name: &[u8], root: &Path) -> Result<Lock, NotLocked> {
    let (socket, refused) = match lock(name) {
        Ok(socket) => (Some(socket), None),
        Err(NotLocked::Impossible(why)) => (None, Some(why)),
        Err(NotLocked::Taken) => return Err(NotLocked::Taken),
    };
    match (lock_device(root)?, refused) {
        (None, Some(why)) => Err(NotLocked::Impossible(why)),
        (device, _) => Ok(Lock { socket, device }),
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

/// Locks the driver's control device; nothing where there is none that can be locked.
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

/// Who holds a lock, as far as the kernel tells.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Holder {
    process: Option<u32>,
    user: Option<u32>,
    /// For how long the process has been there.
    age: Option<Duration>,
}

impl Holder {
    /// Whether that process has ended, so that it is only a worker of it that still holds the lock. Not known of one
    /// that cannot be seen from here.
    pub fn is_gone(&self) -> bool {
        let Some(pid) = self
            .process
            .and_then(|process| Pid::from_raw(i32::try_from(process).ok()?))
        else {
            return false;
        };
        test_kill_process(pid) == Err(Errno::SRCH)
    }

    /// Asks the kernel; does not wait for the process.
    fn of(name: &[u8]) -> Result<Self, Error> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        let (process, user) = live::peer(&socket)?;
        // 0 is a process of another container.
        let process = Some(process).filter(|process| *process != 0);
        Ok(Self {
            process,
            user: Some(user),
            age: process.and_then(age),
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another peerscope checks this machine")?;
        match self.process {
            Some(process) => write!(f, ": process {process}")?,
            None => f.write_str(": a process that cannot be seen from here")?,
        }
        if let Some(user) = self.user {
            match user_name(user) {
                Some(name) => write!(f, " of user {name}")?,
                None => write!(f, " of user {user}")?,
            }
        }
        if let Some(age) = self.age {
            let since = OffsetDateTime::from(SystemTime::now() - age);
            let (hour, minute, second) = since.time().as_hms();
            write!(
                f,
                ", since {hour:02}:{minute:02}:{second:02} UTC ({} s)",
                age.as_secs()
            )?;
        }
        Ok(())
    }
}

/// For how long a process has been there; none where /proc hides it.
fn age(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may hold anything; the start is field 22, in ticks since the machine's start.
    let ticks: u64 = stat
        .get(stat.rfind(')')? + 1..)?
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let up = Duration::new(u64::try_from(up.tv_sec).ok()?, 0);
    up.checked_sub(Duration::from_secs(
        ticks / rustix::param::clock_ticks_per_second().max(1),
    ))
}

/// The name of a user of this machine.
fn user_name(user: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    };
    users.lines().find_map(named)
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
        // Far more often than the kernel keeps connections for a process that takes none.
        for _ in 0..10_000 {
            assert!(
                matches!(lock(&name), Err(NotLocked::Taken)),
                "it was taken twice"
            );
        }
        for _ in 0..10 {
            let holder = Holder::of(&name).unwrap();
            assert_eq!(holder.process, Some(std::process::id()));
            assert_eq!(holder.user, Some(rustix::process::getuid().as_raw()));
            assert!(
                holder
                    .age
                    .is_some_and(|age| age < Duration::from_secs(3600)),
                "{holder:?}"
            );
            let words = holder.to_string();
            assert!(words.starts_with(&format!(
                "another peerscope checks this machine: process {}",
                std::process::id()
            )));
            assert!(
                words.contains(", since ") && words.ends_with(" s)"),
                "{words}"
            );
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
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .filter(|held| *held)
                .count()
        });
        assert_eq!(held, 1);
    }

    #[test]
    fn a_holder_that_does_not_listen_or_is_not_seen_is_reported_as_far_as_it_is_known() {
        // Bound and not listening: whoever it is, it is not asked for ever.
        let name = own("deaf");
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
        assert!(
            matches!(lock(&name), Err(NotLocked::Taken)),
            "it was taken twice"
        );
        assert!(Holder::of(&name).is_err());
        assert_eq!(
            Holder::default().to_string(),
            "another peerscope checks this machine: a process that cannot be seen from here"
        );
        let hidden = Holder {
            process: Some(7),
            user: Some(4_000_000_000),
            age: None,
        };
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
        assert!(
            why.starts_with("this machine could not be locked ("),
            "{why}"
        );
    }

    #[test]
    fn the_control_device_is_held_by_one_and_need_not_be_there() {
        let root = tempfile::tempdir().unwrap();
        assert!(lock_device(root.path()).unwrap().is_none());
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        let held = lock_device(root.path()).unwrap();
        assert!(held.is_some());
        assert!(
            matches!(lock_device(root.path()), Err(NotLocked::Taken)),
            "it was taken twice"
        );
        drop(held);
        assert!(
            lock_device(root.path()).unwrap().is_some(),
            "it was not given back"
        );
    }

    #[test]
    fn where_one_lock_cannot_be_had_the_other_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let too_long = [b'x'; 300];
        assert!(matches!(
            lock_both(&too_long, root.path()),
            Err(NotLocked::Impossible(_))
        ));
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        let held = lock_both(&too_long, root.path()).unwrap();
        assert!(matches!(
            lock_both(&own("other"), root.path()),
            Err(NotLocked::Taken)
        ));
        assert!(matches!(
            lock_both(&too_long, root.path()),
            Err(NotLocked::Taken)
        ));
        drop(held);
        assert!(
            lock_both(&own("other"), root.path()).is_ok(),
            "it was not given back"
        );
    }

    #[test]
    fn users_have_names() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(4_000_000_000), None);
    }

    #[test]
    fn who_has_ended_is_told_from_who_cannot_be_seen() {
        let holder = |process| Holder {
            process,
            ..Holder::default()
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(holder(Some(child.id())).is_gone());
        assert!(!holder(Some(std::process::id())).is_gone() && !holder(Some(1)).is_gone());
        assert!(!holder(None).is_gone());
    }

    #[test]
    fn what_a_worker_has_left_of_it_still_locks() {
        let name = own("inherited");
        let lock = Lock {
            socket: Some(super::lock(&name).unwrap()),
            device: None,
        };
        lock.pass_on();
        // It has what it inherits for as long as its end of the pipe is open.
        let mut worker = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(lock);
        assert!(
            matches!(super::lock(&name), Err(NotLocked::Taken)),
            "it was given up"
        );
        drop(worker.stdin.take());
        worker.wait().unwrap();
        assert!(super::lock(&name).is_ok());
    }
}

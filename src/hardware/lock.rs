//! The lock of a machine: its holder, and the reason why it was not taken. Each machine implements the locking itself.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use time::OffsetDateTime;

/// Holds the machine until it is dropped or the process ends in any way, and until the processes that inherit these
/// files have ended. Those are workers, and the GPUs are not free before the last of them is gone.
#[derive(Debug, Default)]
pub struct Lock(pub Vec<OwnedFd>);

/// The reason why the lock was not taken.
#[derive(Debug)]
pub enum NotLocked {
    /// Another process holds it; [`crate::Machine::holder`] returns which.
    Taken,
    /// No lock is possible here; the sentence gives the reason.
    Impossible(String),
}

/// The holder of a lock, as far as the kernel reports it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Holder {
    /// The process; `None` if it cannot be seen from here.
    pub process: Option<u32>,
    /// The user that owns the process.
    pub user: Option<u32>,
    /// Time since the process started.
    pub age: Option<Duration>,
}

impl Holder {
    /// Returns true if that process has ended, so that only a worker of it still holds the lock. False if the process
    /// cannot be seen from here.
    pub fn is_gone(&self) -> bool {
        let Some(pid) =
            self.process.and_then(|process| Pid::from_raw(i32::try_from(process).ok()?))
        else {
            return false;
        };
        test_kill_process(pid) == Err(Errno::SRCH)
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
            write!(f, ", since {hour:02}:{minute:02}:{second:02} UTC ({} s)", age.as_secs())?;
        }
        Ok(())
    }
}

/// Returns the name of a user of this machine.
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

    #[test]
    fn users_have_names() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(4_000_000_000), None);
    }

    #[test]
    fn who_has_ended_is_told_from_who_cannot_be_seen() {
        let holder = |process| Holder { process, ..Holder::default() };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(holder(Some(child.id())).is_gone());
        assert!(!holder(Some(std::process::id())).is_gone() && !holder(Some(1)).is_gone());
        assert!(!holder(None).is_gone());
    }
}

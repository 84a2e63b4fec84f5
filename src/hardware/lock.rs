//! The lock of a machine: who holds it, and why it was not taken. How a machine is locked is its own matter.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use time::OffsetDateTime;

/// Holds the machine until it is dropped, or the process ends however it does; and until the processes have ended
/// that inherit these files. They are workers, and the GPUs are not free before the last of them is gone.
#[derive(Debug, Default)]
pub struct Lock(pub Vec<OwnedFd>);

/// Why the lock was not taken.
#[derive(Debug)]
pub enum NotLocked {
    /// Somebody else has it; [`crate::Machine::holder`] says who.
    Taken,
    /// There can be no lock here; a sentence says why.
    Impossible(String),
}

/// Who holds a lock, as far as the kernel tells.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Holder {
    /// The process; unknown where it cannot be seen from here.
    pub process: Option<u32>,
    /// The user that it belongs to.
    pub user: Option<u32>,
    /// For how long the process has been there.
    pub age: Option<Duration>,
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
}

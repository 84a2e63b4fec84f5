//! Ends a process, and does not wait for one that cannot be ended. A process that is stuck in the kernel driver does
//! not die even when it is killed. A process that waits for it is stuck as well.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Interval between checks for the end of a process.
const POLL: Duration = Duration::from_millis(5);

/// A process that can be ended.
pub(crate) trait Process: Send {
    fn id(&self) -> u32;

    /// Asks the kernel to end the process, whatever it does.
    fn kill(&mut self);

    /// Returns the exit status if the process has ended; never waits.
    fn try_wait(&mut self) -> Option<ExitStatus>;
}

impl Process for Child {
    fn id(&self) -> u32 {
        Self::id(self)
    }

    fn kill(&mut self) {
        // The process may have ended already.
        let _ = Self::kill(self);
    }

    fn try_wait(&mut self) -> Option<ExitStatus> {
        Self::try_wait(self).ok().flatten()
    }
}

/// The result of ending a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process has ended.
    Exited(ExitStatus),
    /// The process was killed and still runs: nobody waits for it any more.
    Stuck,
}

/// A process that is killed once and waited for once.
pub(crate) struct Mortal {
    process: Box<dyn Process>,
    killed: bool,
    end: Option<End>,
}

impl Mortal {
    /// Takes over a process.
    pub(crate) fn new(process: impl Process + 'static) -> Self {
        Self { process: Box::new(process), killed: false, end: None }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns true if the process was killed and did not end.
    pub(crate) fn is_stuck(&self) -> bool {
        self.end == Some(End::Stuck)
    }

    /// Waits for the process to end, for at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(End::Exited(status)) = self.end {
                return Some(status);
            }
            if let Some(status) = self.process.try_wait() {
                self.end = Some(End::Exited(status));
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Kills the process, once, and does not wait.
    pub(crate) fn kill(&mut self) {
        if self.end.is_none() && !std::mem::replace(&mut self.killed, true) {
            self.process.kill();
        }
    }

    /// Kills the process and waits for its end, for at most `limit`. A second call does not wait.
    pub(crate) fn end(&mut self, limit: Duration) -> End {
        if let Some(end) = self.end {
            return end;
        }
        self.kill();
        let end = self.wait(limit).map_or(End::Stuck, End::Exited);
        self.end = Some(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::worker::testing::Fake;

    fn fake(dies_after: Option<Duration>) -> (Mortal, Arc<AtomicU32>) {
        let kills = Arc::<AtomicU32>::default();
        (Mortal::new(Fake { pid: 7, dies_after, killed: None, kills: Arc::clone(&kills) }), kills)
    }

    const LIMIT: Duration = Duration::from_millis(100);
    const FOREVER: Duration = Duration::from_secs(3600);

    #[test]
    fn what_cannot_be_killed_is_waited_for_once() {
        let (mut process, kills) = fake(None);
        assert_eq!(process.end(LIMIT), End::Stuck);
        assert!(process.is_stuck());
        // If it were waited for again, the test would not end.
        assert_eq!(process.end(FOREVER), End::Stuck);
        assert_eq!(kills.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_dies_late_is_waited_for() {
        let (mut process, _) = fake(Some(LIMIT / 4));
        assert_eq!(process.wait(Duration::ZERO), None, "nobody has killed it");
        assert_eq!(process.end(FOREVER), End::Exited(ExitStatus::from_raw(9)));
        assert!(!process.is_stuck());
        assert_eq!(process.wait(Duration::ZERO), Some(ExitStatus::from_raw(9)));
    }

    #[test]
    fn a_death_that_nobody_waits_for_goes_on_meanwhile() {
        // One that never dies: if killing it waited for that, the test would not end.
        let (mut process, kills) = fake(None);
        process.kill();
        process.kill();
        assert_eq!(kills.load(Ordering::Relaxed), 1);
        // One that is dead by the time somebody asks: no wait is needed.
        let child = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        let mut process = Mortal::new(child);
        process.kill();
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::sleep(POLL);
        }
        let dead = End::Exited(ExitStatus::from_raw(9));
        assert_eq!(process.end(Duration::ZERO), dead);
    }

    #[test]
    fn what_has_ended_by_itself_is_not_killed() {
        let mut process = Mortal::new(std::process::Command::new("true").spawn().unwrap());
        let status = process.wait(Duration::from_secs(30)).unwrap();
        assert!(status.success());
        assert_eq!(process.end(LIMIT), End::Exited(status));
    }
}

//! Records rounds that are lost, and decides which others are not run for that.

use std::collections::{BTreeSet, VecDeque};

use super::Session;
use crate::worker::start::{LeftOut, stuck};
use model::broken_off::{Again, Break, How};
use model::flow::{Endpoint, Flow, Place};
use model::measurement::Status;
use probes::{Outcome, Round};

/// Number of rounds whose workers were killed both times after which no more are tried: chosen. Somebody, or the lack
/// of memory, will kill the next one too.
const MOST_KILLED: usize = 3;

impl Session<'_, '_> {
    /// Handles a round that ended its worker, or left it stuck.
    pub(super) fn lost(&mut self, round: &Round, status: Status, reason: String, pid: Option<u32>) {
        let reason = pid.map_or(reason.clone(), |pid| format!("{reason}; {}", stuck(pid)));
        let replaced = if pid.is_some() { "left behind" } else { "replaced" };
        self.problem(format!("{}: {reason}; the worker was {replaced}", round.way()));
        let why = format!("not run, since {} of {} went wrong: {reason}", round.task, round.way());
        let again = match How::try_from(status) {
            Ok(how) => Again::BrokeOff(Break::of(how, reason.clone())),
            Err(()) => Again::NotRun { why: reason.clone() },
        };
        let broken = self.again.ended(round, again);
        self.broke_off(broken);
        self.listener.ends(round.id, &Outcome::Lost { status, reason });
        // Allow at most one replacement for the same flows, or a broken driver would be restarted again and again.
        self.lost.insert(round.flows.clone());
        let lost = self.lost.clone();
        self.lose_if(&why, |round| lost.iter().any(|flows| round.includes(flows)));
        if let Some(pid) = pid {
            self.mark(&round.flows, pid);
        }
        if self.killed >= MOST_KILLED {
            self.lose_if("not run, since workers were killed again and again", |_| true);
        }
        if status == Status::Hung {
            self.hangs.hung(&round.flows);
            match self.hangs.enough() {
                Some(why) => self.lose_if(&why, |_| true),
                None => self.put_off(),
            }
        }
    }

    /// Stops using the GPUs of a process that cannot be ended.
    fn mark(&mut self, flows: &[Flow], pid: u32) {
        let gpus: BTreeSet<u32> =
            flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
        let names: Vec<_> = gpus.iter().map(|gpu| format!("GPU {gpu}")).collect();
        self.problem(format!(
            "{} are no longer used: {}. Look for NVRM and Xid messages in dmesg, then \
             restart the machine: a GPU that such a process holds cannot be reset",
            names.join(" and "),
            stuck(pid)
        ));
        let why = format!("its worker was left behind, {}", stuck(pid));
        self.leave_out(&gpus.into_iter().map(|gpu| (gpu, why.clone())).collect());
    }

    /// Removes these GPUs from the run.
    pub(super) fn leave_out(&mut self, gpus: &LeftOut) {
        for (gpu, why) in gpus {
            self.launch.selections.retain(|selection| selection.index != *gpu);
            let why = format!("not run, since GPU {gpu} is no longer used: {why}");
            self.lose_if(&why, |round| round.uses(Place::Gpu(*gpu)));
        }
    }

    /// Moves rounds whose GPUs keep hanging to the end.
    fn put_off(&mut self) {
        let hangs = &self.hangs;
        let (later, now): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(|round| hangs.puts_off(&round.flows));
        self.waiting = now;
        self.put_off.extend(later);
    }

    /// Resumes the rounds that were put off, one pair at a time. Returns true if there are rounds to run.
    pub(super) fn take_up(&mut self) -> bool {
        let chosen =
            self.hangs.another_chance(self.put_off.iter().map(|round| round.flows.as_slice()));
        if let Some(flows) = chosen {
            let (now, later): (VecDeque<_>, VecDeque<_>) =
                self.put_off.drain(..).partition(|round| round.flows == flows);
            (self.waiting, self.put_off) = (now, later);
            return true;
        }
        for round in std::mem::take(&mut self.put_off) {
            let reason = self.hangs.reason(&round.flows);
            self.listener.ends(round.id, &Outcome::Lost { status: Status::Skipped, reason });
        }
        false
    }

    /// Skips the remaining rounds that match.
    pub(super) fn lose_if(&mut self, reason: &str, is_lost: impl Fn(&Round) -> bool) {
        for queue in [&mut self.waiting, &mut self.put_off] {
            let (lost, kept): (VecDeque<_>, VecDeque<_>) =
                queue.drain(..).partition(|round| is_lost(round));
            *queue = kept;
            for round in lost {
                let broken = self.again.ended(round, Again::NotRun { why: reason.to_owned() });
                broken.iter().for_each(|broken| self.listener.broke_off(broken));
                let outcome = Outcome::Lost { status: Status::Skipped, reason: reason.to_owned() };
                self.listener.ends(round.id, &outcome);
            }
        }
    }
}

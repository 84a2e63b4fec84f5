//! The last reports of this machine: keeps them, and compares a run with them.

use std::path::{Path, PathBuf};

use super::files::limit;
use super::remark;
use ::diagnose::expectations::Expectations;
use ::diagnose::{Settings, history};
use hardware::Machine;
use model::report::{Changes, Report};
use model::snapshot::Snapshot;
use report::files::{at_most, packed, unzipped};
use report::{Style, json, read};
use run::recording::{Kept, place};

/// Longest report that is read again, bytes. Chosen: some thirty times what eight GPUs take in `full`.
const LONGEST: u64 = 128 << 20;

/// The value of `--baseline` that means the newest kept report.
const LAST: &str = "last";

/// The kept reports of a command on a machine.
pub(super) struct History {
    kept: Kept,
    command: &'static str,
    /// False for `--no-history`.
    is_on: bool,
    /// True for `--baseline last`.
    pub is_baseline: bool,
}

impl History {
    pub(super) fn of(
        machine: &dyn Machine,
        command: &'static str,
        (no_history, baseline): (bool, Option<&Path>),
    ) -> Self {
        let kept = Kept::of(machine.name(), command);
        let is_baseline = baseline.is_some_and(|path| path.as_os_str() == LAST);
        Self { kept, command, is_on: !no_history, is_baseline }
    }

    /// Returns the kept reports of this very machine, the newest first. Damaged files are passed over: a killed run, or
    /// another version, has left them.
    fn reports(&self, snapshot: &Snapshot) -> impl Iterator<Item = (PathBuf, Report)> {
        let all = self.kept.paths().into_iter().rev().filter_map(|path| {
            let bytes = at_most(place::regular(&path)?, LONGEST).ok()??;
            Some((path, read::parse(&unzipped(&bytes, LONGEST).ok()?).ok()?))
        });
        all.filter(|(_, report)| history::is_same_machine(&report.snapshot, snapshot))
    }

    /// Returns the report that `--baseline last` means.
    ///
    /// # Errors
    ///
    /// A sentence if there is none.
    pub(super) fn last(&self, snapshot: &Snapshot) -> Result<Report, String> {
        let mut all = self.reports(snapshot).map(|(_, report)| report);
        all.find(history::is_conclusive).ok_or_else(|| {
            format!(
                "--baseline {LAST}: no complete report of 'peerscope {}' on this machine is kept; a file of that \
                 name is ./{LAST}",
                self.command
            )
        })
    }

    /// Returns what changed since the last complete run.
    pub(super) fn changes(
        &self,
        new: &Report,
        settings: (&Settings, Option<&Expectations>),
    ) -> Option<Changes> {
        if !self.is_on || new.snapshot.gpus.is_empty() {
            return None;
        }
        // A clock that was wrong has put others into the future.
        let mut earlier =
            self.reports(&new.snapshot).filter(|(_, report)| report.started_at <= new.started_at);
        let is_comparable = |report: &Report| {
            history::is_conclusive(report) && history::is_same_choice(report, new)
        };
        let (path, last) = earlier.find(|(_, report)| is_comparable(report))?;
        let list = history::changes(new, settings, &last, earlier.map(|(_, report)| report));
        let reports = [Some(path.display().to_string()), None];
        (!list.is_empty()).then_some(Changes { since: last.started_at, reports, list })
    }

    /// Keeps a report. If it cannot be kept, says so, without effect on the exit code.
    pub(super) fn keep(&self, report: &mut Report) {
        // A machine that another run has locked, or without GPUs, has nothing to compare.
        if !self.is_on || report.snapshot.gpus.is_empty() {
            return;
        }
        let path = self.kept.path(&report.started_at);
        if let Some(changes) = &mut report.changes {
            changes.reports[1] = Some(path.display().to_string());
        }
        let bytes = packed(&|to| report::write(report, &[], &json::FORMAT, &Style::PLAIN, to));
        if let Err(why) = bytes.and_then(|bytes| self.kept.write(&path, &bytes)) {
            let folder = path.parent().unwrap_or(&path).display();
            let why = format!("{}{}", why.kind(), limit(&why));
            remark(&format!(
                "this report is not kept for the next run to compare with: {folder}: {why} (--no-history keeps none)"
            ));
            if let Some(changes) = &mut report.changes {
                changes.reports[1] = None;
            }
        }
    }
}

//! The outputs of a check: its report on stdout and in files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::files::{Files, NotWritten, Whole};
use super::super::history::History;
use super::super::output;
use super::super::{Failure, Judging, keep, remark};
use super::scope::Scope;
use crate::cli::{CheckArgs, Cli};
use diagnose::Ending;
use model::choice::Choice;
use model::report::Report;
use model::timeline::Timeline;
use report::{Format, Style};
use run::recording::Journal;

/// All outputs, checked before anything is measured.
pub(super) struct Outputs {
    format: &'static Format,
    style: Style,
    files: Files,
    pub judging: Judging,
    /// The exit code of an interrupted run.
    pub(super) interrupted: u8,
}

impl Outputs {
    /// Checks that every file can be written, and reads the files by which the run is judged.
    ///
    /// # Errors
    ///
    /// A sentence that names the option or the file.
    pub(super) fn prepare(
        cli: &Cli,
        args: &CheckArgs,
        (scope, history): (&Scope, History),
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let files = Files::of_report(&args.out)?.until(stop);
        // The journal is removed at the end.
        if let Some(journal) = args.journal.as_deref().filter(|path| *path != Path::new("none")) {
            files.apart(journal)?;
        }
        if let Some(output) = args.out.traced().filter(|_| !scope.has_timeline()) {
            let name = args.profile.name();
            let nothing = "with these probe groups measures nothing that a timeline shows";
            return Err(format!("{output}: profile {name} {nothing}").into());
        }
        Ok(Self {
            format: args.out.format,
            style: output::style_of(cli, &args.out),
            files,
            judging: Judging::with(cli, &args.out, Some(history))?,
            interrupted: cli.exit_contract.code(Ending::Interrupted),
        })
    }

    /// Checks that another file can be written.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub(super) fn beside(&self, path: &Path) -> Result<Whole, String> {
        self.files.beside(path)
    }

    /// Writes the report of a run that measured nothing. Returns its exit code.
    ///
    /// # Errors
    ///
    /// Something other than a signal kept it from being written.
    pub(super) fn publish_unmeasured(&self, report: &Report) -> Result<u8, Failure> {
        output::publish_seen(report, &[], self.format, &self.style, &self.files)
            .code()
            .or_else(|failure| self.unwritten(failure))
    }

    /// Writes the report, and removes the journal. If an output cannot be written, keeps the measurements
    /// elsewhere and reports where. Returns the exit code.
    ///
    /// # Errors
    ///
    /// Something other than a signal kept an output from being written.
    pub(super) fn publish(
        &self,
        report: &Report,
        timelines: &[Timeline],
        journal: &Journal,
    ) -> Result<u8, Failure> {
        let published =
            output::publish_seen(report, timelines, self.format, &self.style, &self.files);
        let whole = published.whole.clone();
        let is_drawn = published.is_drawn;
        published.code().inspect(|_| journal.remove()).or_else(|failure| {
            let kept = keep::keep(report, whole, is_drawn, journal);
            let sentence = format!("{}. {kept}", failure.sentence);
            self.unwritten(NotWritten { sentence, ..failure })
        })
    }

    /// Returns the exit code of a run whose report could not be written everywhere.
    ///
    /// # Errors
    ///
    /// Something other than a signal kept it from being written.
    fn unwritten(&self, failure: NotWritten) -> Result<u8, Failure> {
        if !failure.given_up {
            return Err(failure.sentence.into());
        }
        remark(&failure.sentence);
        Ok(self.interrupted)
    }
}

//! The journal of a check.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::remark;
use super::Began;
use crate::cli::CheckArgs;
use model::choice::Choice;
use model::report::Tool;
use run::recording::{self, Header, Journal, place};

/// Begins the journal of this run, and mentions one that an interrupted run left behind, once.
///
/// # Errors
///
/// The file that `--journal` names exists already.
pub(super) fn begin(
    args: &CheckArgs,
    began: &Began<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<Journal, String> {
    let place = args.journal.as_deref();
    if place.is_some_and(|place| place == Path::new("none")) {
        return Ok(Journal::none());
    }
    let header = Header {
        schema: recording::SCHEMA.into(),
        tool: Tool::this(),
        started_at: began.at.clone(),
        machine: began.machine.clone(),
        profile: args.profile.name().into(),
        pid: std::process::id(),
        args: std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect(),
    };
    if let Some(path) = place {
        return Journal::begin_at(path, &header, stop);
    }
    let folders = place::folders();
    if let Some(left) = place::tell(&place::prune(place::left_over(&folders))) {
        let started_at = &left.header.started_at;
        remark(&format!(
            "the run that began {started_at} did not finish: 'peerscope recover -o FILE.json' makes a report from \
             its journal, {}",
            left.path.display()
        ));
    }
    Ok(Journal::begin(&folders, &header))
}

//! Options of the commands that packages need: completions of shells, manual pages.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Options of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Options of `manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Folder for the pages, which must be there: peerscope.1 and one for each command.
    pub folder: PathBuf,
}

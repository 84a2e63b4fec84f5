//! Options of the commands that packages need: completions of shells, manual pages.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::Shell;

/// Shells of GPU servers: not all that clap_complete knows.
const SHELLS: [&str; 3] = ["bash", "fish", "zsh"];

/// Options of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_parser = PossibleValuesParser::new(SHELLS).try_map(|shell| shell.parse::<Shell>()))]
    pub shell: Shell,
}

/// Options of `manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Folder for the pages, which must be there: peerscope.1 and one for each command.
    pub folder: PathBuf,
}

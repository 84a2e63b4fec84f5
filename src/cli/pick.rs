//! Options of `pick`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Formats of a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PickFormat {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// Options of `pick`.
#[derive(Debug, Args)]
pub struct PickArgs {
    /// A report that 'check' wrote as JSON or HTML; '-' is standard input.
    pub report: PathBuf,

    /// Number of GPUs.
    #[arg(short = 'k', value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub number: u8,

    /// Print lines for a shell to evaluate, and no more: CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES.
    #[arg(long, conflicts_with = "format")]
    pub shell: bool,

    /// Format on stdout.
    #[arg(long, value_enum, default_value_t = PickFormat::Text)]
    pub format: PickFormat,
}

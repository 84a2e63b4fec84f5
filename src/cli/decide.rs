//! Options of the commands that decide from a report: `pick`, `order`, `what-if` and `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::FailOn;
use decide::Change;
use model::units::PcieLink;

/// Formats of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecisionFormat {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// Options of `pick`.
#[derive(Debug, Args)]
pub struct PickArgs {
    /// A report that 'check' wrote as JSON or HTML; '-' is standard input [default: measure now].
    pub report: Option<PathBuf>,

    /// GPUs of a job.
    #[arg(short = 'k', value_name = "N", value_parser = clap::value_parser!(u8).range(1..=72))]
    pub number: u8,

    /// Split all GPUs into jobs of N.
    #[arg(long)]
    pub all: bool,

    /// Print lines for a shell to evaluate, and no more: CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES, and what each rank
    /// should be bound to.
    #[arg(long, conflicts_with = "format")]
    pub shell: bool,

    /// Leave out GPUs with a finding of at least this severity.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub leave_out: FailOn,

    /// Format on stdout.
    #[arg(long, value_enum, default_value_t = DecisionFormat::Text)]
    pub format: DecisionFormat,
}

/// Options of `order`.
#[derive(Debug, Args)]
pub struct OrderArgs {
    /// A report that 'check' wrote as JSON or HTML; '-' is standard input [default: measure now].
    pub report: Option<PathBuf>,

    /// Format on stdout.
    #[arg(long, value_enum, default_value_t = DecisionFormat::Text)]
    pub format: DecisionFormat,
}

/// Options of `what-if`.
#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// A report that 'check' wrote as JSON or HTML; '-' is standard input.
    pub report: PathBuf,

    /// The changes, all of them at once.
    #[command(flatten)]
    pub changes: Changes,

    /// Format on stdout.
    #[arg(long, value_enum, default_value_t = DecisionFormat::Text)]
    pub format: DecisionFormat,
}

/// Changes of a machine.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// Exchange a GPU with the one in this slot, by its label or PCI address. Can be given more than once, as all of
    /// these.
    #[arg(long = "move", value_name = "GPU=SLOT", value_parser = parse_move)]
    moves: Vec<Change>,

    /// A PCIe link, by its GPU or by the PCI address of one end, trains to this: GPU5=GEN5x16.
    #[arg(long = "link", value_name = "HOP=LINK", value_parser = parse_link)]
    links: Vec<Change>,

    /// Join two GPUs by an NVLink bridge.
    #[arg(long = "bridge", value_name = "A,B", value_parser = parse_bridge)]
    bridges: Vec<Change>,

    /// Take a GPU out.
    #[arg(long = "without", value_name = "GPU", value_parser = parse_without)]
    without: Vec<Change>,

    /// Repair what a finding reports, by its code; with :GPU only where it concerns that GPU.
    #[arg(long = "fix", value_name = "FINDING", value_parser = parse_fix)]
    fixes: Vec<Change>,
}

impl Changes {
    /// Returns all changes, those that name GPUs by their places first.
    pub fn all(&self) -> Vec<Change> {
        let Self { moves, links, bridges, without, fixes } = self;
        [fixes, moves, links, bridges, without].into_iter().flatten().cloned().collect()
    }
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// What to write.
    #[arg(value_enum)]
    pub what: Exported,

    /// A report that 'check' or 'topo' wrote as JSON or HTML; '-' is standard input [default: read the facts now, as
    /// 'topo' does].
    pub report: Option<PathBuf>,
}

/// What `export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Exported {
    /// The topology as NCCL reads it from NCCL_TOPO_FILE (XML).
    NcclTopo,
}

fn gpu(text: &str) -> Result<u32, String> {
    let text = text.trim();
    let number = text
        .get(..3)
        .filter(|word| word.eq_ignore_ascii_case("gpu"))
        .map_or(text, |_| text[3..].trim());
    number.parse().map_err(|_| format!("'{text}' is no index of a GPU, such as 5"))
}

fn parse_move(text: &str) -> Result<Change, String> {
    let (who, slot) = text
        .split_once('=')
        .filter(|(_, slot)| !slot.trim().is_empty())
        .ok_or("give a GPU and a slot, such as 5=6 or 5=0000:44:00.0")?;
    Ok(Change::Move { gpu: gpu(who)?, slot: slot.trim().to_owned() })
}

fn parse_link(text: &str) -> Result<Change, String> {
    let (hop, link) =
        text.split_once('=').ok_or("give a link and what it trains to, such as GPU5=GEN5x16")?;
    let to: PcieLink = link.parse().map_err(|error| format!("{error}"))?;
    Ok(Change::Link { hop: hop.trim().to_owned(), to })
}

fn parse_bridge(text: &str) -> Result<Change, String> {
    let (one, other) = text.split_once(',').ok_or("give two GPUs, such as 0,1")?;
    Ok(Change::Bridge(gpu(one)?, gpu(other)?))
}

fn parse_without(text: &str) -> Result<Change, String> {
    Ok(Change::Without(gpu(text)?))
}

#[allow(clippy::unnecessary_wraps, reason = "as clap wants it")]
fn parse_fix(text: &str) -> Result<Change, String> {
    Ok(Change::Fix(text.trim().to_owned()))
}

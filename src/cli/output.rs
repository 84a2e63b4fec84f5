//! Options for judging and writing a report, which several commands share.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::values::severity;
use model::finding::Severity;
use report::{self, Format, Of};

/// Options for judging and writing a report.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Expectations of the machine ('peerscope expect' writes them): report each that is not met.
    #[arg(long, value_name = "FILE")]
    pub expect: Option<PathBuf>,

    /// An earlier report (JSON) of the same machine: report each figure that fell since. 'check' and 'soak' also take
    /// last: the newest complete report that they kept.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Exit with 1 (2 for Nagios) if a finding is at least this severe: info, warning or error.
    #[arg(long, default_value = "error", value_name = "SEVERITY", value_parser = severity(), hide_possible_values = true)]
    pub fail_on: Severity,

    /// Also show a line for each kind of figure, and advice for programs.
    #[arg(long)]
    pub figures: bool,

    /// Show everything: all tables, and all evidence of the findings.
    #[arg(short, long)]
    pub verbose: bool,

    /// Format on stdout.
    #[arg(long, value_parser = format_parser(Of::All), default_value = "text")]
    pub format: &'static Format,

    /// Files to write as well.
    #[arg(short, long, value_name = "FILE", help = output_help(Of::All))]
    pub output: Vec<PathBuf>,
}

impl ReportArgs {
    /// Returns the first output that shows a timeline, as it was given.
    pub(crate) fn traced(&self) -> Option<String> {
        let is_traced = |format: &Format| format.of == Of::Traced;
        let file = |path: &&PathBuf| report::for_path(path).is_ok_and(is_traced);
        let file = self.output.iter().find(file).map(|path| format!("-o {}", path.display()));
        file.or_else(|| is_traced(self.format).then(|| format!("--format {}", self.format.name)))
    }
}

/// Returns a parser for the names of the formats that these reports can have.
pub(super) fn format_parser(of: Of) -> impl TypedValueParser<Value = &'static Format> {
    let names =
        report::formats(of).map(|format| PossibleValue::new(format.name).help(format.purpose));
    PossibleValuesParser::new(names)
        .try_map(|name| report::named(&name).ok_or("there is no such format"))
}

/// Returns the help of `--output`.
pub(super) fn output_help(of: Of) -> String {
    let extensions = report::extensions(report::formats(of));
    format!(
        "Also write the report to FILE; its extension is the format: {extensions} (a pipe or a device without one gets \
         JSON). Can be given more than once"
    )
}

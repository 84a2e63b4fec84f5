//! The report in one line, for node health checkers: LBNL NHC, Slurm's reasons, Nagios plugins.
//!
//! `PEERSCOPE CRITICAL - pcie-narrow: The PCIe link of GPU 5 ... (and 3 more) | errors=2 ...`: the word is that of a
//! Nagios plugin whatever the exit contract, then the worst finding and how many more there are;
//! behind the bar figures in Nagios' form for performance data.

use super::brief::{self, count_of};
use super::escape::clean;
use super::figures::Spread;
use crate::diagnose::Ending;
use crate::model::finding::{Finding, Severity};
use crate::model::report::Report;

/// Longest line in bytes, its newline apart. Slurm, pagers and tables cut what is longer; chosen.
const LONGEST: usize = 200;

/// The least that is left of a message before the figures behind it are left out; chosen.
const SHORTEST_MESSAGE: usize = 40;

/// The report in one line of ASCII, at most 200 bytes, and a newline.
pub fn render(report: &Report) -> String {
    let state = match Ending::of(report) {
        Ending::Healthy => "OK",
        Ending::Warned => "WARNING",
        Ending::Fault => "CRITICAL",
        Ending::Incomplete | Ending::Interrupted | Ending::Usage => "UNKNOWN",
    };
    let simulated = if report.machine == "live" {
        String::new()
    } else {
        format!("SIMULATED {}: ", shortened(&plain(&report.machine), 24))
    };
    let start = format!("PEERSCOPE {state} - {simulated}");
    let figures = format!(" | {}", figures(report));
    let (said, more) = said(report);
    let room = LONGEST.saturating_sub(start.len() + more.len());
    let with_figures = room.checked_sub(figures.len()).filter(|&left| left >= said.len().min(SHORTEST_MESSAGE));
    match with_figures {
        Some(room) => format!("{start}{}{more}{figures}\n", shortened(&said, room)),
        None => format!("{start}{}{more}\n", shortened(&said, room)),
    }
}

/// What stands out most, and how much else does.
fn said(report: &Report) -> (String, String) {
    let interrupted = report.measurements.as_ref().is_some_and(|measurements| measurements.interrupted);
    let interrupted = if interrupted { "interrupted; " } else { "" };
    let findings: Vec<&Finding> =
        brief::worst_first(report).into_iter().filter(|finding| finding.severity > Severity::Info).collect();
    let Some(worst) = findings.first() else {
        return (format!("{interrupted}{}", coverage(report)), String::new());
    };
    let said = plain(&format!("{interrupted}{}: {}", worst.code, brief::sentence(report, worst)));
    let more = if findings.len() > 1 { format!(" (and {} more)", findings.len() - 1) } else { String::new() };
    (said, more)
}

/// How much was tested, and what it reached.
fn coverage(report: &Report) -> String {
    let verdict = &report.verdict;
    let gpus = report.snapshot.gpus.len();
    let gpus = format!("{gpus} GPU{}", if gpus == 1 { "" } else { "s" });
    if report.measurements.is_none() {
        return format!("{gpus}, facts alone: nothing was to be measured");
    }
    let rates: Vec<_> = brief::by_class(report)
        .into_iter()
        .filter_map(|figures| {
            let rates = figures.rates?;
            Some(format!("{} {} {:.1}-{:.1} GB/s", figures.class, figures.path, rates.min, rates.max))
        })
        .collect();
    let rates = if rates.is_empty() { String::new() } else { format!(", {}", rates.join(", ")) };
    match verdict.untested {
        0 => format!("{gpus}, {} measurements{rates}", verdict.tested),
        untested => format!("{gpus}, {} measurements, {untested} missing{rates}", verdict.tested),
    }
}

/// Performance data: `'label'=value[unit]`, blanks between.
fn figures(report: &Report) -> String {
    let mut items = vec![
        format!("errors={}", count_of(report, Severity::Error)),
        format!("warnings={}", count_of(report, Severity::Warning)),
    ];
    if report.measurements.is_some() {
        items.push(format!("tested={}", report.verdict.tested));
        items.push(format!("untested={}", report.verdict.untested));
    }
    let percents = Spread::of(brief::reference_by_pair(report).into_values().filter_map(|cell| cell.percent));
    items.extend(percents.map(|percents| format!("min_share={:.0}%", percents.min)));
    items.push(format!("time={:.1}s", report.timing.total));
    items.join(" ")
}

/// ASCII without what a reader of such a line gives a meaning to: the bar that begins the figures,
/// newlines, and quotes and dollars that a careless shell script would expand.
fn plain(text: &str) -> String {
    let text = clean(text).replace('→', "->").replace('×', "x").replace(['’', '‘'], "'");
    text.chars()
        .map(|c| match c {
            '|' => '/',
            '`' | '"' | '$' | '\\' => '\'',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}

/// At most so many bytes of ASCII text, with dots where it was cut.
fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let kept: String = text.chars().take(longest.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Conclusion;
    use crate::report::sample;

    #[test]
    fn it_is_one_short_line_of_ascii_whatever_the_machine_says() {
        for report in [
            sample::healthy(1),
            sample::healthy(2),
            sample::healthy(16),
            sample::pcie_box(),
            sample::unknown(0),
            sample::unknown(3),
            sample::nothing_measured(),
            sample::hostile(),
        ] {
            let line = render(&report);
            let text = line.strip_suffix('\n').unwrap();
            assert!(text.len() <= LONGEST, "{}: {text}", text.len());
            assert!(text.chars().all(|c| (' '..='~').contains(&c)), "{text}");
            assert!(text.matches('|').count() <= 1, "{text}");
            assert!(text.starts_with("PEERSCOPE "), "{text}");
        }
    }

    #[test]
    fn the_word_follows_the_verdict() {
        let mut report = sample::healthy(8);
        assert!(render(&report).starts_with("PEERSCOPE OK - 8 GPUs, "), "{}", render(&report));
        assert!(render(&report).contains("| errors=0 warnings=0 tested="), "{}", render(&report));
        report.verdict.untested = 3;
        report.verdict.verdict = Conclusion::Inconclusive;
        assert!(render(&report).starts_with("PEERSCOPE UNKNOWN - 8 GPUs"));
        report.measurements.as_mut().unwrap().interrupted = true;
        assert!(render(&report).starts_with("PEERSCOPE UNKNOWN - interrupted; 8 GPUs"));
        let mut report = sample::pcie_box();
        let line = render(&report);
        assert!(line.starts_with("PEERSCOPE CRITICAL - SIMULATED demo: "), "{line}");
        assert!(line.contains(" (and 3 more)"), "{line}");
        report.verdict.verdict = Conclusion::Healthy;
        assert!(render(&report).starts_with("PEERSCOPE WARNING - "));
    }

    #[test]
    fn a_long_message_is_cut_and_the_count_is_kept() {
        let mut report = sample::pcie_box();
        for finding in &mut report.findings {
            finding.message = "long | words $(rm) `x` ".repeat(30);
        }
        let line = render(&report);
        assert!(line.contains("... (and 3 more) | errors=3 "), "{line}");
        assert!(!line.contains(['$', '`']) && line.matches('|').count() == 1, "{line}");
    }
}

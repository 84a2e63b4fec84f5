//! The report in one line, for node health checkers: LBNL NHC, Slurm's reasons, Nagios plugins.
//!
//! `PEERSCOPE CRITICAL - pcie-narrow: The PCIe link of GPU 5 ... (and 3 more) | errors=2 ...`: the state is a
//! Nagios word, whichever exit contract is chosen. The worst finding and the number of others follow. After the bar
//! come figures in Nagios' form for performance data.

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::figures::{Figures, count};
use super::format::{Format, Of, Style};
use super::partial;
use diagnose::Ending;
use model::finding::Severity;
use model::rounding::percent;

pub(super) const FORMAT: Format = Format {
    of: Of::One,
    ..Format::new("line", &[], "One line, for node health checkers", render)
};

/// Returns the status word of a Nagios plugin.
const fn state(ending: Ending) -> &'static str {
    match ending {
        Ending::Healthy => "OK",
        Ending::Warned => "WARNING",
        Ending::Fault => "CRITICAL",
        Ending::Incomplete | Ending::Interrupted | Ending::Usage => "UNKNOWN",
    }
}

/// Most bytes of a line, without its newline. Slurm, pagers and tables cut longer lines; chosen.
const LONGEST: usize = 200;

/// The figures are left out if the message would be cut to fewer characters than this; chosen.
const SHORTEST_MESSAGE: usize = 40;

/// Returns the report in one line of ASCII, at most 200 bytes, and a newline.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut start = format!("PEERSCOPE {} - ", state(Ending::of(digest.report)));
    let request = &digest.report.request;
    let options = plain(&partial::options(request));
    let silenced: Vec<&str> = request.silenced.iter().map(|rule| &*rule.code).collect();
    let silenced = plain(&silenced.join(", "));
    for caveat in digest.caveats.keys() {
        start += &match caveat {
            Caveat::Simulated => {
                format!("SIMULATED {}: ", shortened(&plain(&digest.report.machine), 24))
            }
            Caveat::Partial if !options.is_empty() => {
                format!("partial; {}; ", shortened(&options, 40))
            }
            Caveat::Silenced => format!("silenced; {}; ", shortened(&silenced, 40)),
            caveat => format!("{}; ", caveat.word()),
        };
    }
    let (headline, more) = headline(digest);
    let mut figures = format!(" | {}", figures(digest));
    let mut room = LONGEST.saturating_sub(start.len() + more.len());
    match room.checked_sub(figures.len()) {
        Some(left) if left >= headline.len().min(SHORTEST_MESSAGE) => room = left,
        _ => figures.clear(),
    }
    format!("{start}{}{more}{figures}\n", shortened(&headline, room))
}

/// Returns the worst finding and the number of others, or the coverage if there are no findings.
fn headline(digest: &Digest<'_>) -> (String, String) {
    let mut findings = digest.findings.iter().filter(|finding| finding.severity > Severity::Info);
    let Some(worst) = findings.next() else {
        return (coverage(digest), String::new());
    };
    let more = match findings.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    (plain(&format!("{}: {}", worst.code, worst.message)), more)
}

/// Returns how much was tested, and the rates reached.
fn coverage(digest: &Digest<'_>) -> String {
    let verdict = &digest.report.verdict;
    let gpus = count(digest.report.snapshot.gpus.len(), "GPU");
    if digest.report.measurements.is_none() {
        return format!("{gpus}, {}", digest.tested());
    }
    let rates = digest.by_class().into_iter().filter_map(|((class, path), figures)| {
        let rates = figures.rates?;
        Some(format!(", {class} {path} {:.1}-{:.1} GB/s", rates.min, rates.max))
    });
    let missing = match verdict.untested {
        0 => String::new(),
        untested => format!(", {untested} missing"),
    };
    let load = if digest.no_load().is_some() { ", load not measured" } else { "" };
    format!("{gpus}, {} measurements{missing}{}{load}", verdict.tested, rates.collect::<String>())
}

/// Returns performance data: `'label'=value[unit]`, separated by blanks.
fn figures(digest: &Digest<'_>) -> String {
    let (report, verdict) = (digest.report, &digest.report.verdict);
    let [errors, warnings] = [Severity::Error, Severity::Warning].map(|one| digest.count_of(one));
    let mut items = format!("errors={errors} warnings={warnings}");
    if report.measurements.is_some() {
        items += &format!(" tested={} untested={}", verdict.tested, verdict.untested);
    }
    if let Some(shares) = Figures::of(digest.figures()).percents {
        items += &format!(" min_share={}%", percent(shares.min));
    }
    format!("{items} time={:.1}s", report.timing.total)
}

/// Replaces non-ASCII characters, and those that a reader of such a line interprets. These are the bar that begins the
/// figures, newlines, and quotes and dollars that a careless shell script would expand.
fn plain(text: &str) -> String {
    let text = clean(text).replace('→', "->").replace('×', "x").replace(['’', '‘'], "'");
    let plain = |c| match c {
        '|' => '/',
        '`' | '"' | '$' | '\\' => '\'',
        c if c.is_ascii() => c,
        _ => '?',
    };
    text.chars().map(plain).collect()
}

/// Returns at most this many bytes of ASCII text, with dots if it was cut.
fn shortened(text: &str, longest: usize) -> String {
    match text.len() <= longest {
        true => text.to_owned(),
        false => format!("{}...", text[..longest.saturating_sub(3)].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::{Conclusion, Report};

    fn written(report: &Report) -> String {
        render(&Digest::of(report), &Style::PLAIN)
    }

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
            let line = written(&report);
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
        assert!(written(&report).starts_with("PEERSCOPE OK - 8 GPUs, "), "{}", written(&report));
        assert!(written(&report).contains("| errors=0 warnings=0 tested="), "{}", written(&report));
        report.verdict.untested = 3;
        report.verdict.verdict = Conclusion::Inconclusive;
        assert!(written(&report).starts_with("PEERSCOPE UNKNOWN - 8 GPUs"));
        report.measurements.as_mut().unwrap().interrupted = true;
        assert!(written(&report).starts_with("PEERSCOPE UNKNOWN - interrupted; 8 GPUs"));
        let mut report = sample::pcie_box();
        let line = written(&report);
        assert!(line.starts_with("PEERSCOPE CRITICAL - SIMULATED demo: "), "{line}");
        assert!(line.contains(" (and 4 more)"), "{line}");
        report.verdict.verdict = Conclusion::Healthy;
        assert!(written(&report).starts_with("PEERSCOPE WARNING - "));
    }

    #[test]
    fn a_long_message_is_cut_and_the_count_is_kept() {
        let mut report = sample::pcie_box();
        for finding in &mut report.findings {
            finding.message = "long | words $(rm) `x` ".repeat(30);
        }
        let line = written(&report);
        assert!(line.contains("... (and 4 more) | errors=4 "), "{line}");
        assert!(!line.contains(['$', '`']) && line.matches('|').count() == 1, "{line}");
    }
}

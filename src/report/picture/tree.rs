//! The machine as a tree for a terminal, drawn with box characters, or with ASCII if the terminal supports nothing
//! else.

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::format::{Format, Of, Style};
use super::super::paint::Paint;
use super::super::text::wrap;
use super::parts::{Part, PartKind};
use super::{fold, joins, parts};
use model::rounding::rate;

pub(crate) const FORMAT: Format = Format {
    is_looked_at: true,
    of: Of::Topology,
    ..Format::new("tree", &[], "The machine as a tree, for a terminal", render)
};

/// Pieces of the tree: a branch, the last branch, a line that continues, and blank space.
const LINES: [&str; 4] = ["├─ ", "└─ ", "│  ", "   "];

/// Renders the caveats, the tree, and connections of GPUs outside the tree.
fn render(digest: &Digest<'_>, style: &Style) -> String {
    let mut out = String::new();
    for caveat in digest.caveats.keys() {
        for part in caveat.parts(digest.report) {
            sentence(&mut out, &part, 0, Paint::Warning, style);
        }
    }
    let host = digest.report.snapshot.host.hostname.known().map_or("machine", String::as_str);
    line(&mut out, "", &clean(host), Paint::Strong, style);
    let parts = fold::fold(parts::of(digest.report));
    below(&mut out, &parts, "", style);
    for join in joins::of(digest.report) {
        let paint = if join.what == joins::What::NvLink { Paint::Plain } else { Paint::Warning };
        sentence(&mut out, &join.tip, 2, paint, style);
    }
    for (label, gpus) in switched(digest) {
        sentence(&mut out, &format!("GPU {gpus}: {label} to NVSwitch"), 2, Paint::Plain, style);
    }
    for note in joins::notes(digest.report) {
        sentence(&mut out, &note, 2, Paint::Warning, style);
    }
    out
}

/// Returns the links to NVSwitches, equal ones once.
fn switched(digest: &Digest<'_>) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<u32>)> = Vec::new();
    for (gpu, link) in joins::to_switches(digest.report) {
        let of = link.of.map(|of| format!(" of {of} ✖")).unwrap_or_default();
        let gbps =
            link.rate.map(|gbps| format!(", {} GB/s each way,", rate(gbps))).unwrap_or_default();
        let label = format!("{}{of}{gbps}", link.label);
        match groups.iter_mut().find(|(known, _)| *known == label) {
            Some((_, gpus)) => gpus.push(gpu),
            None => groups.push((label, vec![gpu])),
        }
    }
    groups.into_iter().map(|(label, gpus)| (label, super::super::figures::ranges(&gpus))).collect()
}

fn below(out: &mut String, parts: &[Part], before: &str, style: &Style) {
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        let [branch, beside] = if is_last { [LINES[1], LINES[3]] } else { [LINES[0], LINES[2]] };
        let worst = if part.above.as_ref().is_some_and(parts::Above::is_narrow) {
            Paint::Error
        } else {
            part.mark
        };
        line(out, &format!("{before}{branch}"), &words(part), worst, style);
        below(out, &part.below, &format!("{before}{beside}"), style);
    }
}

/// Returns `GPU 3  L40S, 43:00.0, slot 4  [Gen4 x4 of x16 ✖]`.
fn words(part: &Part) -> String {
    let lines = if part.kind == PartKind::Socket { String::new() } else { part.lines.join(", ") };
    let times = if part.kind == PartKind::Gpu && part.times > 1 {
        format!("{} x ", part.times)
    } else {
        String::new()
    };
    let link =
        part.above.as_ref().filter(|above| !above.label.is_empty()).map(|above| match &above.of {
            Some(of) => format!("  [{} of {of} ✖]", above.label),
            None => format!("  [{}]", above.label),
        });
    let gap = if lines.is_empty() { "" } else { "  " };
    let mark = match part.mark {
        Paint::Error => "  ✖",
        Paint::Warning => "  ▲",
        _ => "",
    };
    let text = format!("{}{gap}{times}{lines}{}{mark}", part.name, link.unwrap_or_default());
    clean(&text).into_owned()
}

/// Writes text above or below the tree, wrapped, with all lines but the first indented.
fn sentence(out: &mut String, text: &str, indent: usize, paint: Paint, style: &Style) {
    for part in wrap(&clean(text), style.width, 0, indent) {
        line(out, "", &part, paint, style);
    }
}

/// Writes one line, cut at the width of the terminal: a tree that wraps cannot be read.
fn line(out: &mut String, lead: &str, text: &str, paint: Paint, style: &Style) {
    let whole = format!("{lead}{text}");
    let mut room = style.width;
    let fits = |c: &char| {
        let wide = unicode_width::UnicodeWidthChar::width(*c).unwrap_or(0);
        let fits = room >= wide;
        room = room.saturating_sub(wide);
        fits
    };
    let cut: String = whole.chars().take_while(fits).collect();
    let cut = if style.ascii { in_ascii(&cut) } else { cut };
    let split = lead.chars().count();
    let lead: String = cut.chars().take(split).collect();
    let text: String = cut.chars().skip(split).collect();
    let painted = paint.apply(text.trim_end(), style.color);
    let whole = format!("{lead}{painted}");
    out.push_str(whole.trim_end());
    out.push('\n');
}

/// Replaces each character with one that every terminal has.
fn in_ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '├' => '|',
            '└' => '`',
            '─' => '-',
            '│' => '|',
            '✖' | '✗' => '!',
            '▲' => '!',
            '→' => '>',
            '↔' => '=',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(report: &model::report::Report, style: &Style) -> String {
        render(&Digest::of(report), style)
    }

    #[test]
    fn a_terminal_shows_the_tree() {
        insta::assert_snapshot!(tree(&sample::pcie_box(), &Style { width: 80, ..Style::PLAIN }));
    }

    #[test]
    fn ascii_has_as_many_columns_and_nothing_else() {
        let report = sample::pcie_box();
        let [plain, ascii] =
            [false, true].map(|ascii| tree(&report, &Style { width: 60, ascii, ..Style::PLAIN }));
        assert!(ascii.is_ascii(), "{ascii}");
        let widths = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
        assert_eq!(widths(&plain), widths(&ascii));
        assert!(plain.lines().all(|line| line.chars().count() <= 60), "{plain}");
    }
}

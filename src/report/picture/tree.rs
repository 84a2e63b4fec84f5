//! The machine as a tree for a terminal, drawn with box characters, or with ASCII if the terminal supports nothing
//! else.

use super::parts::{Above, Unit};
use super::{fold, joins, parts};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::digest::Digest;
use crate::escape::clean;
use crate::figures::{by_key, ranges};
use crate::format::{Format, Of, Style};
use crate::paint::Paint;
use crate::text::wrap;
use model::rounding::rate;
use model::topology::NodeKind;

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
    let (joins, note) = joins::of(digest.report);
    for join in joins {
        let paint = if join.what == joins::Stroke::NvLink { Paint::Plain } else { Paint::Warning };
        sentence(&mut out, &join.tip, 2, paint, style);
    }
    let switched = joins::to_switches(digest.report).map(|(gpu, link)| {
        let gbps = link.rate.map(|gbps| format!(", {} GB/s each way,", rate(gbps)));
        (format!("{}{}", caption(&link), gbps.unwrap_or_default()), gpu)
    });
    for (label, gpus) in by_key(switched) {
        let text = format!("GPU {}: {label} to NVSwitch", ranges(&gpus));
        sentence(&mut out, &text, 2, Paint::Plain, style);
    }
    if let Some(note) = note {
        sentence(&mut out, &note, 2, Paint::Warning, style);
    }
    out
}

/// Returns `Gen4 x4 of x16 ✖`.
fn caption(link: &Above) -> String {
    let of = link.of.as_ref().map(|of| format!(" of {of} ✖")).unwrap_or_default();
    format!("{}{of}", link.label)
}

fn below(out: &mut String, parts: &[Unit], before: &str, style: &Style) {
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        let [branch, beside] = if is_last { [LINES[1], LINES[3]] } else { [LINES[0], LINES[2]] };
        let is_narrow = part.above.as_ref().is_some_and(Above::is_narrow);
        let worst = if is_narrow { Paint::Error } else { part.mark };
        line(out, &format!("{before}{branch}"), &words(part), worst, style);
        below(out, &part.below, &format!("{before}{beside}"), style);
    }
}

/// Returns `GPU 3  L40S, 43:00.0, slot 4  [Gen4 x4 of x16 ✖]`.
fn words(part: &Unit) -> String {
    let mut text = part.name.clone();
    if part.kind != NodeKind::NumaNode && !part.lines.is_empty() {
        text += "  ";
        if part.kind == NodeKind::Gpu && part.times > 1 {
            text += &format!("{} x ", part.times);
        }
        text += &part.lines.join(", ");
    }
    if let Some(above) = part.above.as_ref().filter(|above| !above.label.is_empty()) {
        text += &format!("  [{}]", caption(above));
    }
    if !part.mark.sign().is_empty() {
        text += &format!("  {}", part.mark.sign());
    }
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
    let cut = |text: &str, room: usize| {
        let mut used = 0;
        let fits = |c: &char| {
            used += c.width().unwrap_or(0);
            used <= room
        };
        let cut: String = text.chars().take_while(fits).collect();
        if style.ascii { in_ascii(&cut) } else { cut }
    };
    let text = cut(text, style.width.saturating_sub(lead.width()));
    let painted = paint.apply(text.trim_end(), style.color);
    let whole = format!("{}{painted}", cut(lead, style.width));
    out.push_str(whole.trim_end());
    out.push('\n');
}

/// Replaces each character with one that every terminal has.
fn in_ascii(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '├' | '│' => '|',
            '└' => '`',
            '─' => '-',
            '✖' | '✗' | '▲' => '!',
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

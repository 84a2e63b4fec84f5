//! A picture of the machine as SVG, and the same tree for a terminal. The layout depends on the report alone.

use maud::{Markup, PreEscaped, html};

use self::draw::drawing;
use super::digest::Digest;
use super::escape::clean;
use super::format::{Format, Of, Style};

mod draw;
mod fold;
mod joins;
mod layout;
mod parts;
pub(super) mod tree;

pub(super) use self::layout::{fit, int, text_width};

pub(super) const FORMAT: Format = Format {
    is_looked_at: true,
    of: Of::One,
    ..Format::new("svg", &["svg"], "A picture of the machine", render)
};

/// Style of every element in the picture.
pub(super) const STYLE_SHEET: &str = include_str!("picture.css");

/// Colours of a stand-alone picture.
const COLORS: &str = include_str!("../html/colors.css");

/// Line end after the first line, so that the file can be read.
const LINE_END: PreEscaped<&str> = PreEscaped("\n");

/// Height of a line above the picture.
const LINE: i32 = 20;

/// Renders the picture as a file of its own.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    let layout = layout::of(digest.report);
    let title = title(digest);
    let caveats: Vec<&str> = digest.caveats.keys().map(|caveat| caveat.word()).collect();
    let mut lines = vec![title.clone()];
    if !caveats.is_empty() {
        lines.push(caveats.join(", ").to_uppercase());
    }
    let head = LINE * int(lines.len()) + 8;
    let wide = lines.iter().map(|line| text_width(line, 14) + 24).max().unwrap_or(0);
    let width = wide.min(900).max(layout.width);
    let height = layout.height + head;
    let left = (width - layout.width) / 2;
    let view = format!("0 0 {width} {height}");
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) viewBox=(view) role="img" {
            (LINE_END)
            title { (title) }
            desc { (description(digest)) }
            style { (PreEscaped(COLORS)) (PreEscaped(STYLE_SHEET)) }
            rect .paper width=(width) height=(height) {}
            @for (number, line) in (1..).zip(&lines) {
                text .head.caveat[number > 1] x="12" y=(number * LINE) { (fit(line, 14, width - 24)) }
            }
            g transform=(format!("translate({left} {head})")) { (drawing(&layout)) }
        }
    };
    markup.into_string() + "\n"
}

/// Renders the picture for use within a page.
pub(super) fn inline(digest: &Digest<'_>) -> Markup {
    let layout = layout::of(digest.report);
    let view = format!("0 0 {} {}", layout.width, layout.height);
    // Smaller letters could not be read.
    let width = format!("width:{}px;min-width:{}px", layout.width, layout.width * 9 / 10 + 1);
    html! {
        svg .picture viewBox=(view) style=(width) role="img" aria-label=(summary(digest)) { (drawing(&layout)) }
    }
}

fn title(digest: &Digest<'_>) -> String {
    let report = digest.report;
    clean(&format!("{}: {}, {}", report.tool.name, digest.host(), report.started_at)).into_owned()
}

/// Describes the picture for readers who cannot see it.
fn summary(digest: &Digest<'_>) -> String {
    let gpus = super::figures::count(digest.report.snapshot.gpus.len(), "GPU");
    format!("How {gpus} are connected, from the processors at the top to the GPUs at the bottom")
}

/// Returns the caveats, the summary and the findings.
fn description(digest: &Digest<'_>) -> String {
    let caveats = digest.caveats.values().cloned();
    let findings = digest.findings.iter().map(|finding| finding.message.clone());
    let all: Vec<_> = caveats.chain([summary(digest)]).chain(findings).collect();
    clean(&all.join(". ")).into_owned()
}

#[cfg(test)]
mod tests;

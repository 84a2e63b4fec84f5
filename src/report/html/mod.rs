//! The report as one HTML file for a browser or a printer: the verdict and the findings first, a picture of the
//! machine, heat maps and charts, everything else folded, and the report itself, so that `diagnose` reads the file
//! back. The page loads nothing, and runs only its own script, which highlights related elements.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::blocks::{NEW_LINE, flow};
use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::format::{Format, Level, Style};
use super::page::{Block, Page};
use super::sections;

mod bar;
mod bars;
mod blocks;
mod cards;
mod comparison;
pub mod embed;
mod head;
mod heat;
mod host_map;
mod load;
mod map_cells;
mod soak;
mod timeline;

pub(super) use self::comparison::page as comparison;

pub(super) const FORMAT: Format = Format::new("html", &["html", "htm"], "For a browser", render);

/// Style sheets within the file.
const STYLE_SHEETS: [&str; 3] =
    [include_str!("colors.css"), include_str!("html.css"), super::picture::STYLE_SHEET];

/// Highlights what belongs to the element under the pointer.
const SCRIPT: &str = include_str!("script.js");

/// SHA-256 of the script in base64: a browser runs no other script. A test compares it.
const SCRIPT_HASH: &str = "HFnWQVO+z89trBpYBjK7e/qY5pyGgX49SEl8bmX64A8=";

/// Content policy: nothing is fetched and nothing runs, even if a hostile name gets through.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Sections that are open at first.
const OPEN: [&str; 1] = ["Not tested, or not as planned"];

fn render(digest: &Digest<'_>, style: &Style) -> String {
    let page = sections::page(digest, style.level.max(Level::Figures));
    let tool = &digest.report.tool;
    let footer = html! {
        p { (clean(&tool.name)) " " (clean(&tool.version)) ", started " (clean(&digest.report.started_at)) }
        p { "The whole report is in this file: " code { "peerscope diagnose FILE.html" } " reads it." }
    };
    let content = html! {
        (head::write(digest, page.blocks()))
        (cards::write(digest))
        (picture(digest))
        (heat::write(digest))
        div .charts { (bars::write(digest)) }
        @if let Some(measurements) = &digest.report.measurements { (soak::write(measurements)) }
        (cards::notes(digest))
        (timeline::write(digest.timelines))
        (rest(page.blocks()))
    };
    let end = html! { (NEW_LINE) (embed::element(digest.report)) (NEW_LINE) script { (PreEscaped(SCRIPT)) } };
    let policy = format!("{POLICY}; script-src 'sha256-{SCRIPT_HASH}'");
    file(&title(digest), &policy, &content, &footer, &end)
}

/// Returns a page as a file that loads nothing and runs nothing, with a picture behind its sections. `title` must be clean.
pub fn document(title: &str, page: &Page, picture: Option<&Markup>, footer: &Markup) -> String {
    let blocks = page.blocks();
    let content = html! {
        h1 { (title) }
        section .top { (flow(top(blocks))) }
        @for blocks in sections(blocks) { (NEW_LINE) section { (flow(blocks)) } }
        @if let Some(picture) = picture { (NEW_LINE) section { (picture) } }
    };
    file(title, POLICY, &content, footer, &html! {})
}

fn file(title: &str, policy: &str, content: &Markup, footer: &Markup, end: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (title) }
                style { @for sheet in STYLE_SHEETS { (PreEscaped(sheet)) } }
            }
            body {
                main { (content) }
                (NEW_LINE) footer { (footer) }
                (end)
            }
        }
    };
    markup.into_string() + "\n"
}

/// Returns the blocks before the first heading.
fn top(blocks: &[Block]) -> &[Block] {
    let first =
        blocks.iter().position(|block| matches!(block, Block::Heading(_))).unwrap_or(blocks.len());
    &blocks[..first]
}

/// Returns the remaining blocks, split at each heading.
fn sections(blocks: &[Block]) -> impl Iterator<Item = &[Block]> {
    let rest = &blocks[top(blocks).len()..];
    rest.chunk_by(|_, next| !matches!(next, Block::Heading(_)))
}

fn title(digest: &Digest<'_>) -> String {
    let report = digest.report;
    if digest.is(Caveat::Simulated) {
        return format!(
            "{}: simulated machine {}",
            clean(&report.tool.name),
            clean(&report.machine)
        );
    }
    let host = report
        .snapshot
        .host
        .hostname
        .known()
        .map_or("a machine without a known name", String::as_str);
    format!("{}: {}", clean(&report.tool.name), clean(host))
}

fn picture(digest: &Digest<'_>) -> Markup {
    html! {
        @if !digest.report.topology.nodes.is_empty() {
            (NEW_LINE) section .machine {
                h2 { "The machine" }
                p .faint {
                    "The wider a line, the faster the link."
                    span .hint { " Point at a part, or at a pair below, to see what its copies take." }
                }
                div .scroll tabindex="0" role="region" aria-label="Picture of the machine" { (super::picture::inline(digest)) }
            }
        }
    }
}

/// Renders everything else, each section folded.
fn rest(blocks: &[Block]) -> Markup {
    html! {
        @for section in sections(blocks) {
            @let (title, rest) = match section {
                [Block::Heading(title), rest @ ..] => (title.as_str(), rest),
                all => ("More", all),
            };
            (NEW_LINE)
            details open[OPEN.contains(&title)] { summary { (title) } (flow(rest)) }
        }
    }
}

#[cfg(test)]
mod tests;

//! The report as one HTML file for a browser or a printer: the verdict and the findings first, a picture of the machine
//! beside heat maps, everything else folded, and the report itself, so that `diagnose` reads the file back. The page loads
//! nothing, and runs only its own script, which highlights related elements and copies the ticket.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::blocks::{NEW_LINE, flow};
use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::format::{Format, Level, Style};
use super::page::{Block, Page};
use super::sections;
use model::measurement::{Probe, Scope};

mod blocks;
mod cards;
mod comparison;
pub mod embed;
mod head;
mod heat;
mod soak;
mod timeline;

pub(super) use self::comparison::page as comparison;

pub(super) const FORMAT: Format = Format::new("html", &["html", "htm"], "For a browser", render);

/// Style sheets within the file.
const STYLE_SHEETS: [&str; 3] =
    [include_str!("colors.css"), include_str!("html.css"), super::picture::STYLE_SHEET];

/// Highlights what belongs to the element under the pointer, and copies the ticket.
const SCRIPT: &str = include_str!("script.js");

/// SHA-256 of the script in base64: a browser runs no other script. A test compares it.
const SCRIPT_HASH: &str = "eRxJJDKCoyoLzpEeVqtbpjuGqJA6sNZBvpWRV80Dih8=";

/// Content policy: nothing is fetched and nothing runs, even if a hostile name gets through.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Sections that matter as much as the findings.
const GAPS: &str = "Not tested, or not as planned";

/// Folded headings, each with many sections of the page.
const FOLDS: [(&str, &str); 3] =
    [("figures", "Figures"), ("facts", "Machine"), ("developers", "For developers")];

fn render(digest: &Digest<'_>, style: &Style) -> String {
    let page = sections::page(digest, style.level.max(Level::Figures), &Style::PLAIN);
    let blocks = page.blocks();
    let is = |block: &&Block| !matches!(block, Block::Finding { .. } | Block::Item { .. });
    let said: Vec<Block> = top(blocks).iter().filter(is).cloned().collect();
    let hours = digest.report.measurements.as_ref().and_then(|all| all.soak.as_deref());
    let part = |id, title, content| Chapter { id, title, content };
    let hours = part("hours", "Hours under load", soak::write(digest, hours));
    let findings = part("findings", "Findings", cards::write(digest));
    let seen = [
        part("picture", "Picture", picture(digest)),
        part("pairs", "Pair by pair", heat::write(digest)),
    ];
    let gaps = sections_of(blocks).find(|section| title_of(section) == GAPS);
    let rest = [
        part("gaps", "Not tested", gaps.map(flow).unwrap_or_default()),
        part("notes", "Notes", cards::notes(digest)),
        part("timeline", "Timeline", timeline::write(digest.timelines)),
        part("run", "This run", head::facts(digest, top(blocks))),
    ];
    let folds = FOLDS.map(|(id, title)| part(id, title, fold(blocks, title)));
    let all = [&hours, &findings].into_iter().chain(&seen).chain(&rest).chain(&folds);
    let content = html! {
        header {
            h1 { (title(digest)) }
            (flow(&said))
            nav aria-label="Contents" {
                @for part in all.filter(|part| !part.content.0.is_empty()) {
                    a href=(format!("#{}", part.id)) { (part.title) } " "
                }
                button #copy .hint type="button" { "Copy as ticket" }
            }
            (NEW_LINE) pre #ticket hidden { (cards::ticket(digest)) }
        }
        (hours.write()) (findings.write())
        div .seen { @for part in &seen { (part.write()) } }
        @for part in &rest { (part.write()) }
        @for part in folds.iter().filter(|part| !part.content.0.is_empty()) {
            (NEW_LINE)
            details open[digest.report.measurements.is_none()] {
                summary { (part.title) }
                (part.write())
            }
        }
    };
    let footer = html! { p { "The whole report is in this file: " code { "peerscope diagnose FILE.html" } " reads it." } };
    let end = html! { (NEW_LINE) (embed::element(digest.report)) (NEW_LINE) script { (PreEscaped(SCRIPT)) } };
    let policy = format!("{POLICY}; script-src 'sha256-{SCRIPT_HASH}'");
    file(&title(digest), &policy, &content, &footer, &end)
}

/// A part of the page that its contents name.
struct Chapter {
    id: &'static str,
    title: &'static str,
    content: Markup,
}

impl Chapter {
    fn write(&self) -> Markup {
        html! { @if !self.content.0.is_empty() { (NEW_LINE) div id=(self.id) { (self.content) } } }
    }
}

/// Returns a page as a file that loads nothing and runs nothing, with pictures behind its first section. `title` must be clean.
pub fn document(title: &str, page: &Page, pictures: &Markup, footer: &Markup) -> String {
    let blocks = page.blocks();
    let content = html! {
        h1 { (title) }
        section .top { (flow(top(blocks))) }
        (NEW_LINE) section { (pictures) }
        @for blocks in sections_of(blocks) { (NEW_LINE) section { (flow(blocks)) } }
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
fn sections_of(blocks: &[Block]) -> impl Iterator<Item = &[Block]> {
    let rest = &blocks[top(blocks).len()..];
    rest.chunk_by(|_, next| !matches!(next, Block::Heading(_)))
}

fn title(digest: &Digest<'_>) -> String {
    let report = digest.report;
    if digest.is(Caveat::Simulated) {
        let [tool, machine] = [&report.tool.name, &report.machine].map(|name| clean(name));
        return format!("{tool}: simulated machine {machine}");
    }
    format!("{}: {}", clean(&report.tool.name), clean(digest.host()))
}

fn picture(digest: &Digest<'_>) -> Markup {
    html! {
        @if !digest.report.topology.nodes.is_empty() {
            section .machine {
                h2 { "The machine" }
                div .scroll tabindex="0" role="region" aria-label="Picture of the machine" { (super::picture::inline(digest)) }
                p .faint {
                    "The wider a line, the faster the link."
                    span .hint { " Point at a part, or at a pair, to see what its copies take." }
                }
            }
        }
    }
}

fn title_of(section: &[Block]) -> &str {
    match section.first() {
        Some(Block::Heading(title)) => title,
        _ => "",
    }
}

/// Renders the sections below a folded heading.
fn fold(blocks: &[Block], title: &str) -> Markup {
    let own = |section: &&[Block]| title_of(section) != GAPS && fold_of(title_of(section)) == title;
    html! { @for section in sections_of(blocks).filter(own) { (NEW_LINE) section { (flow(section)) } } }
}

/// Returns the folded heading for a section.
fn fold_of(title: &str) -> &'static str {
    let begins = |with: &str| title.to_lowercase().starts_with(with);
    let of_programs =
        Probe::ALL.iter().filter(|probe| matches!(probe.scope(), Scope::Gpu | Scope::Processes));
    let of_machine = ["machine", "between gpus", "topology", "pcie", "nvlink"];
    let [figures, machine, developers] = FOLDS.map(|(_, title)| title);
    if begins("for programs") || of_programs.map(ToString::to_string).any(|probe| begins(&probe)) {
        developers
    } else if of_machine.into_iter().any(begins) {
        machine
    } else {
        figures
    }
}

#[cfg(test)]
mod tests;

//! The report as one HTML file for a browser or a printer: the same page as the text format, with
//! sections, tables that scroll in their own boxes, and shades behind rates. It loads nothing from
//! anywhere and runs nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::body;
use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::format::{Format, Style};
use super::matrix::{Align, Cell, Table};
use super::page::{Block, Paint};

/// HTML.
pub(super) const FORMAT: Format = Format::new("html", &["html", "htm"], "For a browser", render);

/// The style sheet, within the file.
const STYLE_SHEET: &str = include_str!("html.css");

/// Tables of more columns are set smaller on paper.
const WIDE: usize = 10;

/// Between elements below each other, so that the file can be read and compared.
const NEW_LINE: PreEscaped<&str> = PreEscaped("\n");

fn render(digest: &Digest<'_>, style: &Style) -> String {
    let page = body::page(digest, style.verbose);
    let report = digest.report;
    let tool = &report.tool;
    let title = title(digest);
    let blocks = page.blocks();
    let first = blocks.iter().position(|block| matches!(block, Block::Heading(_))).unwrap_or(blocks.len());
    let (top, rest) = blocks.split_at(first);
    let starts = |block: &Block| matches!(block, Block::Heading(_));
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Nothing is fetched and nothing runs, even if a hostile name gets through.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE_SHEET)) }
            }
            body {
                header { h1 { (title) } }
                main {
                    section .top { (flow(top)) }
                    @for blocks in rest.chunk_by(|_, next| !starts(next)) {
                        (NEW_LINE) section { (flow(blocks)) }
                    }
                }
                (NEW_LINE) footer {
                    p { "In matrices, the deeper the shade, the larger the share: of the theoretical rate, or of the \
                         fastest route. ✖ and ▲ mark what an error or a warning above is about." }
                    (NEW_LINE)
                    p { (clean(&tool.name)) " " (clean(&tool.version)) ", started " (clean(&report.started_at)) }
                }
            }
        }
    };
    markup.into_string() + "\n"
}

fn title(digest: &Digest<'_>) -> String {
    let report = digest.report;
    if digest.is(Caveat::Simulated) {
        return format!("{}: simulated machine {}", clean(&report.tool.name), clean(&report.machine));
    }
    let host = report.snapshot.host.hostname.known().map_or("a machine without a known name", String::as_str);
    format!("{}: {}", clean(&report.tool.name), clean(host))
}

/// Blocks one below the other; items that follow each other are one list.
fn flow(blocks: &[Block]) -> Markup {
    let is_item = |block: &Block| matches!(block, Block::Item { .. });
    html! {
        @for run in blocks.chunk_by(|one, next| is_item(one) && is_item(next)) {
            @if is_item(&run[0]) {
                dl {
                    @for block in run {
                        @if let Block::Item { label, paint, text, .. } = block {
                            (NEW_LINE) dt class=(class(*paint)) { (label) } dd { (text) }
                        }
                    }
                }
            } @else {
                (NEW_LINE) (block(&run[0]))
            }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Blank | Block::Item { .. } => html! {},
        Block::Banner(text) => html! { p .banner role="note" { (text) } },
        Block::Verdict { word, paint, text } => html! {
            p .verdict.(class(*paint)) { strong { (word) } " " span { (text) } }
        },
        Block::Finding { word, paint, text, below } => html! {
            article .finding.(class(*paint)) {
                p { strong .badge { (word) } " " (text) }
                @if !below.is_empty() {
                    dl {
                        @for (label, text) in below { (NEW_LINE) dt { (label) } dd { (text) } }
                    }
                }
            }
        },
        Block::Heading(text) => html! { h2 { (text) } },
        Block::Line(paint, text) | Block::Note(paint, text) => html! { p class=(class(*paint)) { (text) } },
        Block::Table(table) => matrix(table),
    }
}

fn matrix(table: &Table) -> Markup {
    let (head, body) = table.rows.split_at(table.head.min(table.rows.len()));
    html! {
        div .scroll tabindex="0" {
            table .wide[table.align.len() > WIDE] {
                thead {
                    @for row in head {
                        (NEW_LINE) tr { @for (column, cell) in row.iter().enumerate() { (caption(cell, "col", table.align[column])) } }
                    }
                }
                tbody {
                    @for row in body {
                        (NEW_LINE) tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column < table.labels {
                                    (caption(cell, "row", table.align[column]))
                                } @else {
                                    td class=(cell_class(cell, table.align[column])) { (text_of(cell)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A caption; an empty corner is not one.
fn caption(cell: &Cell, scope: &str, align: Align) -> Markup {
    html! {
        @if cell.text.is_empty() {
            td {}
        } @else {
            th scope=(scope) class=(cell_class(cell, align)) { (text_of(cell)) }
        }
    }
}

/// Cells that a finding is about have a mark, so that nothing is shown by colour alone.
fn text_of(cell: &Cell) -> Markup {
    let mark = match cell.paint {
        Paint::Error => Some("✖\u{a0}"),
        Paint::Warning => Some("▲\u{a0}"),
        _ => None,
    };
    html! { @if let Some(mark) = mark { span .mark { (mark) } } (cell.text) }
}

fn cell_class(cell: &Cell, align: Align) -> String {
    let side = if align == Align::Left { "left" } else { "right" };
    // A shade for every ten per cent.
    let shade = cell.share.map(|share| format!(" share{}", share / 10)).unwrap_or_default();
    format!("{side} {}{shade}", class(cell.paint))
}

const fn class(paint: Paint) -> &'static str {
    match paint {
        Paint::Plain => "plain",
        Paint::Faint => "faint",
        Paint::Strong => "strong",
        Paint::Good => "good",
        Paint::Warning => "warning",
        Paint::Error => "error",
    }
}

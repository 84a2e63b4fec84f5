//! Blocks of a page as HTML: the same blocks that the text format lays out.

use maud::{Markup, PreEscaped, html};

use crate::matrix::{Align, Cell, Table};
use crate::page::{Block, Paint};

/// Most columns of a table at normal size on paper; wider tables are set smaller.
const WIDE: usize = 10;

/// Separates stacked elements, so that the file can be read and compared.
pub(super) const NEW_LINE: PreEscaped<&str> = PreEscaped("\n");

/// Renders blocks one below the other; consecutive items form one list.
pub(super) fn flow(blocks: &[Block]) -> Markup {
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
        Block::Line(paint, text) | Block::Note(paint, text) => {
            html! { p class=(class(*paint)) { (text) } }
        }
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
                                @if column == 0 {
                                    (caption(cell, "row", table.align[column]))
                                } @else {
                                    td class=(cell_class(cell, table.align[column])) style=[shade(cell)] { (text_of(cell)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders a caption; an empty corner is a plain cell.
fn caption(cell: &Cell, scope: &str, align: Align) -> Markup {
    html! {
        @if cell.text.is_empty() {
            td {}
        } @else {
            th scope=(scope) class=(cell_class(cell, align)) { (text_of(cell)) }
        }
    }
}

/// Renders the text of a cell. Cells that a finding is about have a mark, so that nothing is shown by colour alone.
fn text_of(cell: &Cell) -> Markup {
    let sign = cell.paint.sign();
    html! {
        @if !sign.is_empty() { span .mark { (sign) "\u{a0}" } }
        @match &cell.whole {
            Some(whole) => details .cut { summary { (cell.text) } span { (whole) } },
            None => (cell.text),
        }
    }
}

fn cell_class(cell: &Cell, align: Align) -> String {
    let side = if align == Align::Left { "left" } else { "right" };
    format!("{side} {}", class(cell.paint))
}

/// Returns the ground of the share of what is amiss: the larger it is, the deeper. What is as it should be has none.
fn shade(cell: &Cell) -> Option<String> {
    let share = cell.share.filter(|_| cell.paint >= Paint::Warning)?;
    Some(format!("background:rgba(var(--shade),{:.2})", f64::from(share) / 190.0))
}

pub(super) const fn class(paint: Paint) -> &'static str {
    match paint {
        Paint::Plain => "plain",
        Paint::Faint => "faint",
        Paint::Strong => "strong",
        Paint::Good => "good",
        Paint::Warning => "warning",
        Paint::Error => "error",
    }
}

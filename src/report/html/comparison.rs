//! Two reports side by side: how each pair changed, and which findings are new or gone.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::blocks::{NEW_LINE, flow};
use super::cards;
use crate::digest::Digest;
use crate::escape::clean;
use crate::page::{Block, Page};
use diagnose::compare::{Change, Comparison};
use model::finding::Finding;
use model::placement::Pair;
use model::report::Report;
use model::rounding::rate;

/// Renders the page; `page` is the same as for text.
pub(crate) fn page(comparison: &Comparison, new: &Report, page: &Page) -> String {
    let title = "peerscope: two reports of one machine";
    // The findings follow as cards.
    let is_said = |block: &&Block| !matches!(block, Block::Finding { .. });
    let said: Vec<Block> = super::top(page.blocks()).iter().filter(is_said).cloned().collect();
    let content = html! {
        h1 { (title) }
        section .top { (flow(&said)) }
        (list("What is worse or different", &comparison.findings, new))
        (changes(comparison, new))
        (list("New findings", &comparison.appeared, new))
        (list("Findings that are gone", &comparison.gone, new))
    };
    let tool = &new.tool;
    let footer = html! { p { (clean(&tool.name)) " " (clean(&tool.version)) } };
    super::file(title, super::POLICY, &content, &footer, &html! {})
}

/// Returns the class of a map cell by how far its figure fell or rose, and its sign.
fn dress(change: &Change) -> (&'static str, &'static str) {
    match change.percent() {
        fall if fall <= -10.0 => ("h0", "▾"),
        fall if fall <= -5.0 => ("h1", "▾"),
        fall if fall <= -2.0 => ("h2", "▾"),
        rise if rise < 2.0 => ("h5", ""),
        rise if rise < 5.0 => ("up", "▴"),
        _ => ("up more", "▴"),
    }
}

fn changes(comparison: &Comparison, new: &Report) -> Markup {
    let gpus = Digest::of(new).gpus();
    let of = |pair: Pair| comparison.pairs.iter().find(|change| change.pair == pair);
    let small = gpus.len() > 16;
    html! {
        @if !comparison.pairs.is_empty() && gpus.len() > 1 {
            (NEW_LINE) section {
                h2 { "What changed, pair by pair" }
                p .faint { "One-way copies from the GPU of the row to the GPU of the column: per cent that the later figure lies above or below the earlier one." }
                p .legend {
                    @for (class, words) in [("h0", "-10 and less"), ("h1", "-5"), ("h2", "-2"), ("h5", "as before"), ("up", "+2"), ("up more", "+5 and more")] {
                        span class=(format!("key {class}")) { (words) } " "
                    }
                    span .key .none { "not in both" } " "
                    span { "▾ ▴ by 2 and more, ✖ no longer direct: beside its copies through the host" }
                }
                div .scroll tabindex="0" role="region" aria-label="Changes of pairs" {
                    table .heat.small[small] {
                        thead { tr { td {} @for gpu in &gpus { th scope="col" { @if !small { "GPU " } (gpu) } } } }
                        tbody {
                            @for &source in &gpus {
                                tr {
                                    th scope="row" { @if !small { "GPU " } (source) }
                                    @for &destination in &gpus {
                                        @if source == destination { td .self {} } @else { (cell(of(Pair { source, destination }), small)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(change: Option<&Change>, small: bool) -> Markup {
    let Some(change) = change else {
        return html! { td .none { @if !small { "-" } } };
    };
    let (class, sign) = dress(change);
    let (sign, through) = match change.staged_now {
        true => ("✖", ", through host memory: CUDA no longer lets the pair copy directly"),
        false => (sign, ""),
    };
    let [old, new] = [change.old_gbps, change.new_gbps].map(rate);
    let tip = format!("{}: {old} GB/s then, {new} now{through}", change.pair);
    html! {
        td .(class) .error[change.staged_now] title=(tip) {
            @if small { (sign) } @else {
                @if !sign.is_empty() { span .sign { (sign) } }
                (format!("{:+.1}", change.percent()).replace("-0.0", "0.0").replace("+0.0", "0.0"))
            }
        }
    }
}

/// Renders findings as cards, worst first.
fn list(title: &str, findings: &[Finding], report: &Report) -> Markup {
    let mut all: Vec<&Finding> = findings.iter().collect();
    all.sort_by_key(|finding| Reverse(finding.severity));
    cards::section(title, &all, &report.snapshot)
}

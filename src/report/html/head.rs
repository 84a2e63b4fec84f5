//! The top of the page: the verdict, the machine, the time and the duration.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::figures::ranges;
use super::super::machine;
use super::super::page::Block;
use super::blocks::{NEW_LINE, flow};
use super::{title, top};
use model::report::Report;
use model::rounding::short;

/// Most serial numbers that are listed at once; more unfold.
const SERIALS: usize = 8;

/// Renders the top; `blocks` come from the page that text and HTML share.
pub(super) fn write(digest: &Digest<'_>, blocks: &[Block]) -> Markup {
    // The findings follow as cards.
    let said: Vec<Block> = top(blocks)
        .iter()
        .filter(|block| !matches!(block, Block::Finding { .. }))
        .cloned()
        .collect();
    html! {
        header {
            h1 { (title(digest)) }
            (flow(&said))
            dl .facts {
                @for (label, text) in facts(digest.report) {
                    (NEW_LINE) div { dt { (label) } dd { (clean(&text)) } }
                }
                (serials(digest.report))
            }
        }
    }
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let host = &report.snapshot.host;
    let groups = machine::gpu_groups(report).into_iter();
    let groups: Vec<_> =
        groups.map(|(gpus, text)| format!("{} (GPU {})", text, ranges(&gpus))).collect();
    let mut facts = vec![
        ("Host", host.hostname.known().cloned().unwrap_or_else(|| "name unknown".into())),
        ("Started", report.started_at.replace('T', " ").replace('Z', " UTC")),
        ("Duration", format!("{} s", short(report.timing.total))),
    ];
    if let Some(measurements) = &report.measurements {
        facts.push(("Profile", measurements.profile.clone()));
    }
    facts.push(("GPUs", if groups.is_empty() { "none found".into() } else { groups.join("; ") }));
    facts.push(("Software", machine::software(report)));
    facts
}

/// Renders the serial number of each GPU; boards with several GPUs have one for all of them.
fn serials(report: &Report) -> Markup {
    let known =
        report.snapshot.gpus.iter().filter_map(|gpu| Some((gpu.index, gpu.serial.known()?)));
    let all: BTreeSet<(u32, &String)> = known.collect();
    let list: Vec<String> =
        all.iter().map(|(gpu, serial)| format!("GPU {gpu} {}", clean(serial))).collect();
    html! {
        @if !list.is_empty() {
            (NEW_LINE) div {
                dt { "Serial numbers" }
                dd {
                    @if list.len() > SERIALS {
                        details .cut { summary { "of " (list.len()) " GPUs" } span { (list.join(", ")) } }
                    } @else {
                        (list.join(", "))
                    }
                }
            }
        }
    }
}

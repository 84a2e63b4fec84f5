//! Facts of the run and the machine, below what is wrong.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::blocks::{NEW_LINE, flow};
use crate::digest::Digest;
use crate::escape::clean;
use crate::figures::ranges;
use crate::machine;
use crate::page::Block;

/// Most serial numbers that are listed at once; more unfold.
const SERIALS: usize = 8;

/// Renders the labelled lines of the page that text and HTML share, GPUs and their serial numbers. Boards with several GPUs
/// have one number for all of them.
pub(super) fn facts(digest: &Digest<'_>, blocks: &[Block]) -> Markup {
    let snapshot = &digest.report.snapshot;
    // The notes follow as cards.
    let is = |block: &&Block| matches!(block, Block::Item { label, .. } if label != "info");
    let items: Vec<Block> = blocks.iter().filter(is).cloned().collect();
    let host = snapshot.host.hostname.known().map_or("name unknown", String::as_str);
    let groups = machine::gpu_groups(digest.report).into_iter();
    let groups: Vec<_> =
        groups.map(|(gpus, text)| format!("{text} (GPU {})", ranges(&gpus))).collect();
    let gpus = if groups.is_empty() { "none found".into() } else { groups.join("; ") };
    let known = snapshot.gpus.iter().filter_map(|gpu| Some((gpu.index, gpu.serial.known()?)));
    let serials: BTreeSet<(u32, &String)> = known.collect();
    let list: Vec<String> =
        serials.iter().map(|(gpu, serial)| format!("GPU {gpu} {}", clean(serial))).collect();
    html! {
        h2 { "This run" }
        (flow(&items))
        dl {
            dt { "Host" } dd { (clean(host)) } (NEW_LINE)
            dt { "GPUs" } dd { (clean(&gpus)) }
            @if !list.is_empty() {
                (NEW_LINE) dt { "Serial numbers" }
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

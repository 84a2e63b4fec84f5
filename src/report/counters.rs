//! What was counted and calculated beside the measurements, in sentences.

use std::collections::BTreeSet;

use super::figures::{Spread, count};
use model::collective::AllReduce;
use model::counted::LinkShare;
use model::measurement::Measurements;
use model::rounding::range;
use model::units::Bytes;

/// Returns what an all-reduce reaches at most, and how the NVLinks' counters agree with what was copied.
pub(super) fn lines(measurements: &Measurements) -> Vec<String> {
    let reduced = AllReduce::words(&measurements.all_reduce);
    let reduced = (!reduced.is_empty()).then(|| format!("All-reduce: {reduced}"));
    let counted = &measurements.counted;
    let sound = counted.iter().filter(|seen| !seen.disturbed);
    let part = |counted: Option<Bytes>, known: Bytes| {
        counted.filter(|_| known.0 > 0).map(|bytes| of(bytes, known))
    };
    let parts = sound.clone().flat_map(|seen| {
        let received = part(seen.nvlink_received_bytes, seen.received_bytes);
        [part(seen.nvlink_sent_bytes, seen.sent_bytes), received]
    });
    let nvlink = shares(parts.flatten()).map(|share| {
        // There is one row for each GPU of each pattern.
        let gpus = sound.clone().filter(|seen| seen.nvlink_sent_bytes.is_some());
        let gpus = gpus.map(|seen| seen.gpu).collect::<BTreeSet<u32>>();
        let gpus = count(gpus.len(), "GPU");
        format!("NVLinks counted {share} of what was copied between GPUs ({gpus})")
    });
    let ways = [|link: &LinkShare| link.sent_percent, |link: &LinkShare| link.received_percent];
    let links = sound.flat_map(|seen| ways.map(|way| even(&seen.links, way))).flatten().flatten();
    let links = shares(links).map(|share| format!("Each NVLink carried {share} of an equal part"));
    let unread: BTreeSet<&str> = counted.iter().filter_map(|seen| seen.reason.as_deref()).collect();
    let unread: Vec<&str> = unread.into_iter().collect();
    let unread = (!unread.is_empty()).then(|| format!("Not counted: {}", unread.join("; ")));
    [reduced, nvlink, links, unread].into_iter().flatten().collect()
}

/// Returns the lowest and the highest share: `99.8 to 100.1%`.
fn shares(all: impl Iterator<Item = f64>) -> Option<String> {
    let Spread { min, max, .. } = Spread::of(all)?;
    Some(range(min, max, |share| format!("{share:.1}"), " to ") + "%")
}

/// Returns the share of each link as per cent of an equal share. It applies if all links lead to the switches: then all
/// carry traffic.
#[allow(clippy::cast_precision_loss, reason = "a number of links")]
fn even(links: &[LinkShare], way: fn(&LinkShare) -> Option<f64>) -> Option<Vec<f64>> {
    let shares: Option<Vec<f64>> = links.iter().map(way).collect();
    shares.map(|shares| shares.iter().map(|share| share * shares.len() as f64).collect())
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn of(part: Bytes, whole: Bytes) -> f64 {
    100.0 * part.0 as f64 / whole.0 as f64
}

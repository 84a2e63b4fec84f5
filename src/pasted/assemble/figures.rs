//! Figures of tools → cells, as peerscope's own probes have them.

use std::collections::{BTreeMap, HashSet};

use super::ledger::{At, Ledger};
use super::names::Names;
use crate::told::{Note, Printed};
use model::cell::Subject;
use model::host::HostCopy;
use model::measurement::{
    CudaPeerAccess, Latency, LocalCopy, Measurements, PeerBandwidth, Verified,
};

use model::cuda::CUDA_SYSTEM_NOT_READY;
use model::placement::{Pair, Path};
use model::units::{Bytes, GbPerSecond};

/// Name of the profile of such figures.
const PROFILE: &str = "pasted";

/// Size of the small copies of p2pBandwidthLatencyTest: four numbers of four bytes.
const SMALL: Bytes = Bytes(16);

/// Difference of two figures of one kind from which they are named, per cent of the first.
const APART_PERCENT: f64 = 10.0;

/// The kind of the tool that measures one GPU, which it calls 0.
const ONE_GPU: &str = "bandwidth-test";

/// Cells by their titles, so that each is there once.
#[derive(Default)]
struct Cells {
    known: BTreeMap<String, f64>,
    remarks: Vec<String>,
}

impl Cells {
    /// Returns true if this is the last figure of its kind: what follows a change counts.
    fn is_new(&mut self, of: &str, value: f64, at: At<'_>, ledger: &mut Ledger) -> bool {
        match self.known.get(of) {
            None => {
                self.known.insert(of.to_owned(), value);
                ledger.origin(of.to_owned(), at);
                true
            }
            Some(last) => {
                if at.kind == ONE_GPU {
                    self.remarks.push(format!(
                        "bandwidthTest ran again, in {}, perhaps on another GPU (CUDA_VISIBLE_DEVICES)",
                        at.name
                    ));
                }
                if 100.0 * (value - last).abs() > APART_PERCENT * last {
                    self.remarks.push(format!(
                        "{of} was measured twice: {value:.2} in {at}, {last:.2} later, which counts"
                    ));
                }
                false
            }
        }
    }
}

/// Returns all figures; `None` if there is none.
pub(super) fn measurements(
    told: &[(At<'_>, &Note)],
    names: &Names,
    ledger: &mut Ledger,
    remarks: &mut Vec<String>,
) -> Option<Measurements> {
    let mut all = Measurements { profile: PROFILE.to_owned(), ..Measurements::default() };
    let pair_of = |one, other, at: &At<'_>| {
        names.pair(one, other, at).map(|(source, destination)| Pair { source, destination })
    };
    let only: Vec<u32> = names.all().into_keys().collect();
    let mut asked: BTreeMap<Pair, CudaPeerAccess> = BTreeMap::new();
    let blank = |pair| CudaPeerAccess {
        pair,
        possible: None,
        failure: None,
        failure_code: None,
        hindered: false,
    };
    for (at, what) in told {
        let (pairs, code, text) = match what {
            Note::Access(one, other, possible) => {
                let Some(pair) = pair_of(one, other, at) else { continue };
                let said = asked.entry(pair).or_insert_with(|| blank(pair));
                if said.possible.is_none() {
                    said.possible = Some(*possible);
                    let of = format!("driver.peer_access[{}→{}]", pair.source, pair.destination);
                    ledger.origin(of, *at);
                }
                continue;
            }
            // Only two GPUs show which pair was meant.
            Note::Fault(kind, _, text) if kind.cuda_code().is_some() => {
                let pairs = Pair::ordered(&only);
                let pairs = if only.len() == 2 { pairs } else { Vec::new() };
                (pairs, kind.cuda_code(), text)
            }
            _ => continue,
        };
        let text = Some(format!("{text} ({at})"));
        if code == Some(CUDA_SYSTEM_NOT_READY) {
            (all.driver.failure, all.driver.failure_code) = (text, code);
            continue;
        }
        for pair in pairs {
            let said = asked.entry(pair).or_insert_with(|| blank(pair));
            (said.failure, said.failure_code) = (text.clone(), code);
        }
    }
    all.driver.peer_access = asked.into_values().collect();
    let refused: HashSet<Pair> = all
        .driver
        .peer_access
        .iter()
        .filter(|said| said.possible == Some(false))
        .map(|said| said.pair)
        .collect();
    let mut cells = Cells::default();
    for (at, what) in told.iter().rev() {
        match what {
            Note::Peer(one, other, setup, figure) => {
                let Some(pair) = pair_of(one, other, at) else {
                    continue;
                };
                // Without access, "enabled" copies go through host memory too.
                let path = if refused.contains(&pair) { Path::Staged } else { setup.path };
                let mut cell = PeerBandwidth::blank(pair, setup.with_path(path));
                cell.achieved_gbps = rate(figure);
                cell.samples = figure.samples;
                cell.verified = figure.verified;
                if figure.verified == Verified::Corrupt {
                    cell.verification_detail = Some("the program found wrong values".to_owned());
                }
                let of = format!("peer[{}]", cell.title());
                if cells.is_new(&of, figure.value, *at, ledger) {
                    all.peer.push(cell);
                }
            }
            Note::Local(key, bytes, figure) => {
                let Some(gpu) = names.gpu(key, at) else {
                    continue;
                };
                let mut cell = LocalCopy::blank(gpu, *bytes);
                cell.achieved_gbps = rate(figure);
                cell.samples = figure.samples;
                if cells.is_new(&format!("local[{}]", cell.title()), figure.value, *at, ledger) {
                    all.local.push(cell);
                }
            }
            Note::HostCopy(key, way, bytes, figure) => {
                let Some(gpu) = names.gpu(key, at) else {
                    continue;
                };
                let mut cell = HostCopy::blank(
                    gpu,
                    None,
                    way.memory,
                    way.direction,
                    way.engine,
                    way.allocation,
                    1,
                    *bytes,
                );
                cell.achieved_gbps = rate(figure);
                cell.samples = figure.samples;
                cell.verified = figure.verified;
                if cells.is_new(&format!("host[{}]", cell.title()), figure.value, *at, ledger) {
                    all.host.push(cell);
                }
            }
            Note::Latency(one, other, path, figure) => {
                let Some(pair) = pair_of(one, other, at) else {
                    continue;
                };
                let path = if refused.contains(&pair) { Path::Staged } else { *path };
                let mut cell = Latency::blank(pair, path, SMALL);
                cell.latency_us = Some(figure.value);
                cell.samples = figure.samples;
                if cells.is_new(&format!("latency[{}]", cell.title()), figure.value, *at, ledger) {
                    all.latency.push(cell);
                }
            }
            _ => {}
        }
    }
    cells.remarks.reverse();
    remarks.append(&mut cells.remarks);
    all.peer.reverse();
    all.local.reverse();
    all.host.reverse();
    all.latency.reverse();
    let any = all.each().next().is_some()
        || !all.driver.peer_access.is_empty()
        || all.driver.failure.is_some();
    any.then_some(all)
}

fn rate(figure: &Printed) -> Option<GbPerSecond> {
    (!figure.value.is_nan()).then_some(GbPerSecond(figure.value))
}

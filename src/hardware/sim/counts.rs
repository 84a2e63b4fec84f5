//! Traffic counters of a simulated machine. The caller reports the bytes that the driver moves, since the driver
//! belongs to another process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::routes::PathClass;
use super::spec::{CounterFault, GpuSpec, MachineSpec, NvLinkSpec, OthersWork};
use hardware::Counts;
use model::flow::{Endpoint, Flow};

/// Time that the traffic of other programs runs between two readings of a GPU.
const STEP: Duration = Duration::from_millis(30);

/// The counters of one GPU.
#[derive(Debug, Default)]
struct Counter {
    /// Bytes sent and received by each NVLink.
    links: HashMap<u8, [f64; 2]>,
    pcie: [u64; 2],
    looks: u32,
}

/// The counters of all GPUs.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<HashMap<u32, Counter>>);

impl Counters {
    /// Counts a copy at both its ends.
    pub(super) fn carried(&self, spec: &MachineSpec, flow: Flow, bytes: u64) {
        let nvlink = flow.pair().filter(|pair| {
            spec.direct_route(pair.source, pair.destination).class == PathClass::NvLink
        });
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (way, end, other) in [(0, flow.from, flow.to), (1, flow.to, flow.from)] {
            let Endpoint::Gpu(gpu) = end else { continue };
            let counter = counters.entry(gpu).or_default();
            match nvlink {
                Some(_) => counter.spread(spec, gpu, other, way, bytes),
                None => counter.pcie[way] = counter.pcie[way].saturating_add(bytes),
            }
        }
    }

    /// Returns the bits that have passed an NVLink, in both directions.
    pub(super) fn link_bits(&self, gpu: u32, link: u8) -> f64 {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = counters.get(&gpu).and_then(|counter| counter.links.get(&link));
        counted.map_or(0.0, |[sent, received]| 8.0 * (sent + received))
    }

    /// Returns the counters of a GPU.
    pub(super) fn counts(&self, spec: &MachineSpec, index: u32, links: &[u8]) -> Counts {
        let fault = spec.faults.counters.iter().find(|fault| fault.gpu == index);
        if fault.is_some_and(|fault| fault.unread) {
            return Counts {
                failure: Some("NVML: unknown error of the driver (999)".into()),
                ..Counts::default()
            };
        }
        let supported = !fault.is_some_and(|fault| fault.unsupported);
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry(index).or_default();
        counter.looks = counter.looks.saturating_add(1);
        counter.others(spec, index);
        let has_nvlink = spec.gpus.get(index as usize).is_some_and(|gpu| !gpu.nvlinks.is_empty());
        let share = fault.map_or(1.0, |fault| *fault.counted);
        let of = |link: u8| {
            counter
                .links
                .get(&link)
                .map_or([0; 2], |counted| counted.map(|bytes| whole(bytes * share)))
        };
        let sum =
            |way: usize| whole(counter.links.values().map(|counted| counted[way] * share).sum());
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a counter that wraps, as the real one does"
        )]
        let pcie = counter.pcie.map(|bytes| u64::from(bytes as u32));
        let now = STEP * counter.looks;
        Counts {
            asked: now,
            answered: now,
            nvlink: (has_nvlink && supported).then(|| [sum(0), sum(1)]),
            links: if supported {
                links.iter().map(|link| (*link, of(*link))).collect()
            } else {
                Vec::new()
            },
            pcie: supported.then_some(pcie),
            ..Counts::default()
        }
    }
}

impl Counter {
    /// Counts bytes on the NVLinks of a GPU towards the other end. Spreads them evenly, except for links with a counter
    /// fault.
    fn spread(&mut self, spec: &MachineSpec, gpu: u32, other: Endpoint, way: usize, bytes: u64) {
        let fault = spec.faults.counters.iter().find(|fault| fault.gpu == gpu);
        let towards = other.gpu().map_or_else(Vec::new, |other| spec.links_towards(gpu, other));
        #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
        self.share(fault, &towards, way, bytes as f64);
    }

    fn share(&mut self, fault: Option<&CounterFault>, links: &[u8], way: usize, bytes: f64) {
        let part = |number| fault.map_or(1.0, |fault| part(fault, number));
        let all: f64 = links.iter().map(|number| part(*number)).sum();
        for number in links.iter().filter(|_| all > 0.0) {
            self.links.entry(*number).or_default()[way] += bytes * part(*number) / all;
        }
    }

    /// Counts the bytes that other programs have moved since the last reading.
    fn others(&mut self, spec: &MachineSpec, gpu: u32) {
        if self.looks < 2 {
            return;
        }
        let Some(own) = spec.gpus.get(gpu as usize) else {
            return;
        };
        let links: Vec<u8> =
            each_link(own).filter(|(links, _)| links.active).map(|(_, number)| number).collect();
        let fault = spec.faults.counters.iter().find(|fault| fault.gpu == gpu);
        let works = |others: &&OthersWork| others.only_at.is_none() || others.is_only_under_load();
        for others in spec.faults.others.iter().filter(|others| others.gpu == gpu && works(others))
        {
            for way in 0..2 {
                let moved = *others.nvlink[way] * 1e9 * STEP.as_secs_f64();
                self.share(fault, &links, way, moved);
                let bytes = whole(*others.pcie[way] * 1e9 * STEP.as_secs_f64());
                self.pcie[way] = self.pcie[way].saturating_add(bytes);
            }
        }
    }
}

fn part(fault: &CounterFault, number: u8) -> f64 {
    fault.links.iter().find(|link| link.link == number).map_or(1.0, |link| *link.part)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes are positive and far below 2^63"
)]
pub(super) fn whole(bytes: f64) -> u64 {
    bytes.round() as u64
}

/// Returns every NVLink of a GPU with its number.
pub(super) fn each_link(spec: &GpuSpec) -> impl Iterator<Item = (&NvLinkSpec, u8)> + Clone {
    // A link's number has eight bits, so this returns at most 256 links.
    spec.nvlinks
        .iter()
        .flat_map(|links| std::iter::repeat_n(links, usize::from(links.count)))
        .zip(0..=u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::spec::{Counted, LinkPart, Pairs, Traffic, Utilization};
    use model::placement::Pair;

    const BYTES: u64 = 18 << 20;

    fn spec() -> MachineSpec {
        builtin::get("h200x2").unwrap()
    }

    /// Returns the counts of GPU 0 after a copy to GPU 1.
    fn sent(spec: &MachineSpec) -> Counts {
        let counters = Counters::default();
        counters.counts(spec, 0, &[0, 17]);
        counters.carried(spec, Pair { source: 0, destination: 1 }.into(), BYTES);
        counters.counts(spec, 0, &[0, 17])
    }

    #[test]
    fn bytes_are_counted_where_they_pass() {
        let counts = sent(&spec());
        assert_eq!(
            (counts.nvlink, counts.pcie, counts.failure),
            (Some([BYTES, 0]), Some([0, 0]), None)
        );
        assert_eq!(counts.links, [(0, [1 << 20, 0]), (17, [1 << 20, 0])], "an eighteenth each");
        let mut astray = spec();
        astray.faults.over_pcie.push(Pairs::Both(0, 1));
        let counts = sent(&astray);
        assert_eq!((counts.nvlink, counts.pcie), (Some([0, 0]), Some([BYTES, 0])));
        assert!(astray.joined_by_nvlink(0, 1), "NVML still says so");
    }

    #[test]
    fn odd_counters_and_others_show() {
        let odd = |fault: CounterFault| {
            let mut spec = spec();
            spec.faults.counters.push(fault);
            sent(&spec)
        };
        let fault = || CounterFault {
            gpu: 0,
            links: Vec::new(),
            counted: Counted(1.0),
            unread: false,
            unsupported: false,
        };
        let idle =
            odd(CounterFault { links: vec![LinkPart { link: 17, part: Counted(0.0) }], ..fault() });
        assert_eq!((idle.nvlink, idle.links[1].1), (Some([BYTES, 0]), [0, 0]));
        assert_eq!(
            odd(CounterFault { counted: Counted(0.5), ..fault() }).nvlink,
            Some([BYTES / 2, 0])
        );
        assert!(odd(CounterFault { unread: true, ..fault() }).failure.is_some());
        let none = odd(CounterFault { unsupported: true, ..fault() });
        assert_eq!((none.nvlink, none.pcie, none.failure), (None, None, None));
        let mut busy = spec();
        busy.faults.others.push(OthersWork {
            gpu: 0,
            only_at: None,
            nvlink: [Traffic(10.0), Traffic(0.0)],
            pcie: [Traffic(0.0); 2],
            utilization: Utilization(0),
            unread: false,
            only_under_load: true,
        });
        assert_eq!(sent(&busy).nvlink, Some([BYTES + 300_000_000, 0]));
    }
}

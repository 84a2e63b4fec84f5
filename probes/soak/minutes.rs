//! Folds the rounds and readings of a soak into minutes and events, while it goes on.

mod events;
mod readings;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::Outcome;
use crate::soak::Soak;
pub use crate::soak::minute_counters::Counted;
use crate::soak::minutes::readings::{Readings, count};
use crate::statistics::median;
use crate::watch::{nvlinks_counted, rises};
use crate::{Action, Round};
use hardware::LinkSample;
use model::flow::Flow;
use model::measurement::{NvLinkCorrected, NvLinkErrorsAdded, Status};
use model::reading::Unknown;
use model::snapshot::GpuProcess;
use model::soak::{EventKind, Minute, MinuteOfGpu, MinuteOfPath, SoakEvent, SoakPath};

/// Length of a minute, seconds.
const MINUTE: f64 = 60.0;

/// The soak so far.
pub struct Minutes {
    paths: Vec<SoakPath>,
    /// The flows of each round, with the places of their paths.
    rounds: HashMap<u32, Vec<(Flow, usize)>>,
    gpus: Vec<u32>,
    /// Time of the driver's clock over all workers before the current one, and its own.
    before: f64,
    now: f64,
    /// Time before the soak began.
    began: f64,
    /// End of the last whole minute.
    closed: f64,
    flows: Vec<Rates>,
    readings: BTreeMap<u32, Readings>,
    links: HashMap<u32, [u8; 2]>,
    counted: Counted,
    /// Programs that used each GPU at its last reading.
    programs: HashMap<u32, Vec<GpuProcess>>,
    /// Events of this minute, each kind once for each part of the machine.
    seen: HashSet<(EventKind, Option<u32>, Option<u32>)>,
    /// Xid errors of this minute, by GPU and code.
    seen_xids: HashSet<(u32, u32)>,
    /// GPUs whose Xid errors could not be read.
    deaf: HashSet<u32>,
    events: Vec<SoakEvent>,
    pub ran: u64,
    pub lost: u64,
    has_fault: bool,
    /// GPUs whose clocks were held back in the last minute.
    held: HashSet<u32>,
    /// Rounds that crashed their worker and are tried again.
    crashed: HashSet<u32>,
}

/// Rates and bytes of a path in this minute.
#[derive(Debug, Clone, Default)]
struct Rates {
    gbps: Vec<f64>,
    bytes: u64,
    compared: u64,
    wrong: u64,
    slowed: Option<f64>,
}

impl Minutes {
    /// Begins with these rounds at this time of the driver's clock.
    pub fn new(rounds: &[Round], gpus: &[u32], now: Duration, counted: Counted) -> Self {
        let mut paths = Vec::new();
        let mut flows = HashMap::new();
        for round in rounds {
            let Action::Soak(Soak { pattern, .. }) = round.task.action else {
                continue;
            };
            let mut own = Vec::new();
            for flow in &round.flows {
                own.push((*flow, paths.len()));
                paths.push(SoakPath {
                    pattern,
                    of: round.name.clone(),
                    from: flow.from,
                    to: flow.to,
                });
            }
            flows.insert(round.id, own);
        }
        Self {
            flows: vec![Rates::default(); paths.len()],
            paths,
            rounds: flows,
            gpus: gpus.to_vec(),
            before: 0.0,
            now: now.as_secs_f64(),
            began: now.as_secs_f64(),
            closed: 0.0,
            readings: BTreeMap::new(),
            links: HashMap::new(),
            counted,
            programs: HashMap::new(),
            seen: HashSet::new(),
            seen_xids: HashSet::new(),
            deaf: HashSet::new(),
            events: Vec::new(),
            ran: 0,
            lost: 0,
            has_fault: false,
            held: HashSet::new(),
            crashed: HashSet::new(),
        }
    }

    /// Returns true once there was an event that is a fault.
    pub const fn has_fault(&self) -> bool {
        self.has_fault
    }

    /// Returns the flows of all rounds.
    pub fn paths(&self) -> &[SoakPath] {
        &self.paths
    }

    /// Takes the driver's clock, which starts anew with every worker.
    pub fn clock(&mut self, now: Duration) {
        let now = now.as_secs_f64();
        if now < self.now {
            self.before += self.now;
        }
        self.now = now;
    }

    /// Returns the seconds under load.
    pub fn seconds(&self) -> f64 {
        (self.before + self.now - self.began).max(0.0)
    }

    /// Returns true if a minute is over.
    pub fn is_over(&self) -> bool {
        self.seconds() >= ((self.closed / MINUTE).floor() + 1.0) * MINUTE
    }

    /// Takes the outcome of a round. Returns the bytes that each flow has copied.
    pub fn ended(&mut self, round: &Round, outcome: &Outcome) -> Vec<(Flow, u64)> {
        let Some(own) = self.rounds.get(&round.id).cloned() else {
            return Vec::new();
        };
        let first = own.first().and_then(|(_, path)| u32::try_from(*path).ok());
        self.crashed.remove(&round.id);
        match outcome {
            Outcome::Soak { soak } => {
                self.ran += 1;
                let mut copied = Vec::new();
                for ((flow, path), figures) in own.iter().zip(&soak.flows) {
                    let rates = &mut self.flows[*path];
                    rates.gbps.extend(&figures.gbps);
                    rates.bytes = rates.bytes.saturating_add(figures.copied);
                    rates.compared = rates.compared.saturating_add(figures.compared);
                    rates.wrong += figures.wrong;
                    rates.slowed = figures.slowed_percent.map(hundredths);
                    copied.push((*flow, figures.copied));
                    if let Some(why) = &figures.unsure {
                        let what = format!("{}: {why}", self.paths[*path].name());
                        let path = u32::try_from(*path).ok();
                        self.happened(EventKind::NotCompared, None, path, what);
                    }
                    if figures.wrong > 0 {
                        let detail = figures.detail.as_deref().unwrap_or("bytes are wrong");
                        let what = format!("{}: {detail}", self.paths[*path].name());
                        let path = u32::try_from(*path).ok();
                        self.happened(EventKind::WrongBytes, None, path, what);
                    }
                }
                copied
            }
            Outcome::Lost { status, reason } => {
                self.lost += 1;
                let kind = match status {
                    Status::Hung => EventKind::Hung,
                    Status::Failed => EventKind::Failed,
                    _ => EventKind::NotRun,
                };
                if kind == EventKind::Hung {
                    // No clock of the driver contains this time.
                    self.before += round.deadline.as_secs_f64();
                }
                self.happened(kind, None, first, format!("{}: {reason}", round.way()));
                Vec::new()
            }
            Outcome::Failed { error } => {
                self.lost += 1;
                let what = format!("{}: {error}", round.way());
                self.happened(EventKind::Failed, None, first, what);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Takes readings of the GPUs.
    pub fn read(&mut self, readings: &[(u32, LinkSample)]) {
        for (gpu, sample) in readings {
            let own = self.readings.entry(*gpu).or_default();
            own.temperature.add(sample.temperature_c);
            own.hottest = own.hottest.max(sample.temperature_c);
            own.sm_clock.add(sample.sm_clock_mhz);
            own.memory_clock.add(sample.memory_clock_mhz);
            sample.power.iter().for_each(|power| own.draws(power));
            count(&mut own.replays, sample.replays);
            count(&mut own.memory_errors, sample.ecc_uncorrected);
            let mut events = Vec::new();
            for reason in &sample.throttle_reasons {
                if !own.throttle_reasons.contains(reason) {
                    own.throttle_reasons.push(reason.clone());
                }
            }
            if let (Some(generation), Some(width)) = (sample.generation, sample.width) {
                let now = [generation.number(), width.number()];
                own.link = Some(own.link.map_or(now, |link| link.min(now)));
                let before = self.links.insert(*gpu, now);
                if let Some([generation, width]) = before.filter(|before| *before != now) {
                    let what = format!(
                        "PCIe link of GPU {gpu}: Gen{generation} x{width}, now Gen{} x{}",
                        now[0], now[1]
                    );
                    events.push((EventKind::LinkChanged, what));
                }
            }
            if let Some(xids) = &sample.xids {
                own.heard(xids);
            }
            for (kind, what) in events {
                self.happened(kind, Some(*gpu), None, what);
            }
            if let Some(programs) = &sample.programs {
                self.programs(*gpu, programs);
            }
            match &sample.xids {
                Some(Ok(xids)) => xids.iter().for_each(|xid| self.reported(*gpu, *xid)),
                Some(Err(why)) if *why != Unknown::Unsupported && self.deaf.insert(*gpu) => {
                    self.problem(&format!("Xid errors of GPU {gpu} are not known: {why}"));
                }
                _ => {}
            }
        }
    }

    /// Closes the minute, with the counters at its end.
    pub fn close(&mut self, counted: Counted) -> Minute {
        let gpus = self.gpus.clone();
        let gpus = gpus.into_iter().map(|gpu| self.close_gpu(gpu, &counted)).collect();
        let paths = self.flows.iter_mut().zip(0..).filter_map(|(rates, path)| {
            let rates = std::mem::take(rates);
            Some(MinuteOfPath {
                path,
                lowest_gbps: hundredths(rates.gbps.iter().copied().reduce(f64::min)?),
                gbps: hundredths(median(&rates.gbps)?),
                bytes: rates.bytes,
                verified_bytes: rates.compared,
                wrong: rates.wrong,
                slowed_percent: rates.slowed,
            })
        });
        let paths = paths.collect();
        for added in rises(&self.counted.functions, &counted.functions) {
            let what = format!(
                "{}: {} correctable, {} non-fatal and {} fatal PCIe errors",
                added.address, added.added.correctable, added.added.non_fatal, added.added.fatal
            );
            self.push(SoakEvent {
                at_s: tenths(self.seconds()),
                kind: EventKind::PcieErrors,
                gpu: None,
                path: None,
                function: Some(added.address),
                xid: None,
                what,
            });
        }
        self.closed = self.seconds();
        self.seen.clear();
        self.seen_xids.clear();
        // What could not be read keeps its last count.
        let before = std::mem::replace(&mut self.counted, counted);
        let Counted { links, functions } = before;
        for (gpu, links) in links {
            self.counted.links.entry(gpu).or_insert(links);
        }
        if self.counted.functions.is_empty() {
            self.counted.functions = functions;
        }
        Minute { until_s: tenths(self.closed), gpus, paths }
    }

    fn close_gpu(&mut self, gpu: u32, counted: &Counted) -> MinuteOfGpu {
        let own = self.readings.remove(&gpu).unwrap_or_default();
        let added =
            |counts: Option<[u64; 2]>| counts.map(|[first, last]| last.saturating_sub(first));
        let counted = self
            .counted
            .links
            .get(&gpu)
            .and_then(|before| nvlinks_counted(gpu, before, &counted.links));
        let (errors, mut corrected) = match counted {
            Some(counted) => (Some(counted.added), counted.corrected),
            None => (None, None),
        };
        // Sound links correct a symbol or two each minute: all of them would fill the journal of a day.
        if let Some(links) = &mut corrected {
            links.retain(|link| link.from(NvLinkCorrected::DEEP) > 0);
        }
        let (replays, memory) = (added(own.replays), added(own.memory_errors));
        if let Some(replays) = replays.filter(|added| *added > 0) {
            let what = format!("PCIe link of GPU {gpu}: {replays} replays");
            self.happened(EventKind::Replays, Some(gpu), None, what);
        }
        if let Some(errors) = memory.filter(|added| *added > 0) {
            let what = format!("GPU {gpu}: {errors} uncorrected memory errors");
            self.happened(EventKind::MemoryErrors, Some(gpu), None, what);
        }
        for link in errors.iter().flatten() {
            let what = format!("NVLink {} of GPU {gpu}: {}", link.link, errors_of(link));
            self.happened(EventKind::NvlinkErrors, Some(gpu), None, what);
        }
        let held: Vec<&String> = own
            .throttle_reasons
            .iter()
            .filter(|reason| !USUAL.contains(&reason.as_str()))
            .collect();
        let was_held = match held.is_empty() {
            true => self.held.remove(&gpu),
            false => !self.held.insert(gpu),
        };
        if let Some(reason) = held.first().filter(|_| !was_held) {
            let what = format!("GPU {gpu}: clocks held back ({reason})");
            self.happened(EventKind::Throttled, Some(gpu), None, what);
        }
        // The next minute counts from here.
        let last = |counts: Option<[u64; 2]>| counts.map(|[_, last]| [last, last]);
        self.readings.insert(
            gpu,
            Readings {
                replays: last(own.replays),
                memory_errors: last(own.memory_errors),
                energy: last(own.energy),
                held: own.held.map(last),
                ..Readings::default()
            },
        );
        MinuteOfGpu {
            gpu,
            temperature_c: own.temperature.mean(),
            temperature_max_c: own.hottest,
            memory_temperature_c: own.memory_temperature.mean(),
            power_w: own.power.mean().map(|milliwatts| tenths(milliwatts / 1e3)),
            power_limit_w: own.power_limit.map(|milliwatts| f64::from(milliwatts) / 1e3),
            energy_j: added(own.energy).map(|millijoules| millijoules / 1000),
            held_ns: own.held_ns(),
            sm_clock_mhz: own.sm_clock.mean(),
            memory_clock_mhz: own.memory_clock.mean(),
            throttle_reasons: own.throttle_reasons,
            link: own.link,
            replays_added: replays,
            ecc_uncorrected_added: memory,
            nvlink_errors: errors,
            nvlink_corrected: corrected,
            xids: own.xids.and_then(Result::ok),
        }
    }
}

/// Throttle reasons that every GPU has under load at times, by NVML's names.
const USUAL: [&str; 4] = ["sw-power-cap", "applications-clocks", "sync-boost", "display-clocks"];

/// Returns words such as `3 CRC errors, 1 recovery`.
fn errors_of(link: &NvLinkErrorsAdded) -> String {
    let counts = [
        (link.crc, "CRC error", "CRC errors"),
        (link.replay, "replay", "replays"),
        (link.recovery, "recovery", "recoveries"),
        (link.failed_recovery, "failed recovery", "failed recoveries"),
        (link.packet, "lost packet", "lost packets"),
        (link.effective, "uncorrected error", "uncorrected errors"),
    ];
    let some = counts.into_iter().filter(|(count, ..)| *count > 0);
    let words: Vec<String> = some
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    words.join(", ")
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
#[path = "minutes_tests.rs"]
mod tests;

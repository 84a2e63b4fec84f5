//! Hours under load: what each minute showed, and what happened when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::flow::{Endpoint, Flow};
use super::load::Pattern;
use super::snapshot::XidCause;
use super::under_load::{NvLinkCorrected, NvLinkErrorsAdded};
use super::units::PciAddress;

/// Warming that counts as none, degrees Celsius a minute: a GPU is then in thermal equilibrium. Chosen; NVML reports whole
/// degrees, so it takes [`STEADY_MINUTES`] to see it.
const STEADY_DEGREES_PER_MINUTE: f64 = 0.1;
/// Minutes over which the warming is taken.
pub const STEADY_MINUTES: usize = 10;
/// Most events that are kept. Those after it are counted.
pub const MOST_EVENTS: usize = 1000;

/// Load patterns, copies with the host and kernels, round and round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Soak {
    /// Time that was asked for, seconds.
    pub requested_seconds: f64,
    /// Time under load, seconds on the driver's clock.
    pub seconds: f64,
    /// Why it ended.
    pub ended: SoakEnd,
    /// Rounds that ran to their end, and those that hung, failed or were not run.
    pub rounds: u64,
    pub rounds_lost: u64,
    /// The flows of the rounds. Each minute has a row for those that ran in it.
    pub paths: Vec<SoakPath>,
    /// Whole minutes and the rest of the last one, in their order.
    pub minutes: Vec<Minute>,
    /// Events in their order.
    pub events: Vec<SoakEvent>,
    /// Events that were left out because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_left_out: u64,
    /// Thermal equilibrium of each GPU.
    #[serde(default)]
    pub thermal: Vec<Thermal>,
}

/// Why a soak ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SoakEnd {
    /// The time was over.
    #[default]
    TimeOver,
    /// The first fault ended it, as requested.
    FirstFault,
    /// A signal ended it.
    Interrupted,
    /// No round ran to its end any more.
    NothingRuns,
    /// The program was killed; this is what its journal has.
    CutOff,
}

/// A flow of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SoakPath {
    /// The arrangement of flows that it ran in; null for copies by kernels within a GPU, which heat it.
    pub pattern: Option<Pattern>,
    /// Name among several such patterns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// Source of its bytes.
    pub from: Endpoint,
    /// Destination of its bytes.
    pub to: Endpoint,
}

impl SoakPath {
    /// Returns its source and destination.
    pub const fn flow(&self) -> Flow {
        Flow { from: self.from, to: self.to }
    }

    /// Returns `GPU 0 → GPU 1 in ring`.
    pub fn name(&self) -> String {
        let flow = self.flow();
        match (self.pattern, self.of.as_str()) {
            (None, _) => format!("{flow} by kernel"),
            (Some(pattern), "") => format!("{flow} in {pattern}"),
            (Some(pattern), of) => format!("{flow} in {pattern} {of}"),
        }
    }
}

/// A minute, or the rest of the last one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Minute {
    /// Its end, seconds under load.
    pub until_s: f64,
    /// A row for each GPU.
    pub gpus: Vec<MinuteOfGpu>,
    /// A row for each path that ran.
    pub paths: Vec<MinuteOfPath>,
}

/// Readings of a GPU in a minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MinuteOfGpu {
    /// NVML's index.
    pub gpu: u32,
    /// Mean temperature of the chip, degrees Celsius. Null if no reading contains it.
    pub temperature_c: Option<f64>,
    /// Highest temperature, degrees Celsius.
    pub temperature_max_c: Option<u32>,
    /// Mean temperature of the memory, degrees Celsius. Left out if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_temperature_c: Option<f64>,
    /// Mean power, and its limit, watts. Left out if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Energy, joules. Left out if not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<u64>,
    /// Nanoseconds in which a reason held the clocks back, by NVML's names. Left out if none did, or the driver does not count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_ns: BTreeMap<String, u64>,
    /// Mean clock of the multiprocessors, MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Mean clock of the memory, MHz.
    pub memory_clock_mhz: Option<f64>,
    /// Throttle reasons, by NVML's names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
    /// Lowest PCIe generation and fewest lanes.
    #[serde(default)]
    pub link: Option<[u8; 2]>,
    /// PCIe replays that were added. Null if not counted.
    #[serde(default)]
    pub replays_added: Option<u64>,
    /// Uncorrected memory errors that ECC counted. Null if not counted.
    #[serde(default)]
    pub ecc_uncorrected_added: Option<u64>,
    /// Errors of its NVLinks, without links that counted nothing. Null if not counted.
    #[serde(default)]
    pub nvlink_errors: Option<Vec<NvLinkErrorsAdded>>,
    /// NVLinks whose forward error correction corrected 3 symbols of a codeword or more. Null if not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink_corrected: Option<Vec<NvLinkCorrected>>,
    /// Xid errors that the driver reported, each as often as it did. Null if it does not report them.
    #[serde(default)]
    pub xids: Option<Vec<u32>>,
}

/// Copies of a path in a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MinuteOfPath {
    /// Place of the path in `paths`.
    pub path: u32,
    /// Lowest rate of a burst of copies, GB/s.
    pub lowest_gbps: f64,
    /// Median rate of the bursts, GB/s.
    pub gbps: f64,
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes compared at the destination.
    pub verified_bytes: u64,
    /// Compared copies whose bytes were wrong.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wrong: u64,
    /// What comparing every copy costs its rate, per cent. Above 2, and without a value, only the last copy of each burst is
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed_percent: Option<f64>,
}

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SoakEvent {
    /// Seconds under load.
    pub at_s: f64,
    pub kind: EventKind,
    /// NVML's index of the GPU, if it is about one.
    #[serde(default)]
    pub gpu: Option<u32>,
    /// Place of the path in `paths`, if it is about one.
    #[serde(default)]
    pub path: Option<u32>,
    /// The PCI function, if it is about one.
    #[serde(default)]
    pub function: Option<PciAddress>,
    /// NVIDIA's number of the error, if it is an Xid error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// One sentence without a full stop.
    pub what: String,
}

impl SoakEvent {
    /// Returns true if it is a fault of the machine, which ends a soak that is to end at the first one.
    pub fn is_fault(&self) -> bool {
        let of_hardware = |xid| XidCause::of(xid) == XidCause::Reset;
        self.kind.is_fault() || self.xid.is_some_and(of_hardware)
    }
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// Bytes arrived wrong, or never.
    WrongBytes,
    /// A round did not end before its deadline.
    Hung,
    /// A round ended with an error.
    Failed,
    /// Copies crashed the process that ran them.
    Crashed,
    /// A round was not run, or something outside ended its worker.
    NotRun,
    /// Bytes could not be compared: the check did not see what it had written itself.
    NotCompared,
    /// The PCIe link of a GPU changed its state.
    LinkChanged,
    /// The PCIe link of a GPU sent packets again.
    Replays,
    /// A PCI function on the way to a GPU counted errors (AER).
    PcieErrors,
    /// NVLinks of a GPU counted errors.
    NvlinkErrors,
    /// ECC counted errors of a GPU's memory that it could not correct.
    MemoryErrors,
    /// The driver reported an Xid error of a GPU.
    Xid,
    /// A GPU's clocks began to be held back.
    Throttled,
    /// Another program began to use a GPU.
    ProgramBegan,
    /// Another program ended.
    ProgramEnded,
    /// Something went wrong outside single rounds, such as a worker that was replaced.
    Problem,
}

impl EventKind {
    /// Returns true if every such event is a fault of the machine.
    const fn is_fault(self) -> bool {
        match self {
            Self::WrongBytes
            | Self::Hung
            | Self::Failed
            | Self::LinkChanged
            | Self::PcieErrors
            | Self::NvlinkErrors
            | Self::MemoryErrors => true,
            Self::NotRun
            | Self::NotCompared
            | Self::Crashed
            | Self::Xid
            | Self::Replays
            | Self::Throttled
            | Self::ProgramBegan
            | Self::ProgramEnded
            | Self::Problem => false,
        }
    }
}

/// Thermal equilibrium of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Thermal {
    /// NVML's index.
    pub gpu: u32,
    /// Seconds under load from which on its temperature rose by less than 0.1 degrees a minute. Null if it never did, or
    /// if the soak was too short to see it.
    pub steady_from_s: Option<f64>,
    /// Mean temperature from then on, degrees Celsius.
    pub steady_c: Option<f64>,
}

impl Soak {
    /// Returns the readings of a GPU, minute by minute, with the end of each minute.
    pub fn of_gpu(&self, gpu: u32) -> impl Iterator<Item = (f64, &MinuteOfGpu)> {
        self.minutes.iter().filter_map(move |minute| {
            let own = minute.gpus.iter().find(|own| own.gpu == gpu)?;
            Some((minute.until_s, own))
        })
    }

    /// Returns the copies of a path, minute by minute, with the end of each minute.
    pub fn of_path(&self, path: u32) -> impl Iterator<Item = (f64, &MinuteOfPath)> {
        self.minutes.iter().filter_map(move |minute| {
            let own = minute.paths.iter().find(|own| own.path == path)?;
            Some((minute.until_s, own))
        })
    }

    /// Returns the paths with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &SoakPath)> {
        (0..).zip(&self.paths)
    }

    /// Returns the indices of the GPUs.
    pub fn gpus(&self) -> Vec<u32> {
        self.minutes
            .first()
            .map(|minute| minute.gpus.iter().map(|gpu| gpu.gpu).collect())
            .unwrap_or_default()
    }

    /// Returns the bytes that all paths copied.
    pub fn bytes(&self) -> u64 {
        self.sum(|path| path.bytes)
    }

    /// Returns the bytes that were compared.
    pub fn verified_bytes(&self) -> u64 {
        self.sum(|path| path.verified_bytes)
    }

    fn sum(&self, of: fn(&MinuteOfPath) -> u64) -> u64 {
        let paths = self.minutes.iter().flat_map(|minute| &minute.paths);
        paths.map(of).fold(0, u64::saturating_add)
    }

    /// Takes an event, unless there are too many.
    pub fn happened(&mut self, event: SoakEvent) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(event);
        } else {
            self.events_left_out += 1;
        }
    }

    /// Finds the thermal equilibrium of each GPU.
    pub fn find_equilibrium(&mut self) {
        let of = |gpu: &u32| {
            let seen: Vec<(f64, f64)> = self
                .of_gpu(*gpu)
                .filter_map(|(until, own)| Some((until, own.temperature_c?)))
                .collect();
            let from = steady_from(&seen);
            let steady = from.map(|from| &seen[from..]);
            Thermal {
                gpu: *gpu,
                steady_from_s: steady.and_then(|steady| Some(steady.first()?.0)),
                steady_c: steady.and_then(|steady| mean(steady.iter().map(|(_, c)| *c))),
            }
        };
        self.thermal = self.gpus().iter().map(of).collect();
    }

    /// Returns the equilibrium of a GPU.
    pub fn thermal_of(&self, gpu: u32) -> Option<&Thermal> {
        self.thermal.iter().find(|thermal| thermal.gpu == gpu)
    }
}

/// Returns the place of the first minute from which on a temperature changes by less than [`STEADY_DEGREES_PER_MINUTE`], in
/// this minute and in all later ones, each taken over [`STEADY_MINUTES`].
fn steady_from(seen: &[(f64, f64)]) -> Option<usize> {
    let windows = seen.windows(STEADY_MINUTES);
    let is_steady: Vec<bool> = windows
        .map(|window| {
            let minutes: Vec<(f64, f64)> = window.iter().map(|(s, c)| (s / 60.0, *c)).collect();
            slope(&minutes).is_some_and(|slope| slope.abs() < STEADY_DEGREES_PER_MINUTE)
        })
        .collect();
    let last_not = is_steady.iter().rposition(|steady| !steady);
    let from = last_not.map_or(0, |last| last + 1);
    (from < is_steady.len()).then_some(from)
}

/// Returns the slope of a line through these points, by least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let (x, y) = (mean(points.iter().map(|(x, _)| *x))?, mean(points.iter().map(|(_, y)| *y))?);
    let square: f64 = points.iter().map(|(own, _)| (own - x) * (own - x)).sum();
    let product: f64 = points.iter().map(|(a, b)| (a - x) * (b - y)).sum();
    (square > 0.0).then(|| product / square)
}

/// Returns the mean of some values; none if there is none.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
    }
    (count > 0.0).then(|| sum / count)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soak(temperature: impl Fn(f64) -> f64, minutes: u32) -> Soak {
        let minute = |number: u32| {
            let until_s = 60.0 * f64::from(number);
            let own = MinuteOfGpu {
                gpu: 3,
                temperature_c: Some(temperature(f64::from(number))),
                ..MinuteOfGpu::default()
            };
            Minute { until_s, gpus: vec![own], paths: Vec::new() }
        };
        let mut soak = Soak { minutes: (1..=minutes).map(minute).collect(), ..Soak::default() };
        soak.find_equilibrium();
        soak
    }

    #[test]
    fn equilibrium_begins_where_the_temperature_no_longer_rises() {
        // 40 degrees above rest with a time constant of 5 minutes: 0.1 K/min are reached after 5 ln(80) = 22 minutes.
        let soak = soak(|minute| 70.0 - 40.0 * (-minute / 5.0).exp(), 60);
        let thermal = soak.thermal_of(3).unwrap();
        let from = thermal.steady_from_s.unwrap() / 60.0;
        assert!((15.0..22.0).contains(&from), "{from}");
        assert!((thermal.steady_c.unwrap() - 70.0).abs() < 0.5);
    }

    #[test]
    fn a_temperature_that_keeps_rising_has_no_equilibrium() {
        let rising = soak(|minute| 50.0 + 0.2 * minute, 60);
        assert_eq!(rising.thermal_of(3).unwrap().steady_from_s, None);
        let short = soak(|_| 60.0, 5);
        assert_eq!(short.thermal_of(3).unwrap().steady_from_s, None);
        let late = soak(|minute| if minute < 50.0 { 60.0 } else { minute + 10.0 }, 60);
        assert_eq!(late.thermal_of(3).unwrap().steady_from_s, None);
    }

    #[test]
    fn too_many_events_are_counted() {
        let mut soak = Soak::default();
        for _ in 0..MOST_EVENTS + 7 {
            soak.happened(SoakEvent {
                at_s: 1.0,
                kind: EventKind::Replays,
                gpu: Some(0),
                path: None,
                function: None,
                xid: None,
                what: "counted".into(),
            });
        }
        assert_eq!((soak.events.len(), soak.events_left_out), (MOST_EVENTS, 7));
    }
}

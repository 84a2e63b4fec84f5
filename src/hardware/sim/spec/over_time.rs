//! Machines that change while they work: heat, links that flap, counters that rise, bytes that arrive wrong after hours.
//! Times count from the start of the driver on, on its clock, which passes only while it works.

use serde::{Deserialize, Serialize};

use super::problem::{Checked, ensure};
use super::{
    Bits, Celsius, Codewords, CopyFault, LossPerDegree, MachineSpec, Minute, Minutes, NvLinkErrors,
    Pairs, text,
};
use model::snapshot::GpuProcess;
use model::units::{PciAddress, PcieLink};

/// Least share of its clock that a hot GPU keeps: chosen.
const LEAST_CLOCK: f64 = 0.1;

/// Everything that changes with time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverTime {
    /// GPUs that become warmer.
    pub heat: Vec<Heat>,
    /// PCIe links that retrain now and then.
    pub flaps: Vec<Flap>,
    /// NVLinks that count errors.
    pub nvlinks: Vec<NvLinkOverTime>,
    /// Copies that go wrong after some time.
    pub copies: Vec<LateCopyFault>,
    /// Other programs that begin and end.
    pub programs: Vec<Program>,
    /// Xid errors that the driver reports.
    pub xids: Vec<XidOverTime>,
}

/// A GPU that becomes warmer, evenly slower, until it is in equilibrium.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heat {
    /// NVML's index; every GPU if omitted. The last entry that fits applies.
    pub gpu: Option<u32>,
    /// Temperature in equilibrium, degrees Celsius. It begins at that of the GPU at rest.
    pub to_c: Celsius,
    /// Time constant, minutes: after it, 63% of the way are done.
    pub minutes: Minutes,
    /// Temperature above which its clock falls. It never does if omitted.
    pub slows_above_c: Option<Celsius>,
    /// Loss of its clock, and of the rate of its direct copies, for each degree above that, per cent.
    #[serde(default)]
    pub percent_per_c: LossPerDegree,
}

/// A PCIe link that retrains now and then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flap {
    /// The function at its lower end.
    pub function: PciAddress,
    /// Time of the first time.
    pub after_minutes: Minute,
    /// Time from one to the next.
    pub every_minutes: Minutes,
    /// Time that it stays down each time, seconds.
    pub for_seconds: f64,
    /// State of the link then.
    #[serde(with = "text")]
    pub down_to: Option<PcieLink>,
    /// Replays that it counts each time.
    #[serde(default)]
    pub replays: u64,
}

/// An NVLink that counts errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkOverTime {
    pub gpu: u32,
    pub link: u32,
    /// Bits over the link, in both directions, for each CRC error; none if omitted.
    pub bits_per_error: Option<Bits>,
    /// Time of its first recovery, and from one to the next; it never recovers if omitted.
    pub recovers_every_minutes: Option<Minutes>,
    /// Codewords a minute in which forward error correction corrects 1, 2, ... symbols, of NVLink 5 and later.
    #[serde(default, deserialize_with = "text::symbols")]
    pub corrected_a_minute: Vec<Codewords>,
    /// Time after which it corrects these.
    #[serde(default)]
    pub corrects_after_minutes: Minute,
}

/// Copies that go wrong after some time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateCopyFault {
    pub pairs: Pairs,
    pub fault: CopyFault,
    pub after_minutes: Minute,
}

/// Another program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub gpu: u32,
    pub pid: u32,
    pub name: String,
    pub from_minutes: Minute,
    pub to_minutes: Minute,
}

/// An Xid error that the driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XidOverTime {
    pub gpu: u32,
    /// NVIDIA's number of the error.
    pub code: u32,
    pub after_minutes: Minute,
    /// Time from one to the next; it comes once if omitted.
    pub every_minutes: Option<Minutes>,
}

impl OverTime {
    fn heat(&self, gpu: u32) -> Option<&Heat> {
        let fits = |heat: &&Heat| heat.gpu.is_none_or(|only| only == gpu);
        self.heat.iter().rev().find(fits)
    }
}

impl MachineSpec {
    /// Returns the temperature of a GPU after this time under load, if it becomes warmer.
    pub(crate) fn temperature_at(&self, gpu: u32, seconds: f64) -> Option<f64> {
        let heat = self.over_time.heat(gpu)?;
        let from = f64::from(self.gpus.get(gpu as usize)?.state.temperature_c);
        let passed = 1.0 - (-seconds / 60.0 / *heat.minutes).exp();
        Some(from + (*heat.to_c - from) * passed)
    }

    /// Returns the share of its clock that a GPU has after this time.
    pub(crate) fn clock_at(&self, gpu: u32, seconds: f64) -> f64 {
        let lost = || {
            let heat = self.over_time.heat(gpu)?;
            let above = self.temperature_at(gpu, seconds)? - *heat.slows_above_c?;
            Some(above.max(0.0) * *heat.percent_per_c / 100.0)
        };
        (1.0 - lost().unwrap_or(0.0)).max(LEAST_CLOCK)
    }

    /// Returns the state of the link above this function while it is down, and the replays that it has counted.
    pub(crate) fn flaps_at(&self, function: PciAddress, seconds: f64) -> (Option<PcieLink>, u64) {
        let (mut down, mut replays) = (None, 0_u64);
        let flaps = self.over_time.flaps.iter();
        for flap in flaps.filter(|flap| flap.function == function) {
            let since = seconds - *flap.after_minutes * 60.0;
            if since < 0.0 {
                continue;
            }
            let every = *flap.every_minutes * 60.0;
            let seen = whole(since / every).saturating_add(1);
            replays = replays.saturating_add(seen.saturating_mul(flap.replays));
            if since % every < flap.for_seconds {
                down = flap.down_to.or(down);
            }
        }
        (down, replays)
    }

    /// Returns the errors that an NVLink has counted after this time, over which so many bits have passed.
    pub(crate) fn nvlink_errors_at(
        &self,
        gpu: u32,
        link: u32,
        seconds: f64,
        bits: f64,
    ) -> NvLinkErrors {
        let faults = self.over_time.nvlinks.iter();
        let own = faults.filter(|fault| fault.gpu == gpu && fault.link == link);
        let mut errors = NvLinkErrors::default();
        for fault in own {
            let each = |of: Option<&f64>, all: f64| of.map_or(0, |each| whole(all / each));
            errors.crc += each(fault.bits_per_error.as_deref(), bits);
            errors.recovery += each(fault.recovers_every_minutes.as_deref(), seconds / 60.0);
            let minutes = (seconds / 60.0 - *fault.corrects_after_minutes).max(0.0);
            let most = errors.corrected.len().max(fault.corrected_a_minute.len());
            errors.corrected.resize(most, 0);
            for (count, each) in errors.corrected.iter_mut().zip(&fault.corrected_a_minute) {
                *count += whole(minutes * **each);
            }
        }
        errors
    }

    /// Returns the fault that copies of a pair have after this time.
    pub(crate) fn late_copy_fault(&self, pair: (u32, u32), seconds: f64) -> Option<CopyFault> {
        let faults = self.over_time.copies.iter();
        let mut shown = faults.filter(|fault| {
            fault.pairs.contains(pair.0, pair.1) && seconds >= *fault.after_minutes * 60.0
        });
        shown.next().map(|fault| fault.fault)
    }

    /// Returns how busy other programs keep a GPU, per cent.
    pub(crate) fn busy_percent(&self, gpu: u32) -> u8 {
        let own = self.faults.others.iter().filter(|others| others.gpu == gpu);
        own.map(|others| *others.utilization).max().unwrap_or(0)
    }

    /// Returns the programs that use a GPU at this time, beside those of its description.
    pub(crate) fn programs_at(
        &self,
        gpu: u32,
        seconds: f64,
    ) -> impl Iterator<Item = GpuProcess> + '_ {
        let minutes = seconds / 60.0;
        let programs = self.over_time.programs.iter();
        programs
            .filter(move |program| {
                program.gpu == gpu
                    && (*program.from_minutes..*program.to_minutes).contains(&minutes)
            })
            .map(|program| GpuProcess {
                pid: program.pid,
                name: Some(program.name.clone()),
                memory_bytes: None,
            })
    }

    /// Returns the Xid errors of a GPU after the first of these times, seconds, and up to the second.
    pub(crate) fn xids_between(&self, gpu: u32, from: f64, to: f64) -> Vec<u32> {
        let count = |xid: &XidOverTime, until: f64| {
            let since = until - *xid.after_minutes * 60.0;
            match xid.every_minutes {
                _ if since < 0.0 => 0,
                None => 1,
                Some(every) => whole(since / (*every * 60.0)).saturating_add(1),
            }
        };
        let own = self.over_time.xids.iter().filter(|xid| xid.gpu == gpu);
        own.flat_map(|xid| (count(xid, from)..count(xid, to)).map(|_| xid.code)).collect()
    }

    pub(super) fn changes(&self) -> Checked {
        let over_time = &self.over_time;
        for (place, heat) in over_time.heat.iter().enumerate() {
            let key = || format!("over_time.heat[{place}].gpu");
            heat.gpu.map_or(Ok(()), |gpu| self.gpu_index(gpu, key))?;
        }
        for (place, flap) in over_time.flaps.iter().enumerate() {
            let key = |name: &str| format!("over_time.flaps[{place}].{name}");
            ensure!(
                self.function(flap.function).is_some(),
                key("function"),
                "no [[pci]] has the address {}",
                flap.function
            );
            let most = *flap.every_minutes * 60.0;
            ensure!(
                (0.0..=most).contains(&flap.for_seconds),
                key("for_seconds"),
                "{:?} is not between 0 and {most} s",
                flap.for_seconds
            );
        }
        Ok(())
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, far below 2^63; the conversion saturates"
)]
fn whole(count: f64) -> u64 {
    count.floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;

    fn machine(over_time: &str) -> MachineSpec {
        parse(&format!("base = \"h200x2\"\nsummary = \"x\"\n[over_time]\n{over_time}\n")).unwrap()
    }

    #[test]
    fn heat_rises_to_its_equilibrium_and_clocks_fall_above_the_limit() {
        let heat =
            "heat = [{ to_c = 84.0, minutes = 5.0, slows_above_c = 80.0, percent_per_c = 2.0 }]";
        let spec = machine(heat);
        let at = |minutes: f64| spec.temperature_at(1, 60.0 * minutes).unwrap();
        assert_eq!(at(0.0), 34.0, "that of the GPU at rest");
        assert!((at(5.0) - (34.0 + 50.0 * 0.632)).abs() < 0.1, "{}", at(5.0));
        assert!((at(60.0) - 84.0).abs() < 0.1);
        assert_eq!(spec.clock_at(1, 60.0), 1.0);
        assert!((spec.clock_at(1, 3600.0) - 0.92).abs() < 0.001);
        assert_eq!(machine("").temperature_at(1, 60.0), None);
    }

    #[test]
    fn each_xid_is_reported_once() {
        let spec = machine(
            "xids = [{ gpu = 1, code = 79, after_minutes = 2.0 }, { gpu = 1, code = 13, after_minutes = 1.0, every_minutes = 1.0 }]",
        );
        let between = |from, to| spec.xids_between(1, from, to);
        assert_eq!(between(-1.0, 59.0), [0_u32; 0]);
        assert_eq!(between(59.0, 60.0), [13]);
        assert_eq!(between(60.0, 121.0), [79, 13]);
        assert_eq!(between(121.0, 179.0), [0_u32; 0]);
        assert_eq!(spec.xids_between(0, -1.0, 1e4), [0_u32; 0]);
    }

    #[test]
    fn a_link_is_down_for_its_seconds_each_time() {
        let spec = machine(
            "flaps = [{ function = \"0000:00:06.0\", after_minutes = 40.0, every_minutes = 10.0, for_seconds = 5.0, down_to = \"Gen5 x8\", replays = 3 }]",
        );
        let function: PciAddress = "0000:00:06.0".parse().unwrap();
        let at = |seconds: f64| {
            let (down, replays) = spec.flaps_at(function, seconds);
            (down.is_some(), replays)
        };
        assert_eq!(at(2399.0), (false, 0));
        assert_eq!(at(2401.0), (true, 3));
        assert_eq!(at(2406.0), (false, 3));
        assert_eq!(at(3003.0), (true, 6));
    }

    #[test]
    fn errors_follow_bits_and_time() {
        let spec = machine(
            "nvlinks = [{ gpu = 0, link = 3, bits_per_error = 1e13, recovers_every_minutes = 15.0 }]",
        );
        let at = |link| spec.nvlink_errors_at(0, link, 1799.0, 9.9e13);
        assert_eq!((at(3).crc, at(3).recovery), (9, 1));
        assert_eq!(at(2), NvLinkErrors::default());
    }

    #[test]
    fn corrected_symbols_follow_time_from_their_start_on() {
        let spec = machine(
            "nvlinks = [{ gpu = 0, link = 3, corrected_a_minute = [600.0, 0.0, 1.5], corrects_after_minutes = 10.0 }]",
        );
        let at = |minutes: f64| spec.nvlink_errors_at(0, 3, 60.0 * minutes, 0.0).corrected;
        assert_eq!(at(9.0), [0, 0, 0]);
        assert_eq!(at(14.0), [2400, 0, 6]);
    }

    #[test]
    fn impossible_changes_are_refused_with_their_key() {
        for (over_time, key) in [
            ("heat = [{ to_c = 84.0, minutes = 0.0 }]", "over_time.heat[0].minutes"),
            ("heat = [{ gpu = 9, to_c = 84.0, minutes = 1.0 }]", "over_time.heat[0].gpu"),
            (
                "nvlinks = [{ gpu = 0, link = 0, bits_per_error = 0.0 }]",
                "over_time.nvlinks[0].bits_per_error",
            ),
            (
                "nvlinks = [{ gpu = 0, link = 0, corrected_a_minute = [1.0, -1.0] }]",
                "over_time.nvlinks[0].corrected_a_minute",
            ),
            (
                "nvlinks = [{ gpu = 0, link = 0, corrected_a_minute = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0] }]",
                "over_time.nvlinks[0].corrected_a_minute",
            ),
            (
                "programs = [{ gpu = 7, pid = 1, name = \"x\", from_minutes = 0.0, to_minutes = 1.0 }]",
                "over_time.programs[0].gpu",
            ),
        ] {
            let text = format!("base = \"h200x2\"\nsummary = \"x\"\n[over_time]\n{over_time}\n");
            let refused = parse(&text).unwrap_err().to_string();
            assert!(refused.contains(key), "{refused}");
        }
    }
}

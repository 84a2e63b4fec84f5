//! # What it means
//!
//! A busy GPU runs at a clearly lower clock than its busy siblings. A job that waits for all of them is as slow as this
//! one.
//!
//! # What to do
//!
//! Look at what holds its clock back: `nvidia-smi -q -i N -d PERFORMANCE,CLOCK,POWER`. A power cap or set clocks: compare
//! with the other GPUs (`nvidia-smi -q -d POWER,CLOCK`) and set them alike. Heat: fans, filters, the room.
//!
//! # How it is detected
//!
//! `watch` reads the clock of each GPU once a second. Of the GPUs of one model that were busy, the median clock of one is
//! below `least_of_siblings_percent` of the median of the others.
//!
//! # Sources
//!
//! NVML, `nvmlDeviceGetClockInfo`, `nvmlDeviceGetUtilizationRates`.

use super::prelude::*;
use model::watched::WatchedGpu;

rule! {
    "gpu-clock-behind", Warning, All(judge);
    /// share of its siblings' clock that a busy GPU must have; chosen: GPUs at their power limit differ by a few per cent
    LEAST: least_of_siblings_percent = 90.0;
}

/// Fewest readings of a GPU that is judged. Chosen: a kernel that starts raises the clock within a second.
const FEWEST: u32 = 3;

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let watched = evidence.watched.map_or(&[][..], |watched| &watched.gpus);
    let busy = |gpu: &&WatchedGpu| {
        gpu.readings >= FEWEST
            && gpu.busy_percent.is_some_and(|percent| percent >= WatchedGpu::BUSY_PERCENT)
    };
    let busy: Vec<&WatchedGpu> = watched.iter().filter(busy).collect();
    busy.iter().filter_map(|gpu| behind(evidence, gpu, &busy)).collect()
}

fn behind(evidence: &Evidence<'_>, own: &WatchedGpu, busy: &[&WatchedGpu]) -> Option<Finding> {
    let model = |gpu: u32| evidence.snapshot.model_of(gpu);
    let siblings =
        busy.iter().filter(|other| other.gpu != own.gpu && model(other.gpu) == model(own.gpu));
    let mut clocks: Vec<u32> = siblings.filter_map(|other| other.sm_clock_mhz).collect();
    clocks.sort_unstable();
    let (clock, others) = (own.sm_clock_mhz?, *clocks.get(clocks.len() / 2)?);
    let percent = 100.0 * f64::from(clock) / f64::from(others);
    if percent >= LEAST.of(evidence) {
        return None;
    }
    let held = own.held.iter().filter(|held| held.percent >= WatchedGpu::BUSY_PERCENT);
    let reasons: Vec<String> = held.map(|held| held.reason.clone()).collect();
    let by = match reasons.is_empty() {
        true => String::new(),
        false => format!(", held back by {}", reasons.join(", ")),
    };
    let name = evidence.name(own.gpu);
    let message = format!(
        "{name} runs at {clock} MHz, {percent:.0}% of the {others} MHz of its siblings{by}"
    );
    let plan = Plan::now([Step::Clocks, Step::CheckAfterJob]);
    let about = Subject::Gpu { index: own.gpu };
    Some(RULE.finding(about, message, plan).gpus(&[own.gpu]).fact("held_by", reasons))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::without_request;
    use model::watched::Watched;

    fn at(clocks: &[(u32, f64)]) -> Vec<Finding> {
        let gpu = |(gpu, (clock, busy)): (u32, &(u32, f64))| WatchedGpu {
            gpu,
            readings: 10,
            busy_percent: Some(*busy),
            sm_clock_mhz: Some(*clock),
            ..WatchedGpu::default()
        };
        let gpus = (0..).zip(clocks).map(gpu).collect();
        let watched = Watched { seconds: 10.0, gpus, ..Watched::default() };
        let machine = h200_vm(u32::try_from(clocks.len()).unwrap());
        let (topology, settings) = (topology::build(&machine), crate::Settings::default());
        let evidence = without_request(&machine, &topology, None, &settings);
        judge(&Evidence { watched: Some(&watched), ..evidence })
    }

    #[test]
    fn a_busy_gpu_is_compared_with_busy_siblings() {
        let found = at(&[(1980, 100.0), (1950, 95.0), (1410, 100.0)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].subject, Subject::Gpu { index: 2 });
        assert_advice(&RULE, &found, &["clocks"], &["check-after-job"]);
        assert!(found[0].message.contains("1410 MHz, 71% of the 1980 MHz"), "{}", found[0].message);
        assert_eq!(at(&[(1980, 100.0), (1800, 95.0)]), []);
        // One that rests has a low clock by right, and no clock is compared with it.
        assert_eq!(at(&[(1980, 100.0), (345, 0.0)]), []);
        assert_eq!(at(&[(1410, 100.0), (1980, 20.0)]), []);
    }
}

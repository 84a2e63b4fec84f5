//! Samples of a simulated GPU and its links while copies run.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::SimTelemetry;
use crate::spec::{FunctionSpec, GpuSpec};
use hardware::{LinkSample, Power};
use model::reading::Unknown;
use model::snapshot::PcieErrors;

impl SimTelemetry {
    /// Returns true if an error counts by now. Errors with `only_under_load` count once several flows have run at the
    /// same time.
    pub(super) fn is_counted(&self, only_under_load: bool) -> bool {
        !only_under_load || self.loaded.load(Ordering::Relaxed)
    }

    /// Returns the errors of a function, including those that it counts once copies run.
    pub(crate) fn errors_now(&self, function: &FunctionSpec) -> PcieErrors {
        // The second sample of a GPU is the first under load.
        let loaded = self.samples.iter().any(|samples| samples.load(Ordering::Relaxed) > 1);
        self.errors(function, loaded, self.is_counted(true))
    }

    /// Returns the errors of a function, including those counted under load if there was any.
    fn errors(&self, function: &FunctionSpec, loaded: bool, several: bool) -> PcieErrors {
        let added = self
            .spec
            .faults
            .links
            .iter()
            .filter(|fault| loaded && fault.function == function.address);
        added.filter(|fault| several || !fault.only_under_load).fold(
            function.errors,
            |sum, fault| PcieErrors {
                correctable: sum.correctable.saturating_add(fault.errors.correctable),
                non_fatal: sum.non_fatal.saturating_add(fault.errors.non_fatal),
                fatal: sum.fatal.saturating_add(fault.errors.fatal),
            },
        )
    }

    /// Takes a reading of a GPU.
    pub(super) fn take_sample(&self, index: u32) -> LinkSample {
        let Ok(gpu) = self.answering(index) else {
            return LinkSample::default();
        };
        let before = self
            .samples
            .get(index as usize)
            .map_or(0, |samples| samples.fetch_add(1, Ordering::Relaxed));
        let (loaded, several) = (before > 0, self.is_counted(true));
        self.show(index, gpu, loaded, several)
    }

    fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Returns the Xid errors of a GPU since the last call, if somebody listens.
    fn xids(&self, index: u32) -> Option<Result<Vec<u32>, Unknown>> {
        if !self.is_listening() {
            return None;
        }
        let now = self.seconds();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the first call nobody listened; an error at the start is reported nevertheless. The clock starts again with
        // another worker.
        let from = heard.insert(index, now).filter(|from| *from <= now);
        let xids = self.spec.xids_between(index, from.unwrap_or(-1.0), now);
        Some(Ok(xids))
    }

    /// Returns the values of a GPU's sample.
    fn show(&self, index: u32, gpu: &GpuSpec, loaded: bool, several: bool) -> LinkSample {
        let seconds = self.seconds();
        let clock = self.spec.clock_at(index, seconds);
        let mut throttle_reasons = gpu.state.throttle_under_load.clone();
        if clock < 1.0 {
            throttle_reasons.push("sw-thermal".to_owned());
        }
        let under_load = if loaded { gpu.state.ecc_uncorrected_under_load } else { 0 };
        let ecc_uncorrected =
            gpu.state.ecc.map(|_| gpu.state.ecc_uncorrected.saturating_add(under_load));
        let temperature =
            if loaded { gpu.state.temperature_under_load_c } else { gpu.state.temperature_c };
        let state = LinkSample {
            ecc_uncorrected,
            throttle_reasons,
            sm_clock_mhz: Some(rounded(f64::from(gpu.clocks_mhz.0) * clock)),
            memory_clock_mhz: Some(gpu.clocks_mhz.1),
            temperature_c: Some(
                self.spec.temperature_at(index, seconds).map_or(temperature, rounded),
            ),
            power: self.is_listening().then(|| Power {
                milliwatts: gpu.state.power_under_load_w.map(|watts| watts * 1000),
                limit_milliwatts: gpu.state.power_limit_w.map(|watts| watts * 1000),
                ..Power::default()
            }),
            busy_percent: self.is_listening().then(|| self.spec.busy_percent(index)),
            xids: self.xids(index),
            programs: self.is_listening().then(|| self.programs(index, gpu)),
            ..LinkSample::default()
        };
        let Some(function) = self.spec.function(gpu.pci) else {
            return state;
        };
        let link = match (function.stale, loaded) {
            (true, _) => self.spec.idle(function),
            (false, true) => self.spec.loaded(function),
            (false, false) => self.spec.trained(function),
        };
        let added = self
            .spec
            .faults
            .links
            .iter()
            .filter(|fault| loaded && fault.function == function.address);
        let added = added.filter(|fault| several || !fault.only_under_load);
        let (down, flapped) = self.spec.flaps_at(function.address, seconds);
        let link = down.or(link);
        LinkSample {
            generation: link.map(|link| link.generation),
            width: link.map(|link| link.width),
            replays: Some(added.map(|fault| fault.replays).fold(flapped, u64::saturating_add)),
            pcie_errors: Some(self.errors(function, loaded, several)),
            ..state
        }
    }
}

/// Returns a reading as NVML reports it, in whole numbers.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "degrees and megahertz, which a description bounds"
)]
fn rounded(value: f64) -> u32 {
    value.round().max(0.0) as u32
}

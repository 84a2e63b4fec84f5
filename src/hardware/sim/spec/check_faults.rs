//! Consistency checks of a machine's faults.

use std::collections::HashMap;

use super::numbers::{
    HIGHEST_RATE, copy_fault, corrected, error_code, microseconds, milliseconds, number, rate,
};
use super::problem::{Checked, Problem, ensure, problem};
use super::{
    Collapse, CopyFault, Faults, LinkPart, MachineSpec, NvLinkTarget, PairFault, Shared, TalkFault,
};
use crate::routes::Hop;
use model::placement::{Engine, Path};
use model::snapshot::PciKind;
use model::units::PciAddress;

/// Upper bound of the counted share of traffic, and of a link's traffic relative to other links: chosen.
const MOST_COUNTED: f64 = 1000.0;

impl MachineSpec {
    pub(super) fn faults(&self, faults: &Faults, places: &HashMap<PciAddress, usize>) -> Checked {
        for (place, fault) in faults.pairs.iter().enumerate() {
            self.pairs(fault.pairs, &format!("faults.pairs[{place}].pairs"))?;
            copy_fault(&format!("faults.pairs[{place}].fault"), fault.fault)?;
            pair_fault(|name| format!("faults.pairs[{place}].{name}"), fault)?;
        }
        for (place, fault) in faults.links.iter().enumerate() {
            let (known, key) =
                (places.contains_key(&fault.function), format!("faults.links[{place}].function"));
            ensure!(known, key, "no [[pci]] has the address {}", fault.function);
        }
        for (place, fault) in faults.nvlinks.iter().enumerate() {
            self.gpu_index(fault.gpu, || format!("faults.nvlinks[{place}].gpu"))?;
            let links =
                self.gpus.get(fault.gpu as usize).map_or(&[][..], |gpu| gpu.nvlinks.as_slice());
            let links: u32 = links.iter().map(|links| u32::from(links.count)).sum();
            let (gpu, link, key) = (fault.gpu, fault.link, format!("faults.nvlinks[{place}].link"));
            ensure!(
                link < links,
                key,
                "GPU {gpu} has no link {link}: it has {links}, counted from 0"
            );
            let key = format!("faults.nvlinks[{place}].errors.corrected");
            corrected(&key, fault.errors.corrected.len())?;
        }
        for (place, index) in faults.lost_gpus.iter().enumerate() {
            self.gpu_index(*index, || format!("faults.lost_gpus[{place}]"))?;
        }
        for (place, fault) in faults.contexts.iter().enumerate() {
            self.gpu_index(fault.gpu, || format!("faults.contexts[{place}].gpu"))?;
            error_code(&format!("faults.contexts[{place}].code"), fault.code)?;
        }
        for (place, others) in faults.others.iter().enumerate() {
            let key = |name: &str| format!("faults.others[{place}].{name}");
            self.gpu_index(others.gpu, || key("gpu"))?;
            for (name, rates) in [("nvlink", others.nvlink), ("pcie", others.pcie)] {
                rates
                    .into_iter()
                    .try_for_each(|rate| number(&key(name), rate, 0.0, HIGHEST_RATE, "GB/s"))?;
            }
            number(&key("utilization"), others.utilization.into(), 0.0, 100.0, "per cent")?;
        }
        self.counters(faults)?;
        for (place, fault) in faults.late_gates.iter().enumerate() {
            let key = |name: &str| format!("faults.late_gates[{place}].{name}");
            self.gpu_index(fault.gpu, || key("gpu"))?;
            microseconds(&key("us"), fault.us)?;
        }
        for (place, drift) in faults.drifts.iter().enumerate() {
            let key = |name: &str| format!("faults.drifts[{place}].{name}");
            self.gpu_index(drift.gpu, || key("gpu"))?;
            let possible = drift.percent > 0.0 && drift.percent < 100.0;
            ensure!(
                possible,
                key("percent"),
                "{:?} is not above 0 and below 100 per cent",
                drift.percent
            );
            milliseconds(&key("over_ms"), drift.over_ms)?;
        }
        for (place, collapse) in faults.collapses.iter().enumerate() {
            self.collapse(|name| format!("faults.collapses[{place}].{name}"), collapse, places)?;
        }
        for (place, fault) in faults.host.iter().enumerate() {
            let key = |name: &str| format!("faults.host[{place}].{name}");
            fault.gpu.map_or(Ok(()), |gpu| self.gpu_index(gpu, || key("gpu")))?;
            copy_fault(&key("fault"), fault.fault)?;
        }
        for (place, fault) in faults.talk.iter().enumerate() {
            self.pairs(fault.pairs, &format!("faults.talk[{place}].pairs"))?;
            if let TalkFault::Slow { times } = fault.fault {
                let key = format!("faults.talk[{place}].fault.slow.times");
                number(&key, times, 1.0, MOST_COUNTED, "")?;
            }
        }
        let refused = faults.pinning.as_ref();
        refused.map_or(Ok(()), |fault| error_code("faults.pinning.code", fault.code))?;
        faults
            .cuda_init
            .as_ref()
            .map_or(Ok(()), |fault| error_code("faults.cuda_init.code", fault.code))
    }

    /// Checks the faults of counters.
    fn counters(&self, faults: &Faults) -> Checked {
        for (place, fault) in faults.counters.iter().enumerate() {
            let key = |name: &str| format!("faults.counters[{place}].{name}");
            self.gpu_index(fault.gpu, || key("gpu"))?;
            number(&key("counted"), fault.counted, 0.0, MOST_COUNTED, "")?;
            let links =
                self.gpus.get(fault.gpu as usize).map_or(&[][..], |gpu| gpu.nvlinks.as_slice());
            let links: u32 = links.iter().map(|links| u32::from(links.count)).sum();
            for (at, LinkPart { link, part }) in fault.links.iter().enumerate() {
                let key = |name: &str| key(&format!("links[{at}].{name}"));
                let gpu = fault.gpu;
                ensure!(
                    u32::from(*link) < links,
                    key("link"),
                    "GPU {gpu} has no link {link}: it has {links}, counted from 0"
                );
                number(&key("part"), *part, 0.0, MOST_COUNTED, "")?;
            }
        }
        for (place, pairs) in faults.over_pcie.iter().enumerate() {
            self.pairs(*pairs, &format!("faults.over_pcie[{place}]"))?;
        }
        Ok(())
    }

    /// Checks a hop that carries less for several flows than for one.
    fn collapse(
        &self,
        key: impl Fn(&str) -> String,
        collapse: &Collapse,
        places: &HashMap<PciAddress, usize>,
    ) -> Checked {
        rate(&key("gbps"), collapse.gbps)?;
        let hop = self.hop_of(&key("at"), collapse.at, places)?;
        let (gbps, alone) = (collapse.gbps, self.shared_gbps(hop));
        let collapses = gbps < alone;
        ensure!(
            collapses,
            key("gbps"),
            "{gbps} GB/s are no collapse: one flow has no more than {alone:.1} there"
        );
        Ok(())
    }

    /// Returns one direction of a shared resource.
    fn hop_of(
        &self,
        key: &str,
        at: Shared,
        places: &HashMap<PciAddress, usize>,
    ) -> Result<Hop, Problem> {
        match at {
            Shared::Pci(lower) => {
                let function = places.get(&lower).and_then(|place| self.pci.get(*place));
                let function = function
                    .ok_or_else(|| problem(key, format!("no [[pci]] has the address {lower}")))?;
                let port = matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream);
                ensure!(
                    !port,
                    key,
                    "the link below the port {lower} belongs to its lower end: name the function there"
                );
                Ok(Hop::Pcie { lower, up: true })
            }
            Shared::Uplink(uplink) => {
                ensure!(
                    uplink < self.uplinks.len(),
                    key,
                    "there is no uplink {uplink}: they are counted from 0"
                );
                Ok(Hop::Uplink { uplink, up: true })
            }
            Shared::Interconnect => Ok(Hop::Interconnect { from: 0, to: 1 }),
            Shared::Nvlinks(gpu) => {
                self.gpu_index(gpu, || key.into())?;
                let links =
                    self.gpus.get(gpu as usize).map_or(&[][..], |gpu| gpu.nvlinks.as_slice());
                let switched =
                    links.iter().any(|links| links.active && links.remote == NvLinkTarget::Switch);
                ensure!(switched, key, "GPU {gpu} has no active NVLinks to switches");
                Ok(Hop::NvSwitch { gpu, up: true })
            }
        }
    }
}

/// Checks the conditions of a fault of copies.
fn pair_fault(key: impl Fn(&str) -> String, fault: &PairFault) -> Checked {
    let staged_kernel = fault.engine == Some(Engine::Kernel) && fault.path == Path::Staged;
    ensure!(!staged_kernel, key("engine"), "kernels copy nothing through host memory");
    ensure!(
        !(fault.both_ways && fault.under_load),
        key("under_load"),
        "while both directions are busy there is load: choose one of both_ways and under_load"
    );
    ensure!(
        !(fault.beside_third && (fault.both_ways || fault.under_load)),
        key("beside_third"),
        "beside a third GPU there is load: choose one of both_ways, under_load and beside_third"
    );
    let condition = match (fault.both_ways, fault.under_load) {
        (true, _) => "both_ways",
        (_, true) => "under_load",
        _ => "beside_third",
    };
    let at_once = matches!(
        fault.fault,
        CopyFault::Unstable { .. }
            | CopyFault::Outliers { .. }
            | CopyFault::Hangs
            | CopyFault::Crashes
    );
    let met_at_end = matches!(
        fault.fault,
        CopyFault::Slow { .. } | CopyFault::Unstable { .. } | CopyFault::Outliers { .. }
    );
    ensure!(
        !(fault.flows_at_once.is_some() && met_at_end),
        key("flows_at_once"),
        "how many flows are on their way changes no rate by itself: describe what they share"
    );
    ensure!(
        fault.flows_at_once.is_none_or(|flows| flows > 1),
        key("flows_at_once"),
        "one flow is always on its way"
    );
    ensure!(
        fault.times.is_none() || matches!(fault.fault, CopyFault::LateError { .. }),
        key("times"),
        "only a late error can be counted: what hangs or crashes starts the driver again"
    );
    ensure!(fault.times != Some(0), key("times"), "what never shows is no fault");
    ensure!(
        !((fault.both_ways || fault.under_load || fault.beside_third) && at_once),
        key(condition),
        "only the rate of copies, the bytes that arrive and late errors can depend on what else is busy"
    );
    Ok(())
}

//! Consistency checks of a machine's faults.

use std::collections::HashMap;

use super::problem::{Checked, Problem, ensure, problem};
use super::{Collapse, CopyFault, Faults, GpuSpec, MachineSpec, NvLinkTarget, PairFault, Shared};
use crate::routes::Hop;
use model::placement::{Engine, Path};
use model::snapshot::PciKind;
use model::units::PciAddress;

/// Checks the pairs, or the GPU, of every entry of a list.
macro_rules! refer {
    ($machine:ident, $check:ident $of:ident: $($($list:ident).+)*) => {
        $(
            for (place, entry) in $machine.$($list).+.iter().enumerate() {
                let list = [$(stringify!($list)),+].join(".");
                let key = || format!("{list}[{place}].{}", stringify!($of));
                $machine.$check(entry.$of, key)?;
            }
        )*
    };
}

impl MachineSpec {
    pub(super) fn faults(&self, faults: &Faults, places: &HashMap<PciAddress, usize>) -> Checked {
        refer!(self, pairs pairs: peers.exceptions faults.pairs faults.talk over_time.copies);
        refer!(self, gpu_index gpu: faults.nvlinks faults.contexts faults.others faults.counters
            faults.late_gates faults.drifts faults.windows over_time.nvlinks over_time.programs over_time.xids);
        for (place, fault) in faults.pairs.iter().enumerate() {
            pair_fault(|name| format!("faults.pairs[{place}].{name}"), fault)?;
        }
        for (place, fault) in faults.links.iter().enumerate() {
            let (known, key) =
                (places.contains_key(&fault.function), format!("faults.links[{place}].function"));
            ensure!(known, key, "no [[pci]] has the address {}", fault.function);
        }
        for (place, fault) in faults.nvlinks.iter().enumerate() {
            self.link_index(fault.gpu, fault.link, || format!("faults.nvlinks[{place}].link"))?;
            let to = || format!("faults.nvlinks[{place}].to");
            fault.to.map_or(Ok(()), |gpu| self.gpu_index(gpu, to))?;
        }
        for (place, fault) in faults.windows.iter().enumerate() {
            let key = |name| format!("faults.windows[{place}].{name}");
            ensure!(fault.from < fault.to, key("to"), "a window ends behind its begin");
            let of_others = fault.by != Some(fault.gpu);
            ensure!(of_others, key("by"), "a GPU reaches its own memory by no window");
            let by = || key("by");
            fault.by.map_or(Ok(()), |gpu| self.gpu_index(gpu, by))?;
        }
        for (place, index) in faults.lost_gpus.iter().enumerate() {
            self.gpu_index(*index, || format!("faults.lost_gpus[{place}]"))?;
        }
        for (place, fault) in faults.counters.iter().enumerate() {
            for (at, part) in fault.links.iter().enumerate() {
                let key = || format!("faults.counters[{place}].links[{at}].link");
                self.link_index(fault.gpu, part.link.into(), key)?;
            }
        }
        for (place, pairs) in faults.over_pcie.iter().enumerate() {
            self.pairs(*pairs, || format!("faults.over_pcie[{place}]"))?;
        }
        for (place, collapse) in faults.collapses.iter().enumerate() {
            self.collapse(|name| format!("faults.collapses[{place}].{name}"), collapse, places)?;
        }
        for (place, fault) in faults.host.iter().enumerate() {
            let key = || format!("faults.host[{place}].gpu");
            fault.gpu.map_or(Ok(()), |gpu| self.gpu_index(gpu, key))?;
        }
        Ok(())
    }

    fn link_index(&self, gpu: u32, link: u32, key: impl FnOnce() -> String) -> Checked {
        let links = self.gpus.get(gpu as usize).map_or(0, GpuSpec::link_count);
        ensure!(
            link < links,
            key(),
            "GPU {gpu} has no link {link}: it has {links}, counted from 0"
        );
        Ok(())
    }

    /// Checks a hop that carries less for several flows than for one.
    fn collapse(
        &self,
        key: impl Fn(&str) -> String,
        collapse: &Collapse,
        places: &HashMap<PciAddress, usize>,
    ) -> Checked {
        let hop = self.hop_of(&key("at"), collapse.at, places)?;
        let (gbps, alone) = (*collapse.gbps, self.shared_gbps(hop));
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

//! Advice that the reader can follow on this machine. Nobody inside a virtual machine reaches slots, supplies or BIOS: whoever
//! runs the host has to. A module has no power cables.

use super::evidence::Evidence;
use super::rules::nvlink_missing::is_sxm;
use super::steps::{Ask, Step as Advice};
use model::finding::Finding;
use model::step::{self, Remedy, Step, When};

/// Identifiers of steps on the hardware of the host, beside all that reseat, exchange and switch off.
const OF_HOST: [&str; 10] = [
    "bifurcation",
    "bmc",
    "chipset-slot",
    "cooling",
    "edac",
    "extenders",
    "firmware-setting",
    "memory-modules",
    "power-management",
    "power-supply",
];

/// Replaces steps that cannot be taken here.
pub(crate) fn fit(evidence: &Evidence<'_>, findings: &mut [Finding]) {
    for finding in findings {
        if let Some(steps) = fitted(evidence, &finding.steps) {
            *finding = finding.clone().steps(steps);
        }
        for suspect in &mut finding.suspects {
            if let Some(steps) = fitted(evidence, &suspect.steps) {
                suspect.test = step::joined(&steps);
                suspect.steps = steps;
            }
        }
    }
}

/// Returns the steps without those that cannot be taken; `None` if all can.
fn fitted(evidence: &Evidence<'_>, steps: &[Step]) -> Option<Vec<Step>> {
    let guest = evidence.virtual_machine();
    let mut fitted: Vec<Step> = Vec::new();
    for step in steps {
        let of_host = OF_HOST.contains(&&*step.id)
            || matches!(step.remedy, Remedy::Reseat | Remedy::Exchange);
        let new = match step.remedy {
            _ if lacks_cables(evidence, step) || is_given(evidence, step) => continue,
            Remedy::PowerCycle if guest => Advice::RestartGuest,
            _ if guest && of_host => {
                // Nothing was swapped, so nothing moves with it.
                if matches!(step.when, When::IfItMoves | When::IfItStaysThere) {
                    continue;
                }
                Advice::AskHost(Ask::Parts)
            }
            _ => {
                fitted.push(step.clone());
                continue;
            }
        };
        let new = new.recorded(step.when);
        // One question to the host is enough.
        let asked = |other: &Step| other.id == new.id;
        if !fitted.iter().any(asked) && (step.id == new.id || !steps.iter().any(asked)) {
            fitted.push(new);
        }
    }
    (fitted != steps && !fitted.is_empty()).then_some(fitted)
}

/// Returns true if the step asks for output that was given.
fn is_given(evidence: &Evidence<'_>, step: &Step) -> bool {
    let tool = match &*step.id {
        "xid" | "driver-log" | "nvlink-log" | "aer" => "dmesg",
        "lspci" => "lspci",
        _ => return false,
    };
    let mut inputs = evidence.read_from.into_iter().flat_map(|read| &read.inputs);
    inputs.any(|input| input.sections.iter().any(|section| section.tool.starts_with(tool)))
}

/// Returns true if the step is on power cables of modules alone.
fn lacks_cables(evidence: &Evidence<'_>, step: &Step) -> bool {
    if step.id != "power-cables" {
        return false;
    }
    let gpus = evidence.snapshot.gpus.iter();
    let mut named =
        gpus.filter(|gpu| step.gpus.is_empty() || step.gpus.contains(&gpu.index)).peekable();
    named.peek().is_some() && named.all(|gpu| gpu.name.known().is_some_and(|name| is_sxm(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::steps::{Part, Plan, gpu};
    use crate::testing::without_request;
    use model::pasted::{Pasted, PastedInput, PastedSection};
    use model::snapshot::Snapshot;
    use model::testing::{h200_vm, two_sockets};
    use model::topology::Topology;

    fn on(machine: &Snapshot, plan: Plan) -> Option<String> {
        let (topology, settings) = (Topology::default(), Settings::default());
        let evidence = without_request(machine, &topology, None, &settings);
        fitted(&evidence, &Vec::from(plan)).map(|steps| step::sentences(&steps))
    }

    #[test]
    fn a_guest_asks_its_host_once_and_never_opens_the_machine() {
        let plan = || {
            Plan::now([
                Advice::Xid,
                Advice::Reseat(Part::GpuAndRiser(gpu(1))),
                Advice::PowerCycle,
                Advice::CheckAgain,
            ])
            .if_it_stays([Advice::Swap(Part::of(&[1])), Advice::MemoryModules])
            .and(When::IfItMoves, [Advice::Replace(Part::of(&[1]))])
        };
        assert_eq!(on(&two_sockets(), plan()), None);
        let said = on(&h200_vm(2), plan()).unwrap();
        assert_eq!(
            said,
            "Look for Xid messages (dmesg | grep -i xid); ask whoever runs the host to look at these GPUs there: Xid, AER, link, \
             slot, seat, power and cooling, which a guest cannot reach; shut this virtual machine down and start it \
             again, which resets its GPUs; then check again"
        );
    }

    #[test]
    fn what_was_given_is_not_asked_for() {
        let (machine, topology, settings) =
            (two_sockets(), Topology::default(), Settings::default());
        let section = |tool: &str| PastedSection { tool: tool.to_owned(), ..Default::default() };
        let sections = vec![section("dmesg"), section("lspci -vv")];
        let inputs = vec![PastedInput { sections, ..Default::default() }];
        let pasted = Pasted { inputs, ..Pasted::default() };
        let evidence = Evidence {
            read_from: Some(&pasted),
            ..without_request(&machine, &topology, None, &settings)
        };
        let plan = Plan::now([Advice::Xid, Advice::AerLog, Advice::Bus, Advice::Reboot]);
        let left = fitted(&evidence, &Vec::from(plan)).unwrap();
        assert_eq!(step::sentences(&left), "Reboot");
    }

    #[test]
    fn modules_have_no_power_cables_and_cards_do() {
        let plan = || Plan::now([Advice::PowerCables(gpu(0)), Advice::CheckAgain]);
        let mut machine = two_sockets();
        assert_eq!(on(&machine, plan()), None);
        machine.gpus[0].name = model::reading::Reading::Known("NVIDIA H100 80GB HBM3".into());
        assert_eq!(on(&machine, plan()).as_deref(), Some("Check again"));
    }
}

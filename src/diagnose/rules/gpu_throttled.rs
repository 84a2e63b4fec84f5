//! # What it means
//!
//! Hardware held back a GPU's clocks: too hot, or too little power.
//!
//! # What to do
//!
//! Thermal: look at temperature and fans (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`), air filters, blanking plates,
//! and the room. Power brake: redundancy and cables of the power supply (`ipmitool sdr type "Power Supply"`). All
//! GPUs alike: the server's own power management.
//!
//! # How it is detected
//!
//! NVML's reasons for lower clocks are read before and while copies run. Hardware slowdown, thermal slowdown and
//! power brake are a warning, and an error if a copy with this GPU was slow. A slowdown only at rest, the software
//! power cap, clocks set by the user, synchronised boost and idling are not reported.
//!
//! # Sources
//!
//! NVML, `nvmlClocksThrottleReasons`; NVIDIA, `nvidia-smi -q -d PERFORMANCE`.

use super::load_reached;
use super::prelude::*;

/// Hardware slowdown, which some GPUs also report at rest.
const SLOWDOWN: &str = "hw-slowdown";

/// The reasons that mean a fault, by peerscope's short names, with words.
const REASONS: [(&str, &str); 4] = [
    HOT[0],
    HOT[1],
    ("hw-power-brake", "the power supply asked for less (power brake)"),
    (SLOWDOWN, "hardware slowdown"),
];

/// The thermal reasons.
const HOT: [(&str, &str); 2] =
    [("hw-thermal", "too hot (hardware)"), ("sw-thermal", "too hot (driver)")];

/// The performance state from which a GPU is at rest. Source: NVML, performance states, 0 is the highest; idle
/// data-centre GPUs show 8.
const AT_REST: u8 = 8;

rule! {
    "gpu-throttled", Warning, All(judge);
}

/// A GPU whose clocks were held back.
struct Held {
    gpu: u32,
    reasons: Vec<&'static (&'static str, &'static str)>,
    /// True if it was seen while copies ran.
    under_load: bool,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus = &evidence.snapshot.gpus;
    let held: Vec<Held> = gpus.iter().filter_map(|gpu| held(evidence, gpu)).collect();
    let alike = held.windows(2).all(|two| two[0].reasons == two[1].reasons);
    // A cause outside the GPUs holds all of them back.
    let at_once = match held.len() > 1 && held.len() == gpus.len() && alike {
        true => held.len(),
        false => 1,
    };
    held.chunks(at_once).filter_map(|some| finding(evidence, some)).collect()
}

fn held(evidence: &Evidence<'_>, gpu: &Gpu) -> Option<Held> {
    let load = links::watched(evidence, gpu.index);
    let under_load = |name: &str| {
        load.is_some_and(|load| load.throttle_reasons.iter().any(|reason| reason == name))
    };
    let rests = gpu.power_state.get().is_some_and(|state| state >= AT_REST);
    let before = |name: &str| {
        let mut before = gpu.throttle_reasons.known().into_iter().flatten();
        before.any(|reason| reason == name) && !(rests && name == SLOWDOWN)
    };
    let reasons: Vec<_> =
        REASONS.iter().filter(|(name, _)| under_load(name) || before(name)).collect();
    (!reasons.is_empty()).then(|| Held {
        gpu: gpu.index,
        under_load: reasons.iter().any(|(name, _)| under_load(name)),
        reasons,
    })
}

/// Returns the finding on GPUs that are held back for the same reasons.
fn finding(evidence: &Evidence<'_>, held: &[Held]) -> Option<Finding> {
    let seen = &held.first()?.reasons;
    let gpus: Vec<u32> = held.iter().map(|held| held.gpu).collect();
    let mut slow: Vec<&PeerBandwidth> = Vec::new();
    for cell in gpus.iter().flat_map(|gpu| links::slow_with(evidence, *gpu)) {
        let known = |other: &&PeerBandwidth| std::ptr::eq(*other, cell);
        if !slow.iter().any(known) {
            slow.push(cell);
        }
    }
    let is_low = |gpu: &u32| load_reached::is_low_with(evidence, *gpu) == Some(true);
    let low = gpus.iter().any(is_low);
    let words: Vec<_> = seen.iter().map(|(_, words)| *words).collect();
    let when = match held.iter().any(|held| held.under_load) {
        true => evidence.meanwhile(),
        false if evidence.read_from.is_some() => "as the input shows them",
        false if evidence.watched.is_some() => "before it was watched",
        false => "before copies ran",
    };
    let hot = seen.iter().any(|reason| HOT.contains(reason));
    let plan = match (hot, gpus.as_slice()) {
        (true, _) => Plan::now([Step::Cooling, Step::CheckAgain]),
        (false, [gpu]) => {
            let cables = Step::PowerCables(steps::gpu(*gpu));
            Plan::now([Step::PowerSupply, cables, Step::CheckAgain])
        }
        // All cables at once do not fail.
        (false, _) => Plan::now([Step::ServerPower, Step::PowerSupply, Step::CheckAgain]),
    };
    let together = if gpus.len() > 1 { "; all alike: the cause lies outside the GPUs" } else { "" };
    let effect = match (slow.is_empty(), low) {
        (false, _) => "; its copies were slower than expected",
        (true, true) => "; several of its copies at once reached less than expected",
        (true, false) => "",
    };
    let message = format!(
        "The clocks of {} were throttled {when}: {}{together}{effect}",
        evidence.named(&gpus),
        words.join(", "),
    );
    let reasons: Vec<String> = seen.iter().map(|(name, _)| (*name).to_owned()).collect();
    let watched = gpus.iter().filter_map(|gpu| links::watched(evidence, *gpu));
    let hottest = watched.filter_map(|link| link.temperature_max_c).max();
    let found = RULE
        .on_gpus(&gpus, message, plan)
        .fact("reasons", reasons)
        .fact("highest_temperature_c", hottest)
        .at_if(low || !slow.is_empty(), Severity::Error);
    Some(links::with_slowed(found, &slow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::testing::gpu;

    #[test]
    fn what_holds_all_gpus_back_is_one_finding_on_the_machine() {
        let mut machine = two_sockets();
        for gpu in &mut machine.gpus {
            gpu.throttle_reasons = Reading::Known(vec!["hw-power-brake".into()]);
        }
        let found = only(&findings(&machine, None), RULE.id.as_ref(), Severity::Warning);
        assert_eq!(found.subject, Subject::Machine);
        assert!(
            !advises(&found, "power-cables") && advises(&found, "power-management"),
            "{found:#?}"
        );
        machine.gpus[1].throttle_reasons = Reading::Known(Vec::new());
        let others = findings(&machine, None);
        assert_eq!(others.len(), machine.gpus.len() - 1, "{others:#?}");
    }

    #[test]
    fn a_slowdown_at_rest_is_none() {
        let mut machine = two_sockets();
        machine.gpus[0].throttle_reasons = Reading::Known(vec![SLOWDOWN.into()]);
        assert_eq!(machine.gpus[0].power_state, gpu(0, "0000:03:00.0").power_state);
        assert_eq!(findings(&machine, None), []);
        machine.gpus[0].power_state = Reading::Known(0);
        only(&findings(&machine, None), "gpu-throttled", Severity::Warning);
        machine.gpus[0].power_state = Reading::Known(8);
        machine.gpus[0].throttle_reasons = Reading::Known(vec!["hw-power-brake".into()]);
        only(&findings(&machine, None), "gpu-throttled", Severity::Warning);
    }
}

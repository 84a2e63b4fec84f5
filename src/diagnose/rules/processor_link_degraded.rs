//! # What it means
//!
//! Links between a GPU and its processor (NVLink-C2C) are down or count errors. On Grace they are a module, and every copy
//! with the host takes these links.
//!
//! # What to do
//!
//! See what the links say (`nvidia-smi c2c -s`, `nvidia-smi c2c -e`) and what the driver writes. Power the machine off and on,
//! and check again. Links that stay down are the module's: processor, links and GPU are replaced together.
//!
//! # How it is detected
//!
//! NVML's counts since the driver was loaded (`snapshot.gpus[].c2c_links`).
//!
//! - Warning: fewer links are up than on another GPU of the model in this machine, or, on Hopper, than NVML counts.
//! - Warning: CRC errors, or packets that were sent again twice, while another GPU of the model has neither.
//! - Information: any other errors. How many a sound link counts is not published.
//!
//! How slow the copies are is `host-bandwidth-low`.
//!
//! # Sources
//!
//! nvml.h, `NVML_FI_DEV_C2C_LINK_COUNT`, `_GET_STATUS`, `_ERROR_INTR`, `_ERROR_REPLAY`, `_ERROR_REPLAY_B2B`; names of the
//! errors: DCGM. GH200 has 10 links, all up (dmlc/xgboost, output of `nvidia-smi c2c -s`).

use super::prelude::*;
use model::snapshot::C2cErrors;
use topology::host::c2c_made;

rule! {
    "processor-link-degraded", Warning, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    evidence.snapshot.gpus.iter().filter_map(|gpu| finding(evidence, gpu)).collect()
}

fn finding(evidence: &Evidence<'_>, gpu: &Gpu) -> Option<Finding> {
    let links = gpu.c2c_links.get()?;
    let made = c2c_made(evidence.snapshot, gpu)?;
    let errors = links.errors.unwrap_or_default();
    let counts = [
        (errors.crc, "CRC error"),
        (errors.replay, "replay"),
        (errors.replay_again, "repeated replay"),
    ];
    let counted = words::counted(&counts);
    let (is_lost, has_errors) = (links.active < made, !counted.is_empty());
    if !is_lost && !has_errors {
        return None;
    }
    let harm = |errors: C2cErrors| errors.crc > 0 || errors.replay_again > 0;
    let is_clean = |other: &Gpu| {
        other.name == gpu.name
            && other
                .c2c_links
                .get()
                .and_then(|links| links.errors)
                .is_some_and(|other| !harm(other))
    };
    let odd = harm(errors) && evidence.snapshot.gpus.iter().any(is_clean);
    let name = evidence.name(gpu.index);
    let message = match is_lost {
        true => format!(
            "{} of {made} links between {name} and its processor (NVLink-C2C) are up{}",
            links.active,
            words::after("; since the driver was loaded: ", Some(&counted).filter(|_| has_errors)),
        ),
        false => format!(
            "The links between {name} and its processor (NVLink-C2C) counted errors; {counted} since the driver was loaded"
        ),
    };
    let plan = match is_lost || odd {
        true => Plan::now([Step::DriverLog, Step::PowerCycle, Step::CheckAgain])
            .if_it_stays([Step::Replace(Part::of(&[gpu.index]))]),
        false => Plan::now([Step::CheckAgain]),
    };
    let found = RULE
        .finding(Subject::Gpu { index: gpu.index }, message, plan)
        .fact("links_counted", links.count)
        .fact("links_rate", links.rate());
    Some(found.at_if(!is_lost && !odd, Severity::Info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::reading::Reading;
    use model::snapshot::C2cLinks;

    const CODE: &str = "processor-link-degraded";

    fn of(architecture: &str, links: &[(u32, C2cErrors)]) -> Vec<Finding> {
        let mut machine = h200_vm(u32::try_from(links.len()).unwrap());
        for (gpu, (active, errors)) in machine.gpus.iter_mut().zip(links) {
            let (active, link_mbps) = (*active, Some(44_712));
            gpu.c2c = Reading::Known(true);
            gpu.architecture = Reading::Known(architecture.into());
            let links = C2cLinks { count: 10, active, link_mbps, errors: Some(*errors) };
            gpu.c2c_links = Reading::Known(links);
        }
        let found = findings(&machine, None);
        found.into_iter().filter(|found| found.code == CODE).collect()
    }

    #[test]
    fn a_link_that_is_down_is_one_that_siblings_have_or_hopper_counts() {
        let fine = C2cErrors::default();
        assert_eq!(of("Blackwell", &[(5, fine), (5, fine)]), []);
        assert_eq!(of("Hopper", &[(10, fine)]), []);
        let found = of("Blackwell", &[(5, fine), (3, fine)]);
        let lost = only(&found, CODE, Severity::Warning);
        assert_eq!(lost.subject, Subject::Gpu { index: 1 });
        assert!(lost.message.starts_with("3 of 5 links between GPU 1"), "{}", lost.message);
        assert_advice(&RULE, &found, &["xid", "restart-guest", "check-again", "ask-host"], &[]);
        only(&of("Hopper", &[(9, fine)]), CODE, Severity::Warning);
    }

    #[test]
    fn errors_are_a_warning_where_a_sibling_has_none() {
        let (fine, replays) =
            (C2cErrors::default(), C2cErrors { replay: 9, ..C2cErrors::default() });
        let again = C2cErrors { crc: 1, replay: 9, replay_again: 2 };
        only(&of("Blackwell", &[(5, fine), (5, again)]), CODE, Severity::Warning);
        let both = of("Blackwell", &[(5, again), (5, again)]);
        assert!(both.len() == 2 && both.iter().all(|found| found.severity == Severity::Info));
        let mild = of("Blackwell", &[(5, fine), (5, replays)]);
        let mild = only(&mild, CODE, Severity::Info);
        assert!(
            mild.message.ends_with("; 9 replays since the driver was loaded"),
            "{}",
            mild.message
        );
    }
}

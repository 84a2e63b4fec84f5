//! # What it means
//!
//! NVLinks of a GPU counted errors while the check copied. A link that counts more each day will fail.
//!
//! # What to do
//!
//! Note the counters (`nvidia-smi nvlink -e`) and check again: do the same links count? Look for Xid 74
//! (`dmesg | grep -i xid`). Reseat bridge or GPU. On NVSwitch baseboards swap the GPU: errors that stay are the
//! baseboard's.
//!
//! # How it is detected
//!
//! Counters of active links are read before and after the copies.
//!
//! - Error: `crc_per_second_count` damaged flits or more.
//! - Warning: damaged flits (CRC) and recoveries, in which a link retrains; on NVLink 5 and later recoveries, failed
//!   ones, and malformed or discarded packets.
//! - Replays, and errors that forward error correction left: a warning if a copy of the GPU is slow, otherwise
//!   information, since congestion raises them.
//!
//! In the output of other tools (`nvidia-smi nvlink -e`) the counters since the driver was loaded are information, and a
//! warning if CRC errors or recoveries are among them and other links counted nothing.
//!
//! # Sources
//!
//! NVML, `nvmlDeviceGetNvLinkErrorCounter`; NVIDIA's Xid errors page (74); DCGM's health watch
//! (`DCGM_LIMIT_MAX_NVLINK_CRC_ERROR`).

use super::prelude::*;
use super::{bandwidth, load_reached};
use super::{nvlink_ends, nvlink_missing};
use model::measurement::NvLinkErrorsAdded;

rule! {
    "nvlink-errors-rose", Warning, All(judge);
    /// CRC errors of one link in each second from which they are an error, as DCGM fails a GPU
    MOST_CRC: crc_per_second_count = 100.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let live =
        |load: &LinkUnderLoad| (load.index, load.nvlink_errors.iter().flatten().copied().collect());
    let all: Vec<(u32, Vec<_>)> = match evidence.read_from {
        Some(_) => of_input(evidence.snapshot),
        None => evidence.links().iter().map(live).collect(),
    };
    // Links that counted nothing in the same time show that it is not usual here.
    let clean = all.iter().flat_map(|(_, links)| links).any(|one| one.all() == 0);
    let of = |(index, links): &(u32, Vec<NvLinkErrorsAdded>)| {
        let counted: Vec<_> = links.iter().copied().filter(|one| one.all() > 0).collect();
        let odd = clean && counted.iter().any(|one| one.crc + one.recovery > 0);
        let found = (!counted.is_empty()).then(|| finding(evidence, *index, &counted))?;
        Some(match evidence.read_from {
            Some(_) => found.at(if odd { Severity::Warning } else { Severity::Info }),
            None => found,
        })
    };
    all.iter().filter_map(of).collect()
}

/// Returns the counters that other tools show, since the driver was loaded.
fn of_input(snapshot: &Snapshot) -> Vec<(u32, Vec<NvLinkErrorsAdded>)> {
    let errors = |link: &NvLink| NvLinkErrorsAdded {
        link: link.link,
        crc: link.crc_errors.get().unwrap_or(0),
        replay: link.replay_errors.get().unwrap_or(0),
        recovery: link.recovery_errors.get().unwrap_or(0),
        ..NvLinkErrorsAdded::default()
    };
    let links = |gpu: &Gpu| gpu.nvlinks.known().into_iter().flatten().map(errors).collect();
    snapshot.gpus.iter().map(|gpu| (gpu.index, links(gpu))).collect()
}

fn finding(evidence: &Evidence<'_>, index: u32, counted: &[NvLinkErrorsAdded]) -> Finding {
    let sum = |of: fn(&NvLinkErrorsAdded) -> u64| counted.iter().map(of).sum::<u64>();
    let (crc, replay, recovery) =
        (sum(|errors| errors.crc), sum(|errors| errors.replay), sum(|errors| errors.recovery));
    let (failed, lost, uncorrected) = (
        sum(|errors| errors.failed_recovery),
        sum(|errors| errors.packet),
        sum(|errors| errors.effective),
    );
    let harmful = crc + recovery + failed + lost;
    let links: Vec<_> = counted.iter().map(|errors| errors.link).collect();
    let (subject, which) = nvlink_ends::place(evidence, index, &links);
    let low = load_reached::is_low_over_nvlinks(evidence, index);
    let slow =
        low == Some(true) || bandwidth::low_pairs(evidence).iter().any(|pair| pair.touches(index));
    let alone = bandwidth::sound(evidence, Path::Direct)
        .into_values()
        .any(|cell| cell.pair.touches(index) && evidence.expected(cell).is_some());
    let judged = low.is_some() || alone;
    let fine = if judged && !slow {
        "; every copy of this GPU that was judged reached its rate"
    } else {
        ""
    };
    let (reseat, suspects) = nvlink_missing::of_errors(evidence, index);

    // No link has all of these counters: the later ones came with NVLink 5, which lost the earlier.
    let counts = [
        (crc, "CRC error"),
        (replay, "replay"),
        (recovery, "recovery"),
        (failed, "failed recovery"),
        (lost, "lost packet"),
        (uncorrected, "uncorrected error"),
    ];
    let when = match evidence.read_from {
        Some(_) => "since the driver was loaded",
        None => "during the check",
    };
    let mut found = RULE
        .finding(
            subject,
            format!("{which} counted {} {when}{fine}", words::counted(&counts)),
            Plan::now([Step::CheckAgain, Step::LinkErrorsOf(gpu(index)), Step::XidOf("74")])
                .if_it_stays([reseat, Step::Swap(Part::of(&[index]))]),
        )
        .fact("links", nvlink_ends::link_numbers(&links))
        .fact("crc_errors", crc);
    let worst = counted.iter().map(|errors| errors.crc).max();
    let crc_a_second = evidence.a_second(worst.unwrap_or(0));
    if harmful == 0 && judged && !slow {
        found.severity = Severity::Info;
    } else if evidence.measured_seconds > 0.0 && crc_a_second >= MOST_CRC.of(evidence) {
        found = found.at(Severity::Error).fact("crc_errors_per_second", Fact::figure(crc_a_second));
    }
    found.suspects = suspects;
    if recovery == 0 {
        let congestion = suspect_if(Cause::Congestion, [Step::CheckIdle], Sign::CountersRest);
        found.suspects.push(congestion);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns the findings on eight H200, where link 7 of GPU 6 counted this many damaged flits.
    fn counted(crc: u64, seconds: f64) -> Vec<Finding> {
        let machine = h200_vm(8);
        let added = NvLinkErrorsAdded {
            link: 7,
            crc,
            replay: 20,
            recovery: 1,
            ..NvLinkErrorsAdded::default()
        };
        let load = LinkUnderLoad {
            index: 6,
            nvlink_errors: Some(vec![added]),
            ..LinkUnderLoad::default()
        };
        let measurements = Measurements { links: vec![load], ..measured(&machine, 0.88) };
        within(&machine, &measurements, seconds)
    }

    #[test]
    fn counters_of_nvlink_5_are_named_and_uncorrected_errors_alone_are_information() {
        let machine = h200_vm(8);
        let with = |added| {
            let load = LinkUnderLoad {
                index: 6,
                nvlink_errors: Some(vec![NvLinkErrorsAdded { link: 7, ..added }]),
                ..LinkUnderLoad::default()
            };
            let links = vec![load];
            findings(&machine, Some(&Measurements { links, ..measured(&machine, 0.88) }))
        };
        let none = NvLinkErrorsAdded::default();
        let code = "nvlink-errors-rose";
        let lost = NvLinkErrorsAdded { packet: 3, failed_recovery: 1, ..none };
        let found = only(&with(lost), code, Severity::Warning);
        assert!(found.message.contains("1 failed recovery, 3 lost packets"), "{}", found.message);
        let effective = NvLinkErrorsAdded { effective: 9, ..none };
        only(&with(effective), code, Severity::Info);
    }

    #[test]
    fn damaged_flits_are_judged_by_the_second() {
        let code = "nvlink-errors-rose";
        let found = only(&counted(500, 2.0), code, Severity::Error);
        assert_eq!(found.subject, Subject::Link { index: 6, link: 7 });
        only(&counted(500, 60.0), code, Severity::Warning);
        // A run of half a second is no measure of a rate.
        only(&counted(60, 0.5), code, Severity::Warning);
    }

    #[test]
    fn counters_in_the_output_of_a_tool_are_compared_with_those_of_other_links() {
        let judged = |machine: &Snapshot| {
            let topology = topology::build(machine);
            let (settings, pasted) =
                (crate::settings::Settings::default(), model::pasted::Pasted::default());
            RULE.judge(&Evidence {
                read_from: Some(&pasted),
                ..crate::testing::without_request(machine, &topology, None, &settings)
            })
        };
        let mut machine = h200_vm(2);
        let set = |machine: &mut Snapshot, gpu: usize, links: std::ops::Range<usize>| {
            if let Reading::Known(all) = &mut machine.gpus[gpu].nvlinks {
                for link in &mut all[links] {
                    link.crc_errors = Reading::Known(40);
                }
            }
        };
        set(&mut machine, 1, 3..4);
        let found = judged(&machine);
        let one = only(&found, "nvlink-errors-rose", Severity::Warning);
        assert!(
            one.message.contains("40 CRC errors since the driver was loaded"),
            "{}",
            one.message
        );
        for gpu in 0..2 {
            set(&mut machine, gpu, 0..18);
        }
        assert!(judged(&machine).iter().all(|found| found.severity == Severity::Info));
    }
}

//! # What it means
//!
//! An NVLink corrected many symbols in single codewords. No byte was lost; warmer or older, it will lose data and
//! retrain.
//!
//! # What to do
//!
//! Note the counters (`nvidia-smi nvlink -e`, "FEC Errors"), and check again under load and warm. Reseat GPU or bridge;
//! in a rack, reseat the tray and look at the cable cartridge. Swap the GPU: errors that stay come from the other end
//! or what lies between.
//!
//! # How it is detected
//!
//! NVLink 5 and later count codewords by how many symbols were corrected in them; read before and after the copies, and
//! each minute under load (`measurements.soak`). Reported: `codewords_count` or more with `symbols_count` or more, and
//! ten times as many as the link in the middle. Uncorrected errors are `nvlink-errors-rose` and
//! `link-errors-over-time`.
//!
//! # Sources
//!
//! nvml.h, `NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0` to `_15`. Limits are chosen: DataDog's agent calls up to three
//! symbols light; a sound GB300 had 3 * 10^13 codewords without an error, 9263 with one, 1617 with two, none with more
//! (published).

use super::prelude::*;
use super::{nvlink_ends, nvlink_missing, over_time};
use model::measurement::NvLinkCorrected;

rule! {
    "nvlink-margin-low", Warning, All(judge);
    /// corrected symbols from which a codeword counts
    SYMBOLS: symbols_count = 4.0;
    /// such codewords from which a link has little margin
    CODEWORDS: codewords_count = 10.0;
}

/// Number of times as many codewords as the link in the middle: chosen, links scatter by less.
const OF_THE_OTHERS: f64 = 10.0;

/// Corrected symbols of the links of a GPU.
struct Corrected {
    gpu: u32,
    links: Vec<NvLinkCorrected>,
    /// Seconds under load after which it was seen first; none if it was seen before.
    first: Option<f64>,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(symbols) = symbols(evidence) else {
        return Vec::new();
    };
    let all: Vec<Corrected> = evidence
        .snapshot
        .gpus
        .iter()
        .filter_map(|gpu| corrected(evidence, gpu.index, symbols))
        .collect();
    let middle = middle(evidence, &all, symbols);
    let limit = CODEWORDS.of(evidence).max(OF_THE_OTHERS * middle);
    let found = all.into_iter().map(|mut own| {
        own.links.retain(|link| link.from(symbols) as f64 >= limit.max(1.0));
        own
    });
    found.filter(|own| !own.links.is_empty()).map(|own| finding(evidence, &own, symbols)).collect()
}

/// Returns the number of symbols from which on a codeword counts; none if that is no number of symbols.
fn symbols(evidence: &Evidence<'_>) -> Option<usize> {
    let symbols = SYMBOLS.of(evidence);
    (1..=usize::from(u8::MAX)).find(|number| *number as f64 >= symbols)
}

/// Returns what a GPU's links corrected in the check or around the job, and under load after it; none if it is not counted.
fn corrected(evidence: &Evidence<'_>, gpu: u32, symbols: usize) -> Option<Corrected> {
    let mut links: BTreeMap<u8, NvLinkCorrected> = BTreeMap::new();
    let mut add = |corrected: &NvLinkCorrected| {
        let own = links
            .entry(corrected.link)
            .or_insert(NvLinkCorrected { link: corrected.link, codewords: Vec::new() });
        own.add(corrected);
    };
    let load = evidence.links().iter().find(|load| load.index == gpu);
    let in_check = load.and_then(|load| load.nvlink_corrected.as_ref());
    in_check.into_iter().flatten().for_each(&mut add);
    let is_deep = |corrected: &NvLinkCorrected| corrected.from(symbols) > 0;
    let seen_before = in_check.into_iter().flatten().any(is_deep);
    let mut counted = in_check.is_some();
    let mut first = None;
    for (until, minute) in over_time::soak(evidence).of_gpu(gpu) {
        let Some(corrected) = &minute.nvlink_corrected else {
            continue;
        };
        counted = true;
        if !seen_before && corrected.iter().any(is_deep) {
            first = first.or(Some(until));
        }
        corrected.iter().for_each(&mut add);
    }
    counted.then(|| Corrected { gpu, links: links.into_values().collect(), first })
}

/// Returns the codewords with so many corrected symbols of the link in the middle of all active ones that count them.
fn middle(evidence: &Evidence<'_>, all: &[Corrected], symbols: usize) -> f64 {
    let of_gpu = |own: &Corrected| -> Vec<f64> {
        let gpu = evidence.snapshot.gpu(own.gpu);
        let links = gpu.and_then(|gpu| gpu.nvlinks.known()).into_iter().flatten();
        let active = links.filter(|link| link.active.get() == Some(true));
        let count = |number: u8| {
            let link = own.links.iter().find(|link| link.link == number);
            link.map_or(0.0, |link| link.from(symbols) as f64)
        };
        active.map(|link| count(link.link)).collect()
    };
    scatter::middle(all.iter().flat_map(of_gpu)).unwrap_or(0.0)
}

/// Returns where these links of a GPU lead, such as `GPU 3` or `an NVSwitch`; none if it is not known of all of them.
fn far_ends(evidence: &Evidence<'_>, gpu: u32, links: &[u8]) -> Option<Vec<String>> {
    let snapshot = evidence.snapshot;
    let all = snapshot.gpu(gpu)?.nvlinks.known()?;
    let ends: Option<BTreeSet<String>> = links
        .iter()
        .map(|number| {
            let link = all.iter().find(|link| link.link == *number)?;
            match link.remote.get()? {
                NvLinkRemote::Switch => Some("an NVSwitch".to_owned()),
                NvLinkRemote::Npu => Some("a processor".to_owned()),
                NvLinkRemote::Gpu => {
                    let at = link.remote_pci.get()?;
                    let mut gpus = snapshot.gpus.iter();
                    let other = gpus.find(|other| other.pci.get() == Some(at))?;
                    Some(evidence.name(other.index))
                }
            }
        })
        .collect();
    Some(ends?.into_iter().collect())
}

fn finding(evidence: &Evidence<'_>, own: &Corrected, symbols: usize) -> Finding {
    let gpu = own.gpu;
    let links: Vec<u8> = own.links.iter().map(|link| link.link).collect();
    let (subject, which) = nvlink_ends::place(evidence, gpu, &links);
    let far = far_ends(evidence, gpu, &links);
    let to = words::after(" to ", far.as_ref().map(|far| far.join(", ")));
    let most = own.links.iter().map(NvLinkCorrected::most).max().unwrap_or(symbols);
    let codewords: u64 = own.links.iter().map(|link| link.from(symbols)).sum();
    let when = match own.first {
        Some(first) => format!(", first after {} under load", over_time::after(first)),
        None => " during the check".to_owned(),
    };
    let count = words::count(usize::try_from(codewords).unwrap_or(usize::MAX), "codeword");
    let (reseat, suspects) = nvlink_missing::of_errors(evidence, gpu);
    RULE
        .finding(
            subject,
            format!(
                "{which}{to} corrected up to {most} symbols of a codeword{when}; {count} with {symbols} or more, \
                 which sound links do not have: no data was lost, and little margin is left"
            ),
            Plan::now([
                Step::CheckAgain,
                Step::LinkErrorsOf(steps::gpu(gpu)),
            ])
            .if_it_stays([
                reseat,
                Step::Swap(Part::of(&[gpu])),
            ]),
        )
        .gpus(&[gpu])
        .fact("links", nvlink_ends::link_numbers(&links))
        .fact("most_symbols", most)
        .fact("codewords", codewords)
        .fact("first_after", own.first.map(Fact::Seconds))
        .suspecting(suspects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    const CODE: &str = "nvlink-margin-low";

    /// Returns the findings on eight GPUs whose links corrected this.
    fn corrected(of: impl Fn(u32) -> Option<Vec<NvLinkCorrected>>) -> Vec<Finding> {
        let mut machine = h200_vm(8);
        machine.host.virtual_machine = model::reading::Reading::Known(false);
        let load = |index| LinkUnderLoad {
            index,
            nvlink_errors: Some(Vec::new()),
            nvlink_corrected: of(index),
            ..LinkUnderLoad::default()
        };
        let measurements =
            Measurements { links: (0..8).map(load).collect(), ..measured(&machine, 0.88) };
        findings(&machine, Some(&measurements))
    }

    fn link(link: u8, codewords: &[u64]) -> NvLinkCorrected {
        NvLinkCorrected { link, codewords: codewords.to_vec() }
    }

    fn has(findings: &[Finding]) -> bool {
        findings.iter().any(|finding| finding.code == CODE)
    }

    #[test]
    fn a_link_that_corrects_many_symbols_of_a_codeword_is_named_with_its_far_end() {
        let deep = link(5, &[30_000_000_000, 90_000, 4_000, 310, 25, 9, 0, 2]);
        let all = corrected(|gpu| Some(if gpu == 3 { vec![deep.clone()] } else { vec![] }));
        let found = only(&all, CODE, Severity::Warning);
        assert_eq!(found.subject, Subject::Link { index: 3, link: 5 });
        assert!(
            found.message.contains(
                "to an NVSwitch corrected up to 7 symbols of a codeword during the check; 36 codewords with 4 or more"
            ),
            "{}",
            found.message
        );
        assert_advice(&RULE, &all, &["reseat", "swap"], &["link-errors", "check-again"]);
    }

    #[test]
    fn low_bins_and_a_few_codewords_are_what_sound_links_have() {
        // The first row is of a GB300; the second has many more of the same.
        for codewords in [
            &[29_564_994_702_128, 9263, 1617][..],
            &[30_000_000_000, 900_000_000, 80_000_000, 1_000_000],
            &[30_000_000_000, 9263, 1617, 175, 8, 1],
        ] {
            let all = corrected(|_| Some(vec![link(5, codewords)]));
            assert!(!has(&all), "{codewords:?}");
        }
        assert!(!has(&corrected(|_| None)));
    }

    #[test]
    fn what_most_links_do_accuses_none() {
        let deep = |number| link(number, &[30_000_000_000, 900, 40, 4, 30]);
        let all = corrected(|_| Some((0..18).map(deep).collect()));
        assert!(!has(&all), "every link has it");
        // One that has much more than they is another matter.
        let all = corrected(|gpu| {
            let mut links: Vec<_> = (0..18).map(deep).collect();
            if gpu == 2 {
                links[7].codewords[4] = 3000;
            }
            Some(links)
        });
        let found = only(&all, CODE, Severity::Warning);
        assert_eq!(found.subject, Subject::Link { index: 2, link: 7 });
    }

    #[test]
    fn minutes_under_load_add_up_with_the_time_of_the_first() {
        // One codeword a minute, from minute 40 on: none of them alone is enough.
        let hour = |codewords: &'static [u64]| {
            over_time::testing::after(over_time::testing::hour(
                8,
                |_, _| 395.0,
                |gpu, minute, own| {
                    let deep = gpu == 6 && minute >= 40.0;
                    own.nvlink_corrected = Some(match deep {
                        true => vec![link(4, codewords)],
                        false => Vec::new(),
                    });
                },
            ))
        };
        let all = hour(&[0, 500, 30, 4, 0, 1]);
        let found = only(&all, CODE, Severity::Warning);
        assert_eq!(found.subject, Subject::Link { index: 6, link: 4 });
        assert!(
            found.message.contains(
                "up to 5 symbols of a codeword, first after 40 min under load; 21 codewords"
            ),
            "{}",
            found.message
        );
        assert_eq!(hour(&[0, 500, 30, 4]), []);
    }
}

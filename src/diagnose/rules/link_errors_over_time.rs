//! # What it means
//!
//! A link counted errors during hours under load, or retrained. Data is sent again, but a link with little margin fails
//! first when it becomes warmer or older.
//!
//! # What to do
//!
//! Look for Xid 74 (NVLink) and AER messages of that time. Repeat the hours: does the same link count again, and more
//! while warm? Then reseat the GPU, and its bridge, cable or riser; swap it: does the fault move?
//!
//! # How it is detected
//!
//! CRC errors, replays and uncorrected errors of NVLinks, and replays of PCIe links, are read once a minute
//! (`measurements.soak`), and divided by the bits that this run copied over the link both ways. With `k` errors in `n`
//! bits the bounds at 95% are `(sqrt(k) - 1)^2 / n` and `(sqrt(k + 1) + 1)^2 / n`. More than one error in 10^12 bits is
//! an error; fewer are a warning.
//!
//! A link that retrained is an error: a PCIe link whose generation or lanes changed between two seconds, an NVLink that
//! counted a recovery. If it first did when the GPU was warm, it is sensitive to temperature.
//!
//! # Sources
//!
//! PCI Express Base Specification (bit error rate; Recovery state); NVML, NVLink recovery counters.

use super::nvlink_ends;
use super::over_time;
use super::prelude::*;

rule! {
    "link-errors-over-time", Warning, All(judge);
    /// errors in 10^12 bits above which they are an error (PCI Express Base Specification)
    MOST: most_in_a_terabit_count = 1.0;
}

/// Bits of a petabit: facts have four decimals.
const PETA: f64 = 1e15;

/// Errors of a link, and the bits that passed it.
struct Link {
    gpu: u32,
    /// Number of the NVLink; none for the PCIe link.
    number: Option<u8>,
    errors: u64,
    minutes: usize,
    bits: f64,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let soak = over_time::soak(evidence);
    let of_gpu = |gpu: u32| {
        let errors = links(evidence, soak, gpu).into_iter().map(|link| counted(evidence, &link));
        let changed = [pcie_changed(evidence, soak, gpu), nvlinks_recovered(evidence, soak, gpu)];
        errors.chain(changed.into_iter().flatten())
    };
    soak.gpus().into_iter().flat_map(of_gpu).collect()
}

/// Returns the links of a GPU that counted errors.
fn links(evidence: &Evidence<'_>, soak: &Soak, gpu: u32) -> Vec<Link> {
    let mut counted: BTreeMap<Option<u8>, (u64, usize)> = BTreeMap::new();
    let mut add = |link, errors: u64| {
        if errors > 0 {
            let (all, minutes) = counted.entry(link).or_default();
            (*all, *minutes) = (all.saturating_add(errors), *minutes + 1);
        }
    };
    for (_, minute) in soak.of_gpu(gpu) {
        add(None, minute.replays_added.unwrap_or(0));
        for link in minute.nvlink_errors.iter().flatten() {
            let counts = [link.crc, link.replay, link.effective, link.packet];
            add(Some(link.link), counts.into_iter().fold(0, u64::saturating_add));
        }
    }
    let over_nvlink = |path: &SoakPath| {
        let pair = path.flow().pair();
        pair.is_some_and(|pair| evidence.over_nvlink(pair))
    };
    let nvlinks = evidence.snapshot.gpu(gpu).map_or(0, |gpu| {
        let links = gpu.nvlinks.known().into_iter().flatten();
        links.filter(|link| link.active.get() == Some(true)).count()
    });
    let bytes = |nvlink: bool| -> f64 {
        let own = soak.numbered().filter(|(_, path)| {
            let flow = path.flow();
            flow.within().is_none()
                && flow.gpus().any(|end| end == gpu)
                && over_nvlink(path) == nvlink
        });
        own.flat_map(|(number, _)| soak.of_path(number))
            .map(|(_, minute)| minute.bytes as f64)
            .sum()
    };
    let link = |(number, (errors, minutes)): (Option<u8>, (u64, usize))| Link {
        gpu,
        number,
        errors,
        minutes,
        bits: match number {
            Some(_) => 8.0 * bytes(true) / nvlinks.max(1) as f64,
            None => 8.0 * bytes(false),
        },
    };
    counted.into_iter().map(link).collect()
}

/// Returns the bounds of the number of errors behind this count, at 95%.
fn bounds(errors: u64) -> [f64; 2] {
    let count = errors as f64;
    [(count.sqrt() - 1.0).max(0.0).powi(2), ((count + 1.0).sqrt() + 1.0).powi(2)]
}

/// Returns the subject of a GPU's PCIe link.
fn pcie_link(evidence: &Evidence<'_>, gpu: u32) -> Subject {
    let address = evidence.snapshot.address_of(gpu);
    address.map_or(Subject::Gpu { index: gpu }, |address| Subject::PcieLink { address })
}

/// Returns a finding on links of a GPU.
fn finding(gpu: u32, subject: Subject, message: String, look: [Step; 2]) -> Finding {
    let part = || Part::of(&[gpu]);
    let plan = Plan::now(look).if_it_stays([Step::Reseat(part()), Step::Swap(part())]);
    RULE.finding(subject, message, plan).gpus(&[gpu])
}

/// Returns the finding on errors that a link counted.
fn counted(evidence: &Evidence<'_>, link: &Link) -> Finding {
    let gpu = link.gpu;
    let name = evidence.name(gpu);
    let of_gpu = || steps::gpu(gpu);
    let (subject, which, look) = match link.number {
        Some(link) => (
            Subject::Link { index: gpu, link },
            format!("NVLink {link} of {name}"),
            Step::LinkErrorsOf(of_gpu()),
        ),
        None => (
            pcie_link(evidence, gpu),
            format!("The PCIe link of {name}"),
            Step::PcieErrorsOf(of_gpu()),
        ),
    };
    let known = link.bits > 0.0;
    let [least, most] = bounds(link.errors).map(|errors| errors / link.bits);
    let per_bit = link.errors as f64 / link.bits;
    let rate = match known {
        true => format!(
            "; {per_bit:.1e} a bit ({least:.1e} to {most:.1e} at 95%), of {:.1e} bits",
            link.bits
        ),
        false => String::new(),
    };
    let errors = words::count(link.errors, "error");
    let minutes = words::count(link.minutes, "minute");
    let message = format!("{which} counted {errors} in {minutes} under load{rate}");
    let found = finding(gpu, subject, message, [look, Step::Xid]).fact("link_errors", link.errors);
    let figure = |value: f64| known.then(|| Fact::figure(value));
    let is_error = known && least * 1e12 > MOST.of(evidence);
    found.fact("errors_per_petabit", figure(per_bit * PETA)).at_if(is_error, Severity::Error)
}

/// Returns the finding on a GPU's PCIe link that changed its state.
fn pcie_changed(evidence: &Evidence<'_>, soak: &Soak, gpu: u32) -> Option<Finding> {
    let is_own =
        |event: &&SoakEvent| event.kind == EventKind::LinkChanged && event.gpu == Some(gpu);
    let changes: Vec<&SoakEvent> = soak.events.iter().filter(is_own).collect();
    let first = changes.first()?;
    let minutes = match changes.len() {
        1 => String::new(),
        many => {
            let last = over_time::after(changes[many - 1].at_s);
            format!("; it changed in {many} minutes, last after {last}")
        }
    };
    let first_after = over_time::after(first.at_s);
    let message = format!("{}, first after {first_after} under load{minutes}", first.what);
    let look = [Step::PcieErrorsOf(steps::gpu(gpu)), Step::AerLog];
    let found = finding(gpu, pcie_link(evidence, gpu), message, look);
    Some(retrained(found, soak, gpu, first.at_s))
}

/// Returns the finding on NVLinks of a GPU that recovered.
fn nvlinks_recovered(evidence: &Evidence<'_>, soak: &Soak, gpu: u32) -> Option<Finding> {
    let mut recovered: BTreeMap<u8, u64> = BTreeMap::new();
    let mut first = None;
    for (until, minute) in soak.of_gpu(gpu) {
        for link in minute.nvlink_errors.iter().flatten() {
            let count = link.recovery.saturating_add(link.failed_recovery);
            if count > 0 {
                first = first.or(Some(until));
                let all: &mut u64 = recovered.entry(link.link).or_default();
                *all = all.saturating_add(count);
            }
        }
    }
    let first = first?;
    let all = recovered.values().copied().fold(0, u64::saturating_add);
    let links: Vec<u8> = recovered.into_keys().collect();
    let (subject, which) = nvlink_ends::place(evidence, gpu, &links);
    let times = words::count(all, "time");
    let first_after = over_time::after(first);
    let message = format!("{which} retrained {times}, first after {first_after} under load");
    let errors = Step::LinkErrorsOf(steps::gpu(gpu));
    let found = finding(gpu, subject, message, [errors, Step::XidOf("74")]);
    let found = retrained(found, soak, gpu, first).fact("recoveries", all);
    Some(found.fact("links", nvlink_ends::link_numbers(&links)))
}

/// Makes a finding an error, with the time at which a link retrained first, and how warm the GPU was.
fn retrained(found: Finding, soak: &Soak, gpu: u32, first_s: f64) -> Finding {
    let mut minutes = soak.of_gpu(gpu);
    let minute = minutes.find(|(until, _)| *until >= first_s);
    let warm = minute.and_then(|(_, minute)| minute.temperature_c);
    found
        .at(Severity::Error)
        .fact("first_after", Fact::Seconds(first_s))
        .fact("first_temperature_c", warm.map(Fact::figure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::measurement::NvLinkErrorsAdded;

    /// Returns the findings after an hour in which NVLink 5 of GPU 1 counted this many CRC errors every ten minutes.
    fn errors(crc: u64) -> Vec<Finding> {
        over_time::testing::after(over_time::testing::hour(
            8,
            |_, _| 395.0,
            |gpu, minute, own| {
                if gpu == 1 && minute % 10.0 == 0.0 {
                    own.nvlink_errors = Some(vec![NvLinkErrorsAdded {
                        link: 5,
                        crc,
                        ..NvLinkErrorsAdded::default()
                    }]);
                }
            },
        ))
    }

    #[test]
    fn errors_are_given_per_bit_with_their_bounds() {
        let all = errors(1);
        let found = only(&all, "link-errors-over-time", Severity::Warning);
        assert_eq!(found.subject, Subject::Link { index: 1, link: 5 });
        // 60 minutes of 6 TB from and to the GPU, over 18 links: 3.2e14 bits, 6 errors.
        assert!(
            found.message.contains("6 errors in 6 minutes under load; 1.9e-14 a bit"),
            "{}",
            found.message
        );
        assert_advice(&RULE, &all, &["reseat", "swap"], &["link-errors", "xid"]);
        only(&errors(1000), "link-errors-over-time", Severity::Error);
    }

    #[test]
    fn bounds_contain_the_count_and_none_has_three() {
        assert_eq!(bounds(0), [0.0, 4.0]);
        let [least, most] = bounds(100);
        // Exact bounds of a Poisson count of 100 at 95%: 81.4 to 121.6.
        assert!((80.0..83.0).contains(&least) && (120.0..124.0).contains(&most), "{least} {most}");
    }

    #[test]
    fn a_link_that_flaps_after_40_minutes_is_named_with_its_time() {
        let mut soak = over_time::testing::hour(8, |_, _| 395.0, |_, _, _| ());
        for minute in [40.0, 50.0] {
            soak.events.push(SoakEvent {
                at_s: 60.0 * minute,
                kind: EventKind::LinkChanged,
                gpu: Some(2),
                path: None,
                function: None,
                xid: None,
                what: "PCIe link of GPU 2: Gen5 x16, now Gen5 x8".into(),
            });
        }
        let all = over_time::testing::after(soak);
        let found = only(&all, "link-errors-over-time", Severity::Error);
        assert!(found.message.contains("first after 40 min"), "{}", found.message);
        assert!(matches!(found.subject, Subject::PcieLink { .. }));
        assert_advice(&RULE, &all, &["reseat", "swap"], &["pcie-errors", "aer"]);
    }

    #[test]
    fn an_nvlink_that_recovers_is_named() {
        let soak = over_time::testing::hour(
            8,
            |_, _| 395.0,
            |gpu, minute, own| {
                if gpu == 6 && minute > 30.0 && minute % 10.0 == 0.0 {
                    own.nvlink_errors = Some(vec![NvLinkErrorsAdded {
                        link: 4,
                        recovery: 1,
                        ..NvLinkErrorsAdded::default()
                    }]);
                }
            },
        );
        let all = over_time::testing::after(soak);
        let found = only(&all, "link-errors-over-time", Severity::Error);
        assert_eq!(found.subject, Subject::Link { index: 6, link: 4 });
        assert!(found.message.contains("3 times, first after 40 min"), "{}", found.message);
        assert_advice(&RULE, &all, &["reseat", "swap"], &["link-errors", "xid"]);
    }
}

//! # What it means
//!
//! A link counted errors during hours under load. Each is repaired by sending again, but a link with little margin
//! fails first when it becomes warmer or older.
//!
//! # What to do
//!
//! Repeat the hours and see whether the same link counts again, and more while it is warm. Then reseat the GPU, and
//! its bridge, cable or riser if it has one; swap it to see whether the fault moves.
//!
//! # How it is detected
//!
//! CRC errors, replays and uncorrected errors of NVLinks, and replays of PCIe links, are read once a minute
//! (`measurements.soak`), and divided by the bits that this run copied over the link in both directions (a GPU's
//! pairs spread evenly over its NVLinks). With `k` errors in `n` bits the bounds at 95% are `(sqrt(k) - 1)^2 / n` and
//! `(sqrt(k + 1) + 1)^2 / n`; no error means fewer than `3 / n` a bit, and no finding. More than one error in 10^12
//! bits is more than PCI Express allows, and an error; fewer are a warning.
//!
//! # Sources
//!
//! PCI Express Base Specification. Bounds: square root transformation of a Poisson count; the rule of three for none.

use super::over_time;
use super::prelude::*;
use model::soak::{Soak, SoakPath};

const MOST: Parameter = Parameter {
    name: "most_in_a_terabit_count",
    default: 1.0,
    about: "errors in 10^12 bits above which they are an error; source: PCI Express Base Specification, bit error rate",
};

pub(crate) const RULE: Rule =
    Rule::new("link-errors-over-time", Severity::Warning, judge).with(&[MOST]);

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
    let Some(soak) = over_time::soak(evidence) else {
        return Vec::new();
    };
    let gpus = soak.gpus().into_iter();
    gpus.flat_map(|gpu| links(evidence, soak, gpu)).map(|link| finding(evidence, &link)).collect()
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
            .map(|(_, minute)| as_f64(minute.bytes))
            .sum()
    };
    let link = |(number, (errors, minutes)): (Option<u8>, (u64, usize))| Link {
        gpu,
        number,
        errors,
        minutes,
        bits: match number {
            Some(_) => 8.0 * bytes(true) / as_f64(nvlinks.max(1) as u64),
            None => 8.0 * bytes(false),
        },
    };
    counted.into_iter().map(link).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a rate needs few digits")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Returns the bounds of the number of errors behind this count, at 95%.
fn bounds(errors: u64) -> [f64; 2] {
    let count = as_f64(errors);
    [(count.sqrt() - 1.0).max(0.0).powi(2), ((count + 1.0).sqrt() + 1.0).powi(2)]
}

fn finding(evidence: &Evidence<'_>, link: &Link) -> Finding {
    let gpu = link.gpu;
    let name = words::gpu(evidence.snapshot, gpu);
    let address = evidence.snapshot.gpu(gpu).and_then(|gpu| gpu.pci.get());
    let of_gpu = || steps::gpu(gpu);
    let (subject, which, look) = match link.number {
        Some(link) => (
            Subject::Link { index: gpu, link },
            format!("NVLink {link} of {name}"),
            Step::LinkErrorsOf(of_gpu(), Listed(vec![gpu])),
        ),
        None => (
            address.map_or(Subject::Gpu { index: gpu }, |address| Subject::PcieLink { address }),
            format!("The PCIe link of {name}"),
            Step::PcieErrorsOf(of_gpu()),
        ),
    };
    let known = link.bits > 0.0;
    let [least, most] = bounds(link.errors).map(|errors| errors / link.bits);
    let per_bit = as_f64(link.errors) / link.bits;
    let rate = match known {
        true => format!(
            " in {:.1e} bits: {per_bit:.1e} a bit ({least:.1e} to {most:.1e} at 95%)",
            link.bits
        ),
        false => String::new(),
    };
    let errors = words::count(link.errors, "error");
    let minutes = words::count(link.minutes, "minute");
    let part = || Part::Gpu(of_gpu());
    let plan = Plan::now([look, Step::Xid]).if_it_stays([Step::Reseat(part()), Step::Swap(part())]);
    let message = format!("{which} counted {errors}{rate}, in {minutes}");
    let found = RULE
        .finding(subject, message, plan)
        .gpus(&[gpu])
        .fact("link_errors", link.errors)
        .fact("minutes_with_errors", link.minutes);
    let figure = |value: f64| known.then(|| Fact::figure(value));
    let is_error = known && least * 1e12 > RULE.parameter(evidence, &MOST);
    found
        .fact("petabits", figure(link.bits / PETA))
        .fact("errors_per_petabit", figure(per_bit * PETA))
        .fact("least_per_petabit", figure(least * PETA))
        .fact("most_per_petabit", figure(most * PETA))
        .at_if(is_error, Severity::Error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::measurement::NvLinkErrorsAdded;

    /// Returns the findings after an hour in which NVLink 5 of GPU 1 counted this many CRC errors every ten minutes.
    fn counted(crc: u64) -> Vec<Finding> {
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
        let all = counted(1);
        let found = only(&all, "link-errors-over-time", Severity::Warning);
        assert_eq!(found.subject, Subject::Link { index: 1, link: 5 });
        // 60 minutes of 6 TB from and to the GPU, over 18 links: 3.2e14 bits, 6 errors.
        assert!(
            found.message.contains("6 errors in 3.2e14 bits: 1.9e-14 a bit"),
            "{}",
            found.message
        );
        assert_advice(&RULE, &all, &["reseat", "swap"], &["link-errors", "xid"]);
        only(&counted(1000), "link-errors-over-time", Severity::Error);
    }

    #[test]
    fn bounds_contain_the_count_and_none_has_three() {
        assert_eq!(bounds(0), [0.0, 4.0]);
        let [least, most] = bounds(100);
        // Exact bounds of a Poisson count of 100 at 95%: 81.4 to 121.6.
        assert!((80.0..83.0).contains(&least) && (120.0..124.0).contains(&most), "{least} {most}");
    }
}

//! # What it means
//!
//! A figure cannot be, or lies above what its links could carry at their best. Its path counts as not tested: the exit
//! code is 3.
//!
//! # What to do
//!
//! Check again; if the report was saved, check if it was edited. If it stays, the driver's times or the facts of a link
//! are wrong: update the driver, see dmesg for Xid messages, compare the links in `peerscope topo --verbose` with the
//! order, and send the JSON report to the project.
//!
//! # How it is detected
//!
//! A rate, share or time is not finite, negative, or beyond anything in a machine. A copy between GPUs took less than
//! `least_latency_us`. Or a rate is more than `above_percent` above the payload rate of the narrowest link of its
//! route, at the most that both ends support; in a virtual machine only the GPUs' limits count for PCIe.
//!
//! # Sources
//!
//! A read by a kernel takes 0.54 us (GH200, nvbandwidth 0.9), a small copy 1.8 to 3.4 us over NVLink (H200, measured).

use super::prelude::*;

use model::cell::{Measurement, Subject as _};
use model::measurement::Latency;
use model::pcie::Shape;

rule! {
    "figure-impossible", Warning, All(judge), for_gaps;
    /// least time of a small copy; chosen: a fifth of the shortest read by a kernel that is known
    LEAST: least_latency_us = 0.1;
    /// how far above its links; chosen: fixed costs that are taken out are uncertain by 1 to 2
    ABOVE: above_percent = 10.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    [no_figure(evidence), above_links(evidence)].into_iter().flatten().collect()
}

/// Returns a finding on figures that nothing in a machine reaches.
fn no_figure(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let least = LEAST.of(evidence);
    let is_short =
        |cell: &&Latency| cell.cell().tested() && cell.latency_us.is_some_and(|us| us < least);
    let short: Vec<&Latency> = measurements.latency.iter().filter(is_short).collect();
    let impossible = measurements.impossible.iter();
    let figures = impossible.map(|figure| format!("{}: {}", figure.measurement, figure.why));
    let mut figures: Vec<String> = figures.collect();
    let shown = |cell: &&Latency| {
        let us = cell.latency_us.unwrap_or_default();
        format!(
            "latency, {}, {}: latency_us is {us}, and no copy is that short",
            cell.pair, cell.path
        )
    };
    figures.extend(short.iter().map(shown));
    let first = figures.first()?;
    let pairs = words::unique(short.iter().map(|cell| cell.pair));
    let flows: Vec<String> =
        words::unique(measurements.impossible.iter().map(|figure| &figure.flow))
            .into_iter()
            .cloned()
            .collect();
    let message = format!("{} that cannot be; {first}", words::count(figures.len(), "figure"));
    let find = [Step::UpdateDriver, Step::Xid, Step::SendReport];
    let plan = Plan::now([Step::CheckAgain]).if_it_stays(find);
    Some(
        RULE.on_machine(message, plan)
            .fact("figures", figures.len())
            .fact("flows", (!flows.is_empty()).then_some(flows))
            .pairs(&pairs),
    )
}

/// Returns a finding on rates above what their links carry.
fn above_links(evidence: &Evidence<'_>) -> Option<Finding> {
    let measured = evidence.peer().iter().filter(|cell| cell.ending.status == Status::Measured);
    let beyond: Vec<_> = measured
        .filter_map(|cell| Some((cell, cell.achieved_gbps?, beyond(evidence, cell)?)))
        .collect();
    let Some((cell, achieved, most)) = words::largest(&beyond, |one| one.1.0 / one.2.0) else {
        return with_host(evidence);
    };
    let pairs = words::unique(beyond.iter().map(|(cell, ..)| cell.pair));
    let twos: BTreeSet<_> = pairs.iter().map(|pair| pair.unordered()).collect();
    let subject = match twos.len() {
        1 => Subject::Pair(cell.pair),
        _ => Subject::Machine,
    };
    let of = words::count(pairs.len(), "pair");
    let what = [cell.pair.to_string(), format!("; {}", cell.setup), of];
    Some(above(subject, what, (*achieved, *most), beyond.len()).pairs(&pairs))
}

/// Returns the finding on rates, by the highest of them: what it is of, its setup, and what all are of.
fn above(
    subject: Subject,
    [highest, setup, of]: [String; 3],
    (achieved, most): (GbPerSecond, GbPerSecond),
    figures: usize,
) -> Finding {
    let message = format!(
        "{highest}: {achieved} GB/s, but the links could carry {most} GB/s at most{setup}; {} of {of} cannot be",
        words::count(figures, "figure"),
    );
    let plan = Plan::now([Step::CheckAgain, Step::EditedReport])
        .if_it_stays([Step::CompareOrdered, Step::SendReport]);
    RULE.finding(subject, message, plan)
        .fact("highest_achieved", achieved)
        .fact("possible", most)
        .fact("figures", figures)
}

/// Returns the finding on copies with the host.
fn with_host(evidence: &Evidence<'_>) -> Option<Finding> {
    let factor = 1.0 + ABOVE.of(evidence) / 100.0;
    let measured = evidence.host().iter().filter(|copy| copy.ending.status == Status::Measured);
    let beyond: Vec<_> = measured
        .filter_map(|copy| {
            let achieved = copy.achieved_gbps?;
            let now = copy.theoretical_gbps;
            if now.is_some_and(|now| achieved.0 <= now.0 * factor) {
                return None;
            }
            let most = up_to_host(evidence, &[copy.gpu])?;
            (achieved.0 > most * factor).then_some((copy, achieved, GbPerSecond(most)))
        })
        .collect();
    let (copy, achieved, most) = words::largest(&beyond, |one| one.1.0 / one.2.0)?;
    let gpus = words::unique(beyond.iter().map(|(copy, ..)| copy.gpu));
    let (subject, what) =
        (Subject::of_gpus(&gpus), [copy.title(), String::new(), words::gpus(&gpus)]);
    Some(above(subject, what, (*achieved, *most), beyond.len()).gpus(&gpus))
}

/// Returns the most that the links of a figure could carry, if the figure exceeds it.
pub(crate) fn beyond(evidence: &Evidence<'_>, cell: &PeerBandwidth) -> Option<GbPerSecond> {
    let achieved = cell.achieved_gbps?;
    let factor = 1.0 + ABOVE.of(evidence) / 100.0;
    let route = evidence.topology.route(cell.pair)?;
    // Links can carry at least their current rate, so most figures need no further check.
    if (route.theoretical(cell.setup.path)).is_some_and(|now| achieved.0 <= now.0 * factor) {
        return None;
    }
    let most = match cell.setup.path {
        Path::Direct => of_direct(evidence, route),
        Path::Staged => up_to_host(evidence, &route.pair.gpus()),
    };
    most.filter(|most| achieved.0 > most * factor).map(GbPerSecond)
}

fn of_direct(evidence: &Evidence<'_>, route: &PairRoute) -> Option<f64> {
    if matches!(route.class, LinkClass::NvLink(_)) {
        return narrowest(evidence, route.hops.iter().map(|hop| [hop.from, hop.to]));
    }
    let nvlinks = |gpu: u32| evidence.snapshot.gpu(gpu)?.nvlinks.known();
    let [one, other] = route.pair.gpus().map(nvlinks);
    let (one, other) = (one?, other?);
    if route.class == LinkClass::Unknown || (may_reach_switches(one) && may_reach_switches(other)) {
        return None;
    }
    let hops = route.hops.iter().map(|hop| [hop.from, hop.to]);
    over_pcie(evidence, &route.pair.gpus(), hops.collect())
}

/// Returns true if NVSwitches lead on from these links, or may, whatever the state of their fabric.
fn may_reach_switches(links: &[NvLink]) -> bool {
    let leads_on = |link: &NvLink| {
        link.active.get() != Some(false)
            && !matches!(link.remote.get(), Some(NvLinkRemote::Gpu | NvLinkRemote::Npu))
    };
    links.iter().any(leads_on)
}

/// Returns the most that the links between these GPUs and the host could carry; `None` if a link other than PCIe may lead there.
fn up_to_host(evidence: &Evidence<'_>, gpus: &[u32]) -> Option<f64> {
    let leads_to_processor = |gpu: &Gpu| {
        let mut links = gpu.nvlinks.known().into_iter().flatten();
        gpu.c2c.get() == Some(true)
            || links.any(|link| link.remote.get() == Some(NvLinkRemote::Npu))
    };
    let mut hops = Vec::new();
    for &gpu in gpus {
        if evidence.snapshot.gpu(gpu).is_none_or(leads_to_processor) {
            return None;
        }
        let way = evidence.topology.way_up(NodeId::Gpu(gpu));
        let of_way = way.windows(2);
        hops.extend(of_way.filter_map(|hop| <[NodeId; 2]>::try_from(hop).ok()));
    }
    over_pcie(evidence, gpus, hops)
}

fn over_pcie(evidence: &Evidence<'_>, gpus: &[u32], hops: Vec<[NodeId; 2]>) -> Option<f64> {
    if !evidence.virtual_machine() {
        return narrowest(evidence, hops.into_iter());
    }
    let own = |gpu: &u32| {
        let gpu = evidence.snapshot.gpu(*gpu)?;
        let generation = gpu.pcie_generation_device_max.get().or(gpu.pcie_generation_max.get());
        let width = gpu.pcie_width_max.get();
        pcie::rate(Shape { generation, width })
    };
    let each: Option<Vec<f64>> = gpus.iter().map(own).collect();
    each?.into_iter().reduce(f64::min)
}

/// Returns the lowest of the maximum rates of the links between these nodes; `None` if none is known.
fn narrowest(evidence: &Evidence<'_>, hops: impl Iterator<Item = [NodeId; 2]>) -> Option<f64> {
    let most = |[from, to]: [NodeId; 2]| {
        let joins = |one, other| (one, other) == (from, to) || (one, other) == (to, from);
        let mut links = evidence.topology.links.iter();
        let link = links.find(|link| joins(link.upper, link.lower))?;
        let rates = link.possible_gbps.into_iter().chain(link.capacity_gbps);
        rates.map(|rate| rate.0).reduce(f64::max)
    };
    hops.filter_map(most).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::latency;
    use crate::testing::prelude::*;
    use model::impossible;

    #[test]
    fn a_rate_that_is_no_number_is_set_aside_and_makes_the_run_inconclusive() {
        let machine = h200_vm(3);
        for rate in [f64::INFINITY, f64::NAN, -3.0, 1e9] {
            let mut measurements = measured(&machine, 0.88);
            measurements.peer[2].achieved_gbps = Some(GbPerSecond(rate));
            impossible::set_aside(&mut measurements);
            assert_eq!(
                (measurements.peer[2].achieved_gbps, measurements.peer[2].ending.status),
                (None, Status::Skipped)
            );
            let found = findings(&machine, Some(&measurements));
            let own = found
                .iter()
                .find(|finding| finding.code == RULE.id)
                .unwrap_or_else(|| panic!("{rate}: {found:?}"));
            assert!(own.message.contains("achieved_gbps is"), "{}", own.message);
            assert_eq!(exit(&found, Some(&measurements)), 3, "{rate}");
        }
    }

    #[test]
    fn a_latency_that_no_copy_has_is_no_sign_of_health_and_a_short_one_is() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        measurements.latency =
            vec![latency(0, 1, Path::Direct, 0.004), latency(1, 0, Path::Direct, 1.2)];
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "figure-impossible", Severity::Warning);
        assert!(
            own.message.contains("GPU 0 → GPU 1") && own.message.contains("0.004"),
            "{}",
            own.message
        );
        assert_eq!(exit(&found, Some(&measurements)), 3);
        let may = ["update-driver", "xid"];
        assert_advice(&RULE, &found, &["send-report"], &may);
        measurements.latency.remove(0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
}

//! Completes what was measured, once, before anything is judged.

use super::settings::Settings;
use super::{collectives, disturbed, expected, expected_host, expected_load, models};
use model::collective::AllReduce;
use model::impossible;
use model::measurement::Measurements;
use model::report::Report;
use model::snapshot::Snapshot;
use model::topology::Topology;
use topology::{healthy, host, load, refute};

/// Writes beside every figure what it is compared with, and sets aside the figures that say nothing. No other code changes
/// a cell after it was measured. Calling it twice changes nothing.
///
/// The order matters:
///
/// 1. Figures correct the readings of links. Theory follows from the corrected links.
/// 2. Sums that the graph forbids, and values that cannot be, are set aside before others are derived from them.
/// 3. Figures that another program disturbed are marked before collectives, which only use sound ones.
/// 4. What healthy machines reach comes last, from the corrected graph without its losses.
pub fn complete(report: &mut Report, settings: &Settings) {
    let Report { snapshot, topology, measurements: Some(measurements), .. } = report else {
        return;
    };
    figures(snapshot, topology, measurements, settings);
}

/// Does the same to the figures so far of a run that has no report yet.
pub fn figures(
    snapshot: &Snapshot,
    topology: &mut Topology,
    measurements: &mut Measurements,
    settings: &Settings,
) {
    refute::readings(snapshot, topology, measurements);
    host::fill(snapshot, topology, &mut measurements.host);
    load::refuse(snapshot, topology, measurements);
    load::fill(snapshot, topology, &mut measurements.load);
    impossible::set_aside(measurements);
    disturbed::mark(measurements, snapshot, topology);
    let in_switches = collectives::switches_sum(snapshot, topology);
    let all_reduce = collectives::of(measurements).into_iter();
    measurements.all_reduce = all_reduce.map(|one| AllReduce { in_switches, ..one }).collect();

    let (is, shares) = ((snapshot, &*topology), &settings.shares);
    let healed = healthy::of(is.0, is.1, models::switched_links);
    let healthy = healed.as_ref().map_or(is, |(snapshot, topology)| (snapshot, topology));
    expected::fill(&mut measurements.peer, healthy, shares);
    expected_host::fill(&mut measurements.host, healthy, shares);
    expected_load::fill(measurements, is, healthy, shares);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cell;
    use model::load::{LoadFlow, LoadPattern, Pattern};
    use model::placement::{Pair, Path};
    use model::reading::Reading;
    use model::report::{SCHEMA, Timing, Tool, Verdict};
    use model::request::Request;
    use model::rounding::four_places;
    use model::snapshot::NvLinkRemote;
    use model::testing::{
        function_mut, h200_vm, host_copy, lanes, nvlinks, two_sockets, two_sockets_with_narrow_gpu,
    };
    use model::units::{Bytes, GbPerSecond};
    use serde_json::Value;

    /// Returns a report of this machine with these rates, GB/s, alone and of one GPU to another at once.
    fn report(snapshot: Snapshot, rates: &[((u32, u32), f64)]) -> Report {
        let pair = |(source, destination)| Pair { source, destination };
        let peer = rates.iter().map(|(of, rate)| cell(pair(*of), Path::Direct, *rate)).collect();
        let host = snapshot.gpus.iter().map(|gpu| host_copy(gpu.index, 6.7)).collect();
        let flow = |(of, rate): &((u32, u32), f64)| LoadFlow {
            achieved_gbps: Some(GbPerSecond(*rate)),
            ..LoadFlow::of(pair(*of).into())
        };
        let flows: Vec<LoadFlow> = rates.iter().take(1).map(flow).collect();
        let load = LoadPattern {
            achieved_gbps: flows[0].achieved_gbps,
            ..LoadPattern::blank(Pattern::ThroughOneHop, String::new(), flows, Bytes(1 << 30))
        };
        let measurements = Measurements { peer, host, load: vec![load], ..Measurements::default() };
        let mut report = Report {
            schema: SCHEMA.into(),
            tool: Tool { name: String::new(), version: String::new() },
            started_at: String::new(),
            machine: String::new(),
            request: Request::default(),
            read_from: None,
            topology: topology::build(&snapshot),
            snapshot,
            measurements: Some(measurements),
            watched: None,
            findings: Vec::new(),
            changes: None,
            advice: Vec::new(),
            verdict: Verdict::default(),
            timing: Timing::default(),
        };
        complete(&mut report, &Settings::default());
        let once = report.clone();
        complete(&mut report, &Settings::default());
        assert_eq!(report, once, "twice is once");
        // Nor does it if the report was written in between.
        let written = |report: &Report| rounded(serde_json::to_value(report).unwrap());
        let mut read: Report = serde_json::from_value(written(&once)).unwrap();
        complete(&mut read, &Settings::default());
        assert_eq!(written(&read), written(&once));
        report
    }

    /// Returns a report with numbers as they are written.
    fn rounded(value: Value) -> Value {
        match value {
            Value::Number(number) if number.is_f64() => {
                number.as_f64().map(four_places).map_or(Value::Null, Value::from)
            }
            Value::Array(all) => all.into_iter().map(rounded).collect(),
            Value::Object(all) => all.into_iter().map(|(key, of)| (key, rounded(of))).collect(),
            other => other,
        }
    }

    /// Returns the shares of the healthy rate, per cent: of copies between GPUs, and of the load of the first of them.
    fn shares(report: &Report) -> (Vec<Option<f64>>, Option<f64>) {
        let measurements = report.measurements.as_ref().unwrap();
        let shares = measurements.peer.iter().map(|cell| cell.healthy_percent.map(f64::round));
        (shares.collect(), measurements.load[0].healthy_percent.map(f64::round))
    }

    #[test]
    fn copies_behind_a_narrow_link_are_compared_with_those_behind_a_whole_one() {
        let narrow = report(two_sockets_with_narrow_gpu(), &[((3, 2), 6.6), ((0, 1), 26.46)]);
        assert_eq!(shares(&narrow), (vec![Some(25.0), Some(100.0)], Some(25.0)));
        let measurements = narrow.measurements.as_ref().unwrap();
        let of_host: Vec<_> =
            measurements.host.iter().map(|copy| copy.healthy_percent.unwrap().round()).collect();
        assert_eq!(of_host[3], 25.0, "{of_host:?}");
        let (cell, load) = (&measurements.peer[0], &measurements.load[0]);
        assert!((cell.percent.unwrap() - 84.0).abs() < 1.0, "what the link carries as it is stays");
        assert!((load.expected_percent.unwrap() - 100.0).abs() < 1.0, "{load:?}");
    }

    #[test]
    fn a_link_that_is_narrow_by_design_or_slow_at_rest_is_whole() {
        let mut design = two_sockets();
        function_mut(&mut design, "0000:02:00.0").width_max = lanes(4);
        for end in ["0000:02:00.0", "0000:03:00.0"] {
            function_mut(&mut design, end).width = lanes(4);
        }
        // Links of GPUs read Gen1 there.
        for (machine, rate) in [(design, 6.62), (two_sockets(), 26.46)] {
            assert_eq!(shares(&report(machine, &[((0, 1), rate)])).0, [Some(100.0)]);
        }
    }

    #[test]
    fn gpus_with_nvlinks_down_are_compared_with_all_links_of_the_model() {
        let mut machine = h200_vm(4);
        crate::tests::with_links_down(&mut machine, &[1], 3..5);
        let rates = [((0, 1), 352.0), ((0, 2), 396.0)];
        assert_eq!(shares(&report(machine, &rates)), (vec![Some(89.0), Some(100.0)], Some(89.0)));
        // All GPUs lack as many: only the model says so, and in a virtual machine the host decides.
        let mut machine = h200_vm(4);
        crate::tests::with_links_down(&mut machine, &[0, 1, 2, 3], 3..5);
        assert_eq!(shares(&report(machine.clone(), &rates[..1])).0, [Some(102.0)]);
        machine.host.virtual_machine = Reading::Known(false);
        assert_eq!(shares(&report(machine, &rates[..1])).0, [Some(89.0)]);
    }

    #[test]
    fn gpus_that_share_no_switch_get_the_links_back_that_both_ends_miss() {
        let mut machine = two_sockets();
        let addresses = ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"];
        for (index, gpu) in machine.gpus.iter_mut().enumerate() {
            let others = (0..4).filter(|other| *other != index);
            let to = |other: usize| {
                let mut links = nvlinks(4, "3.0", 25781, NvLinkRemote::Gpu, Some(addresses[other]));
                if [(1, 3), (3, 1)].contains(&(index, other)) {
                    links[0].active = Reading::Known(false);
                    links[0].remote_pci = Reading::unsupported();
                }
                links
            };
            gpu.nvlinks = Reading::Known(others.flat_map(to).collect());
        }
        let rates = [((1, 3), 69.0), ((0, 1), 92.0)];
        assert_eq!(shares(&report(machine, &rates)), (vec![Some(75.0), Some(100.0)], Some(75.0)));
    }
}

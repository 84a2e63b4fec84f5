//! Sums up what the input shows, healthy facts included.

use super::prelude::*;
use model::host::HostDirection;

/// Most pairs that are named of one kind.
const NAMED: usize = 6;

/// Returns a clause for each kind of fact and figure.
pub(super) fn shown(evidence: &Evidence<'_>) -> Vec<String> {
    let snapshot = evidence.snapshot;
    let gpus = &snapshot.gpus;
    let mut shown = Vec::new();
    let mig = words::grouped(gpus.iter().filter_map(|gpu| Some((gpu.mig.get()?, gpu.index))));
    shown.extend(mig.iter().map(|(on, gpus)| {
        format!("MIG {} for {}", if *on { "on" } else { "off" }, evidence.named(gpus))
    }));
    let all: Vec<u32> = gpus.iter().map(|gpu| gpu.index).collect();
    let all = Pair::ordered(&all);
    let asked = all.iter().filter_map(|pair| {
        let said = evidence.measured().driver.said_of(*pair).and_then(|said| said.possible);
        let by_nvml = || Some(*snapshot.pair(*pair)?.p2p_read.known()? == P2pStatus::Ok);
        let word = if said.or_else(by_nvml)? { "peer access" } else { "no peer access" };
        Some((word.to_owned(), *pair))
    });
    shown.extend(by_pair(&words::grouped(asked), all.len()));
    shown.extend(rates(evidence));
    shown
}

/// Returns pairs by what they have in common, both directions together.
fn by_pair(groups: &BTreeMap<String, Vec<Pair>>, all: usize) -> Vec<String> {
    let named = |(what, pairs): (&String, &Vec<Pair>)| {
        let mut names: Vec<String> = Vec::new();
        for pair in pairs {
            let (one, other) = (pair.source, pair.destination);
            match pairs.contains(&pair.reversed()) {
                true if one > other => {}
                true => names.push(format!("{one}↔{other}")),
                false => names.push(format!("{one}→{other}")),
            }
        }
        match pairs.len() {
            number if number == all && all > 1 => format!("{what} between all GPUs"),
            _ => format!("{what} for {}", words::first(&names, NAMED)),
        }
    };
    // Access comes before none.
    groups.iter().rev().map(named).collect()
}

/// Returns the rates between GPUs and with the host, and the PCIe links that carry as much.
fn rates(evidence: &Evidence<'_>) -> Vec<String> {
    let measured = evidence.measured();
    let peer = measured.peer.iter().filter_map(|cell| {
        let way = match (cell.setup.direction, cell.setup.path) {
            (_, Path::Staged) => THROUGH_HOST,
            (Direction::BothWays, _) => BOTH,
            _ => BETWEEN,
        };
        Some((way, cell.achieved_gbps?.0))
    });
    let host = measured.host.iter().filter_map(|copy| {
        let way = match copy.way().direction {
            HostDirection::ToDevice => "to GPUs",
            HostDirection::ToHost => "to the host",
            HostDirection::BothWays => "with the host both ways",
        };
        Some((way, copy.rate()?.0))
    });
    let rates = words::grouped(peer.chain(host).filter(|(_, rate)| rate.is_finite()));
    let best = |way| rates.get(way).into_iter().flatten().copied().fold(0.0, f64::max);
    let is_wider = best(THROUGH_HOST) > best(BETWEEN);
    let named = |(way, rates): (&&str, &Vec<f64>)| {
        let most = rates.iter().copied().fold(0.0, f64::max);
        let least = rates.iter().copied().fold(most, f64::min);
        let ends = words::unique([least, most].map(|rate| format!("{rate:.1}")));
        let range =
            if ends.len() == 1 { ends.concat() } else { format!("{least:.1} to {most:.1}") };
        // A rate of both ways, or one below that through host memory, does not show the width of a link.
        let tells = *way != BOTH && !(*way == BETWEEN && is_wider);
        let carriers = super::pasted_rates::carriers(most, 5).filter(|_| tells);
        let little = if most < LITTLE && carriers.is_some() { ", little for a GPU" } else { "" };
        format!("{range} GB/s {way}{}", words::in_brackets(carriers.map(|by| by + little)))
    };
    rates.iter().map(named).collect()
}

const BETWEEN: &str = "between GPUs";
const BOTH: &str = "each way of both at once";
const THROUGH_HOST: &str = "through host memory";

/// Rate below which a copy is slow for a GPU in a slot of its width, GB/s; chosen: Gen3 x16 carries 12.
const LITTLE: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::cell;
    use crate::testing::prelude::*;
    use ::model::topology::Topology;

    #[test]
    fn what_is_good_is_said_with_its_numbers() {
        let mut machine = empty();
        for index in 0..3 {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            gpu.mig = Reading::Known(false);
            machine.gpus.push(gpu);
        }
        for pair in Pair::ordered(&[0, 1, 2]) {
            let mut said = ::model::snapshot::GpuPair::unread(
                pair.source,
                pair.destination,
                &Unknown::Unsupported,
            );
            let is_near = !pair.touches(2);
            said.p2p_read =
                Reading::Known(if is_near { P2pStatus::Ok } else { P2pStatus::NotSupported });
            machine.pairs.push(said);
        }
        let pair = Pair { source: 0, destination: 1 };
        let peer = vec![cell(pair, Path::Direct, 6.3), cell(pair.reversed(), Path::Direct, 6.2)];
        let measured = Measurements { peer, ..Measurements::default() };
        let (topology, settings) = (Topology::default(), Settings::default());
        let of = |machine, measured| {
            shown(&crate::testing::without_request(machine, &topology, measured, &settings))
        };
        assert_eq!(
            of(&machine, Some(&measured)),
            [
                "MIG off for all GPUs",
                "peer access for 0↔1",
                "no peer access for 0↔2, 1↔2",
                "6.2 to 6.3 GB/s between GPUs (what Gen4 x4 or Gen3 x8 carries, little for a GPU)"
            ]
        );
        assert_eq!(of(&empty(), None), [""; 0]);
    }
}

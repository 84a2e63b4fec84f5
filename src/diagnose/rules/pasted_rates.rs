//! # What it means
//!
//! Rates that other tools printed tell which links carried them.
//!
//! # What to do
//!
//! Slow GPUs: look at their links and those of the ports above them while copies run (`lspci -vv`, LnkSta), at the slot
//! and at a riser. Slow between groups, or both ways: look at ACS and the IOMMU; the way between processors may carry no
//! more.
//!
//! # How it is detected
//!
//! In the output of other tools only, for GPUs of whose PCIe links it does not show all.
//!
//! - The best rate of a GPU, with any other or with the host, lies below the rate of its model's slot, or of other GPUs of
//!   the model, by more than the parameter, and is what a link of fewer lanes or an older generation carries. A narrow end
//!   of a pair slows both.
//! - A GPU has fewer lanes than others of its model, where the input does not say how many its link can have.
//! - No pair of modules that NVLinks join, or no collective over them, comes near the rate of their NVLinks.
//! - Both ways together bring no more than one way: the directions share one way.
//! - Pairs within groups of GPUs are fast, and all pairs between the groups slow alike: no GPU is slow.
//!
//! # Sources
//!
//! Rates of links: 66 to 92% of the theoretical rate, from the figures of docs/dev/facts.md.

use super::bandwidth;
use super::prelude::*;
use crate::models;
use ::topology::capacity;
use model::pasted::Collective;
use model::units::{Lanes, MIB};

rule! {
    "pasted-rates", Warning, All(judge);
    /// how far below its slot or its siblings the best rate of a GPU, or a pair between groups, may be; chosen: half the
    /// lanes give 50
    BELOW: below_percent = 40.0;
}

/// Shares of the theoretical rate that copies over a PCIe link reach, per cent, and the usual one of a whole slot.
const REACHED: std::ops::RangeInclusive<f64> = 66.0..=92.0;
const USUAL: f64 = 83.0;
/// Rates that belong together, parts of the highest; chosen.
const NEAR: f64 = 0.9;
/// The most that a link of 16 lanes carries: Gen5, GB/s. More is NVLink's.
const MOST: f64 = 63.1;

/// Messages from which a collective shows bandwidth; chosen.
const LARGE: Bytes = Bytes(64 * MIB);

type Rates = BTreeMap<Pair, f64>;

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let rates = |path| -> Rates {
        let cells = bandwidth::sound(evidence, path).into_values();
        cells.filter_map(|cell| Some((cell.pair, cell.achieved_gbps?.0))).collect()
    };
    let (direct, staged) = (rates(Path::Direct), rates(Path::Staged));
    let left = 1.0 - BELOW.of(evidence) / 100.0;
    let not_joined = without_nvlink(evidence, &direct, left);
    if evidence.read_from.is_none() {
        return not_joined;
    }
    let mut found = narrow(evidence);
    if !not_joined.is_empty() || evidence.measurements.is_none() {
        return found.into_iter().chain(not_joined).collect();
    }
    found.extend(slow_gpus(evidence, &direct, &staged, left));
    found.extend(both_ways(evidence, &direct));
    // Reads show groups as well.
    let reads = evidence.measured().peer.iter().filter(|cell| cell.setup.is_plain());
    let reads = || reads.filter_map(|cell| Some((cell.pair, cell.achieved_gbps?.0))).collect();
    let direct = if direct.is_empty() { reads() } else { direct };
    found.extend(groups(&direct, &staged, left).or_else(|| groups(&direct, &staged, NEAR)));
    found
}

/// Returns findings on GPUs with fewer lanes than others of their model have, where the input does not say how many are possible.
fn narrow(evidence: &Evidence<'_>) -> Vec<Finding> {
    let messages = evidence.read_from.into_iter().flat_map(|read| &read.explained);
    let told: Vec<_> = messages.flat_map(|one| &one.lines).filter_map(|line| line.pci).collect();
    let is_told = |gpu: &Gpu| gpu.pci.get().is_some_and(|pci| told.contains(&pci));
    let gpus = evidence.snapshot.gpus.iter();
    let gpus = gpus.filter(|gpu| gpu.pcie_width_max.known().is_none() && !is_told(gpu));
    let models = words::grouped(gpus.map(|gpu| (gpu.name.known(), gpu)));
    let of_model = |gpus: &Vec<&Gpu>| {
        let widths = gpus.iter().filter_map(|gpu| Some((gpu.pcie_width.get()?, gpu.index)));
        let widths: BTreeMap<Lanes, Vec<u32>> = words::grouped(widths);
        let most = widths.keys().next_back().copied();
        let fewer = widths.into_iter().filter(|(width, _)| Some(*width) < most);
        let finding = |(width, gpus): (Lanes, Vec<u32>)| {
            let others = words::after(", and others of its kind have x", most);
            let message =
                format!("The PCIe link of {} has x{width}{others}", evidence.named(&gpus));
            RULE.on_gpus(&gpus, message, [Step::CheckUnderLoad, Step::ChipsetSlot])
        };
        fewer.map(finding).collect::<Vec<_>>()
    };
    models.values().flat_map(of_model).collect()
}

/// Returns findings on modules that NVLinks join, and whose rates are all far below those.
fn without_nvlink(evidence: &Evidence<'_>, direct: &Rates, left: f64) -> Vec<Finding> {
    let names = evidence.snapshot.gpus.iter().map(|gpu| gpu.name.known());
    let (Some(read), [Some(model)]) = (evidence.read_from, &words::unique(names)[..]) else {
        return Vec::new();
    };
    let Some(joined) = models::joined_gbps(model) else {
        return Vec::new();
    };
    // Boards of four have no switches: a third of the links leads to each other GPU.
    let joined = if evidence.snapshot.gpus.len() <= 4 { joined / 3.0 } else { joined };
    let finding = |what: String| {
        let message =
            format!("{what}; the NVLinks of {model} carry {joined:.0}: they are not in use");
        RULE.on_machine(message, [Step::LinkStates, Step::FabricManager, Step::PeerToPeerWords])
    };
    let best = most(direct.values().copied());
    let slow = (best > 0.0 && best < joined * left).then(|| {
        finding(format!("No pair copies directly at more than {best:.1} GB/s")).at(Severity::Error)
    });
    let is_slow = |one: &&Collective| {
        one.gpus > 1 && one.bytes >= LARGE && one.bus_gbps.0 < joined * left / 2.0
    };
    let collective = read.collectives.iter().find(is_slow).map(|one| {
        finding(format!(
            "NCCL reaches a bus bandwidth of {} GB/s over {} GPUs",
            one.bus_gbps, one.gpus
        ))
    });
    slow.into_iter().chain(collective).collect()
}

/// Returns the links up to a generation that carry this rate: `what Gen4 x4 or Gen3 x8 carries`.
pub(super) fn carriers(rate: f64, newest: u8) -> Option<String> {
    let newer = (3..=newest).rev();
    let shapes = newer.flat_map(|new| [1, 4, 8, 16].map(|lanes| format!("Gen{new} x{lanes}")));
    let carries = |shape: &String| {
        let link = shape.parse().ok();
        link.is_some_and(|link| REACHED.contains(&(100.0 * rate / capacity::pcie(link).gbps)))
    };
    let names: Vec<String> = shapes.filter(carries).collect();
    (!names.is_empty()).then(|| format!("what {} carries", names.join(" or ")))
}

fn most(rates: impl IntoIterator<Item = f64>) -> f64 {
    rates.into_iter().fold(0.0, f64::max)
}

/// Returns a finding for each model with GPUs all of whose rates are those of a lesser link.
fn slow_gpus(evidence: &Evidence<'_>, direct: &Rates, staged: &Rates, left: f64) -> Vec<Finding> {
    let snapshot = evidence.snapshot;
    let of = |gpu: u32, rates: &Rates| {
        most(rates.iter().filter(|(pair, _)| pair.touches(gpu)).map(|(_, rate)| *rate))
    };
    let shown = |gpu: u32| {
        let host = evidence.measured().host.iter().filter(|copy| copy.gpu == gpu);
        most(host.filter_map(|copy| Some(copy.rate()?.0))).max(of(gpu, direct))
    };
    // Copies through host memory show what a link carries at least, and not at most.
    let best = |gpu: u32| shown(gpu).max(of(gpu, staged));
    let models = words::grouped(snapshot.gpus.iter().map(|gpu| (gpu.name.known(), gpu)));
    let finding = |(model, gpus): (&Option<&String>, &Vec<&Gpu>)| {
        let slot = model.and_then(|model| models::slot(model));
        let of_slot = slot.map_or(0.0, |slot| capacity::pcie(slot).gbps * USUAL / 100.0);
        let others = most(gpus.iter().map(|gpu| best(gpu.index)).filter(|rate| *rate < MOST));
        let is_slow = |gpu: &&&Gpu| {
            let is_slow = best(gpu.index) < others.max(of_slot) * left && shown(gpu.index) > 0.0;
            is_slow && gpu.pcie_width.known().is_none() && snapshot.pci.is_empty()
        };
        let slow: Vec<u32> = gpus.iter().filter(is_slow).map(|gpu| gpu.index).collect();
        let rate = most(slow.iter().map(|gpu| best(*gpu)));
        let newest = slot.map_or(5, |slot| slot.generation.number());
        let normal = match slot {
            Some(slot) => format!("the slot of {} ({slot}) gives {of_slot:.0}", (*model)?),
            None => format!("other GPUs reach {others:.1}"),
        };
        let message = format!(
            "At most {rate:.1} GB/s for {}, {}; {normal}{}",
            evidence.named(&slow),
            carriers(rate, newest)?,
            if slow.len() > 1 { "; one narrow end slows a pair" } else { "" },
        );
        Some(RULE.on_gpus(&slow, message, [Step::CheckUnderLoad, Step::ChipsetSlot]))
    };
    models.iter().filter_map(finding).collect()
}

/// Returns a finding on pairs whose two directions share one way.
fn both_ways(evidence: &Evidence<'_>, direct: &Rates) -> Option<Finding> {
    // The figure is half of both directions.
    let gain = |cell: &PeerBandwidth| {
        let slower = direct.get(&cell.pair)?.min(*direct.get(&cell.pair.reversed())?);
        Some(2.0 * cell.achieved_gbps?.0 / slower)
    };
    let is_shared = |cell: &&PeerBandwidth| {
        let setup = cell.setup;
        (setup.direction, setup.path) == (Direction::BothWays, Path::Direct)
            && cell.expected_gbps.is_none()
            && gain(cell).is_some_and(|gain| gain < 1.25)
    };
    let shared: Vec<_> = evidence.measured().peer.iter().filter(is_shared).collect();
    let pairs: Vec<Pair> = shared.iter().map(|cell| cell.pair).collect();
    let first = pairs.first()?;
    let one = direct.get(first)?.min(*direct.get(&first.reversed())?);
    let message = format!(
        "Both ways together bring {:.1} GB/s {}, one way {one:.1}: the directions share one way{}",
        one * gain(shared.first()?)?,
        words::pairs(&pairs),
        words::after("; one way is ", carriers(one, 5)),
    );
    Some(RULE.on_machine(message, [Step::LookAtIommu]).pairs(&pairs))
}

/// Returns a finding on groups of GPUs with slow ways between them.
fn groups(direct: &Rates, staged: &Rates, left: f64) -> Option<Finding> {
    let cut = most(direct.values().copied()) * left;
    let gpus = words::unique(direct.keys().map(|pair| pair.source));
    let near = |gpu: u32| -> Vec<u32> {
        let rate = |other| direct.get(&Pair { source: gpu, destination: other });
        let is_near = |other: &u32| *other == gpu || rate(*other).is_some_and(|rate| *rate > cut);
        gpus.iter().copied().filter(is_near).collect()
    };
    let groups = words::unique(gpus.iter().map(|gpu| near(*gpu)));
    let is_whole = |all: &Vec<u32>| all.len() > 1 && all.iter().all(|gpu| near(*gpu) == *all);
    if groups.len() < 2 || !groups.iter().all(is_whole) {
        return None;
    }
    let (within, between): (Rates, Rates) = direct.iter().partition(|(_, rate)| **rate > cut);
    let pairs: Vec<Pair> = between.keys().copied().collect();
    let slow = most(between.into_values());
    let host = most(pairs.iter().filter_map(|pair| staged.get(pair)).copied());
    let names: Vec<String> = groups.iter().map(|group| words::gpus(group)).collect();
    let message = format!(
        "Within {}: {:.1} GB/s, between them {slow:.1}{}, all pairs alike: it is the way between them, not a GPU",
        names.join(" | "),
        most(within.into_values()),
        words::in_brackets((host > slow).then(|| format!("{host:.1} through host memory"))),
    );
    let steps = match host > slow {
        _ if slow > most(direct.values().copied()) * 0.6 => vec![Step::Nothing(Fine::Always)],
        true => vec![Step::NearPeersOnly("PXB"), Step::LookAtIommu],
        false => vec![Step::LookAtIommu, Step::NearSlots],
    };
    Some(RULE.on_machine(message, steps).pairs(&pairs).at(Severity::Info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::cell;
    use crate::testing::prelude::*;
    use ::model::flow::Setup;
    use ::model::pasted::Pasted;
    use ::model::topology::Topology;

    /// Returns the findings on these rates, one way direct, one way staged and both ways in all; 0 is no figure.
    fn found(name: &str, gpus: u32, rates: impl Fn(Pair) -> [f64; 3]) -> Vec<Finding> {
        let mut machine = empty();
        for index in 0..gpus {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            gpu.name = Reading::Known(name.into());
            machine.gpus.push(gpu);
        }
        let gpus: Vec<u32> = (0..gpus).collect();
        let mut measured = Measurements::default();
        for pair in Pair::ordered(&gpus) {
            let [direct, staged, both] = rates(pair);
            let way = Setup::REFERENCE.with_direction(Direction::BothWays);
            let both = PeerBandwidth { setup: way, ..cell(pair, Path::Direct, both / 2.0) };
            let cells = [cell(pair, Path::Direct, direct), cell(pair, Path::Staged, staged), both];
            measured.peer.extend(
                cells.into_iter().filter(|cell| cell.achieved_gbps != Some(GbPerSecond(0.0))),
            );
        }
        let (pasted, topology, settings) =
            (Pasted::default(), Topology::default(), Settings::default());
        RULE.judge(&Evidence {
            read_from: Some(&pasted),
            ..crate::testing::without_request(&machine, &topology, Some(&measured), &settings)
        })
    }

    #[test]
    fn a_rate_is_called_by_the_links_that_carry_it() {
        assert_eq!(carriers(6.5, 4).unwrap(), "what Gen4 x4 or Gen3 x8 carries");
        assert_eq!(carriers(26.2, 4).unwrap(), "what Gen4 x16 carries");
        assert_eq!(carriers(0.8, 3).unwrap(), "what Gen3 x1 carries");
        assert_eq!(carriers(8.0, 5), None);
        let slow = found("NVIDIA GeForce RTX 4090", 2, |_| [6.4, 6.2, 12.5]);
        let one = only(&slow, "pasted-rates", Severity::Warning);
        assert!(
            one.message.contains("At most 6.4 GB/s for all GPUs, what Gen4 x4"),
            "{}",
            one.message
        );
        assert!(one.message.contains("(Gen4 x16) gives 26"), "{}", one.message);
        assert_advice(&RULE, &slow, &["check-under-load", "chipset-slot"], &[]);
        // Copies through host memory show that the link is wide.
        assert_eq!(found("NVIDIA GeForce RTX 4090", 2, |_| [6.4, 20.0, 12.5]), []);
        let odd =
            found("NVIDIA L40", 4, |pair| [if pair.touches(2) { 6.5 } else { 26.0 }, 0.0, 0.0]);
        assert!(
            only(&odd, "pasted-rates", Severity::Warning)
                .message
                .contains("for GPU 2, what Gen4 x4")
        );
    }

    #[test]
    fn modules_whose_pairs_are_far_below_their_nvlinks_do_not_use_them() {
        let of = |name, gpus, rate| found(name, gpus, |_| [rate, 0.0, 0.0]);
        let hgx = "NVIDIA H100 80GB HBM3";
        let slow = of(hgx, 8, 41.0);
        let one = only(&slow, "pasted-rates", Severity::Error);
        assert!(one.message.contains("more than 41.0 GB/s") && one.message.contains("carry 396"));
        assert_advice(&RULE, &slow, &["link-state", "fabric-manager", "compare-places"], &[]);
        assert_eq!(of(hgx, 8, 390.0), []);
        // Boards of four lead a third of the links to each other GPU.
        assert_eq!(of("NVIDIA A100-SXM4-80GB", 4, 93.0), []);
        assert_eq!(of(hgx, 4, 131.0), []);
        only(&of("NVIDIA A100-SXM4-80GB", 4, 20.0), "pasted-rates", Severity::Error);
    }

    #[test]
    fn lanes_are_those_of_other_gpus_if_nothing_else_says_how_many() {
        let mut machine = empty();
        for (index, lanes) in [(0, 16_u8), (1, 8), (2, 16)] {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            gpu.pcie_width = Reading::Known(Lanes::try_from(lanes).unwrap());
            machine.gpus.push(gpu);
        }
        let (pasted, topology, settings) =
            (Pasted::default(), Topology::default(), Settings::default());
        let judge = |machine: &Snapshot| {
            RULE.judge(&Evidence {
                read_from: Some(&pasted),
                ..crate::testing::without_request(machine, &topology, None, &settings)
            })
        };
        let found = judge(&machine);
        let one = only(&found, "pasted-rates", Severity::Warning);
        assert_eq!(one.message, "The PCIe link of GPU 1 has x8, and others of its kind have x16");
        assert_advice(&RULE, &found, &["check-under-load", "chipset-slot"], &[]);
        machine.gpus[1].pcie_width_max = Reading::Known(Lanes::try_from(8_u8).unwrap());
        assert_eq!(judge(&machine), []);
    }

    #[test]
    fn one_way_is_that_of_the_slower_direction() {
        let rates = |pair: Pair| [if pair.source == 0 { 12.3 } else { 2.1 }, 42.0, 4.1];
        let found = found("Graphics Device", 2, rates);
        assert!(found.iter().all(|one| !one.message.contains("share one way")), "{found:?}");
    }

    #[test]
    fn a_way_that_both_directions_share_and_a_way_between_groups_are_named() {
        let shared = found("Graphics Device", 2, |_| [11.0, 0.0, 11.3]);
        let one = only(&shared, "pasted-rates", Severity::Warning);
        assert!(one.message.contains("Both ways together bring 11.3 GB/s"), "{}", one.message);
        assert_advice(&RULE, &shared, &["look-at-iommu"], &[]);
        let is_far = |pair: Pair| pair.source / 2 != pair.destination / 2;
        let rates = |pair| if is_far(pair) { [9.0, 16.0, 0.0] } else { [26.0, 17.0, 0.0] };
        let groups = found("NVIDIA A40", 4, rates);
        let one = only(&groups, "pasted-rates", Severity::Info);
        assert!(
            one.message
                .contains("Within GPU 0 and GPU 1 | GPU 2 and GPU 3: 26.0 GB/s, between them 9.0")
        );
        assert_advice(&RULE, &groups, &["near-peers-only", "look-at-iommu"], &[]);
        assert_eq!(found("NVIDIA A40", 4, |_| [26.0, 17.0, 45.0]), []);
    }
}

//! # What it means
//!
//! An NVLink is up but carries clearly less than its share.
//!
//! # What to do
//!
//! Look at the link's errors (nvidia-smi nvlink -e) and the fabric manager's log. Restart it or reset the GPUs, and
//! check again. If the same link still carries too little, swap the GPU, bridge or cable.
//!
//! # How it is detected
//!
//! Counters of every link are read around known traffic (`measurements.counted`). Of a GPU's active links to the same
//! place, one carried less than `least_part_percent` of an equal part. Or the group `links` found no block of memory
//! that goes over it (`measurements.nvlinks`). Of a job that `watch` saw, a link is reported that carried less than
//! `least_part_watched_percent`: programs need not use all links alike.
//!
//! # Sources
//!
//! NVML, fields 138 and 139, link by link. 8 x H200: each of 18 links carries 1/18 of the data (measured).

use super::counted;
use super::nvlink_missing;
use super::prelude::*;
use model::counted::LinkShare;
use model::watched::{LinkTraffic, Watched, WatchedGpu};

rule! {
    "nvlink-share-uneven", Warning, All(judge);
    /// share of its equal part that a link must carry; chosen: healthy links carry 98 to 102
    LEAST: least_part_percent = 80.0;
    /// the same for the traffic of a job that is only watched; chosen: NCCL and copies stay above 90
    LEAST_WATCHED: least_part_watched_percent = 50.0;
}

/// Fewest bytes that links to one place must have carried together to be judged. Chosen.
const LEAST_BYTES: u64 = 64 << 20;

/// A link that carries too little.
struct Uneven {
    gpu: u32,
    link: u8,
    part_percent: f64,
    of: usize,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let least = LEAST.of(evidence);
    let mut worst: BTreeMap<(u32, u8), Uneven> = BTreeMap::new();
    let counted =
        counted::sound(evidence).flat_map(|seen| uneven(evidence, seen.gpu, &seen.links, least));
    let watched = evidence.watched.into_iter().flat_map(|watched| {
        let least = LEAST_WATCHED.of(evidence);
        let shares =
            move |gpu: &WatchedGpu| uneven(evidence, gpu.gpu, &shares(watched, gpu), least);
        watched.gpus.iter().flat_map(shares).collect::<Vec<_>>()
    });
    let counted = counted.chain(watched);
    for uneven in counted.chain(unused(evidence)) {
        let known = worst.entry((uneven.gpu, uneven.link)).or_insert(Uneven { ..uneven });
        known.part_percent = known.part_percent.min(uneven.part_percent);
    }
    let mut by_gpu: BTreeMap<u32, Vec<Uneven>> = BTreeMap::new();
    worst.into_values().for_each(|uneven| by_gpu.entry(uneven.gpu).or_default().push(uneven));
    by_gpu.into_iter().map(|(gpu, links)| finding(evidence, gpu, &links)).collect()
}

fn finding(evidence: &Evidence<'_>, gpu: u32, links: &[Uneven]) -> Finding {
    let numbers = words::ranges(links.iter().map(|link| u32::from(link.link)));
    let least = links.iter().map(|link| link.part_percent).fold(f64::INFINITY, f64::min);
    let of = links.iter().map(|link| link.of).max().unwrap_or_default();
    let carries =
        if least < 1.0 { "nothing".to_owned() } else { format!("{least:.0}% of an equal part") };
    let message = format!(
        "NVLink {numbers} of {} is up and carries {carries}, of {} that lead to the same place",
        evidence.name(gpu),
        words::count(of, "link"),
    );
    let part = match nvlink_missing::may_have_bridge(evidence, gpu) {
        true => Part::GpuAndBridge(steps::gpu(gpu)),
        false => Part::of(&[gpu]),
    };
    let plan = Plan::now([
        Step::LinkErrors,
        Step::FabricManager,
        Step::RestartFabricManager,
        Step::ResetGpu(all(&[gpu])),
        Step::CheckAgain,
    ])
    .if_it_stays([Step::Swap(part)]);
    // A job that runs is not to be ended by a restart.
    let plan = match evidence.watched.is_some() {
        true => Plan::now([Step::LinkErrors, Step::CheckAfterJob]),
        false => plan,
    };
    let about = match links {
        [link] => Subject::Link { index: gpu, link: link.link },
        _ => Subject::Gpu { index: gpu },
    };
    RULE.finding(about, message, plan)
        .gpus(&[gpu])
        .fact("links", Fact::Numbers(links.iter().map(|link| u64::from(link.link)).collect()))
        .fact("least_part", Fact::percent(least))
}

/// Returns the links that are up and over which no block of the memory at their other end goes.
fn unused(evidence: &Evidence<'_>) -> Vec<Uneven> {
    let told = evidence.measured().nvlinks.iter();
    let told = told.filter_map(|cell| Some((cell.pair.source, (cell.pair, cell.source_link?))));
    let mut found = Vec::new();
    for (gpu, told) in words::grouped(told) {
        let Some(own) = evidence.snapshot.gpu(gpu).and_then(|gpu| gpu.nvlinks.known()) else {
            continue;
        };
        let used: BTreeSet<u8> = told.iter().map(|(_, link)| *link).collect();
        // Where a link leads is known by those beside it.
        let leads = |link: &&NvLink| {
            let other = own.iter().filter(|other| target(other) == target(link));
            link.active.get() == Some(true) && other.clone().any(|other| used.contains(&other.link))
        };
        let up: Vec<&NvLink> = own.iter().filter(leads).collect();
        let none = up.iter().filter(|link| !used.contains(&link.link));
        found.extend(none.map(|link| Uneven {
            gpu,
            link: link.link,
            part_percent: 0.0,
            of: up.len(),
        }));
    }
    found
}

/// Returns where a link leads: to another GPU, or to the switches.
fn target(link: &NvLink) -> (bool, Option<PciAddress>) {
    let switch = link.remote.get() == Some(NvLinkRemote::Switch);
    (switch, link.remote_pci.get().filter(|_| !switch))
}

/// Returns what each link of a watched GPU carried.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of some hours")]
fn shares(watched: &Watched, gpu: &WatchedGpu) -> Vec<LinkShare> {
    let bytes = |rate: GbPerSecond| Some(Bytes((rate.0 * 1e9 * watched.seconds) as u64));
    let share = |link: &LinkTraffic| LinkShare {
        link: link.link,
        sent_bytes: bytes(link.sent_gbps),
        received_bytes: bytes(link.received_gbps),
        sent_percent: None,
        received_percent: None,
    };
    gpu.nvlinks.iter().map(share).collect()
}

fn uneven(evidence: &Evidence<'_>, gpu: u32, seen: &[LinkShare], least: f64) -> Vec<Uneven> {
    let links = evidence.snapshot.gpu(gpu).and_then(|gpu| gpu.nvlinks.known());
    let mut places: BTreeMap<(bool, Option<PciAddress>), Vec<&LinkShare>> = BTreeMap::new();
    for link in links.into_iter().flatten().filter(|link| link.active.get() == Some(true)) {
        let share = seen.iter().find(|share| share.link == link.link);
        share.into_iter().for_each(|share| places.entry(target(link)).or_default().push(share));
    }
    let directions =
        [|share: &LinkShare| share.sent_bytes, |share: &LinkShare| share.received_bytes];
    let of = |together: &Vec<&LinkShare>| {
        directions
            .into_iter()
            .flat_map(|bytes| of_direction(gpu, together, bytes, least))
            .collect::<Vec<_>>()
    };
    places.values().filter(|together| together.len() > 1).flat_map(of).collect()
}

/// Returns those of the links to one place that carry too little in one direction.
fn of_direction(
    gpu: u32,
    links: &[&LinkShare],
    bytes: fn(&LinkShare) -> Option<Bytes>,
    least: f64,
) -> Vec<Uneven> {
    let carried: Vec<(u8, u64)> =
        links.iter().filter_map(|link| Some((link.link, bytes(link)?.0))).collect();
    let sum = carried.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if sum < LEAST_BYTES || carried.len() != links.len() {
        return Vec::new();
    }
    let of = carried.len();
    let part = |bytes: u64| counted::percent(bytes.saturating_mul(of as u64), sum);
    let low = carried.into_iter().map(|(link, bytes)| Uneven {
        gpu,
        link,
        part_percent: part(bytes),
        of,
    });
    low.filter(|uneven| uneven.part_percent < least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::testing::h200_vm;

    #[test]
    fn a_link_that_carries_nothing_of_a_watched_job_is_named() {
        let (machine, settings) = (h200_vm(2), crate::Settings::default());
        let topology = topology::build(&machine);
        let found = |least: f64| {
            let link = |link: u8| LinkTraffic {
                link,
                sent_gbps: GbPerSecond(if link == 7 { 20.0 * least } else { 20.0 }),
                received_gbps: GbPerSecond(20.0),
            };
            let gpu = WatchedGpu {
                gpu: 1,
                nvlinks: (0..18).map(link).collect(),
                ..WatchedGpu::default()
            };
            let watched = Watched { seconds: 10.0, gpus: vec![gpu], ..Watched::default() };
            let evidence = crate::testing::without_request(&machine, &topology, None, &settings);
            judge(&Evidence { watched: Some(&watched), ..evidence })
        };
        let nothing = found(0.0);
        assert_eq!(nothing.len(), 1, "{nothing:?}");
        assert_eq!(nothing[0].subject, Subject::Link { index: 1, link: 7 });
        // A program need not use all links alike.
        assert_eq!(found(0.7), []);
    }
}

//! # What it means
//!
//! One of the NVLinks between two GPUs is slower than the others, or answers later. Copies are spread over all of them,
//! so every copy waits for the slowest.
//!
//! # What to do
//!
//! Look at the errors of that link (`nvidia-smi nvlink -e`) and at the kernel's log (Xid 74, SXid), and check again. A
//! link of a GPU that is slow to all others accuses that GPU, its seat or its port of the switch; one that is slow to a
//! single GPU, the way between the two.
//!
//! # How it is detected
//!
//! The group `links` measures each link by itself while all links of the pair carry as much (`measurements.nvlinks`):
//! loads and stores below a share of the median of its pair, or a load that takes longer.
//!
//! # Sources
//!
//! 2 x H200: loads over 18 links 5.1% below the median at most, stores 23%, latency 8.3% above it (docs/dev/facts.md).

use super::prelude::*;
use super::{nvlink_ends, nvlink_missing};
use model::links::SingleLink;

rule! {
    "nvlink-slower-than-siblings", Warning, All(judge);
    /// rate of stores, of the pair's median; healthy links have 77 at least
    STORES: least_stores_percent = 60.0;
    /// rate of loads, of the same; healthy links have 94.9 at least
    LOADS: least_loads_percent = 90.0;
    /// time of a load, of the same; healthy links have 108.3 at most
    LATENCY: most_latency_percent = 115.0;
}

/// Fewest links of a pair that are siblings: with two, nobody knows which one is slow.
const LEAST_LINKS: usize = 3;

/// A figure by which links are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Compared {
    Stores,
    Loads,
    Time,
}

/// An end of a link: GPU and number.
type End = (u32, u8);

/// One figure of a link between two GPUs, beside those of the other links of the pair.
#[derive(Debug)]
struct Look<'a> {
    cell: &'a SingleLink,
    compared: Compared,
    /// Per cent of the median.
    percent: f64,
    is_odd: bool,
}

impl Look<'_> {
    /// Returns the ends at which the link is known: the one that sends the data, and the one that receives it.
    fn ends(&self) -> [Option<End>; 2] {
        let SingleLink { pair, source_link, destination_link, .. } = self.cell;
        let own = source_link.map(|link| (pair.source, link));
        let far = destination_link.map(|link| (pair.destination, link));
        match self.compared {
            Compared::Stores => [own, far],
            Compared::Loads | Compared::Time => [far, own],
        }
    }

    fn has(&self, end: End) -> bool {
        self.ends().contains(&Some(end))
    }

    /// Returns the other GPU.
    fn partner(&self, gpu: u32) -> u32 {
        let Pair { source, destination } = self.cell.pair;
        if source == gpu { destination } else { source }
    }
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let sound = evidence.measured().nvlinks.iter().filter(|cell| cell.is_sound());
    let pairs = words::grouped(sound.map(|cell| (cell.pair, cell)));
    let looks: Vec<Look<'_>> = pairs.values().flat_map(|links| looks(evidence, links)).collect();
    let mut odd: Vec<&Look<'_>> = looks.iter().filter(|look| look.is_odd).collect();
    let mut accused: BTreeMap<u32, Vec<(u8, Vec<&Look<'_>>)>> = BTreeMap::new();
    while let Some(end) = one_way_end(&looks, &odd).or_else(|| common_end(&looks, &odd)) {
        let (of_it, others) = odd.into_iter().partition(|look| look.has(end));
        odd = others;
        accused.entry(end.0).or_default().push((end.1, of_it));
    }
    let of_gpus = accused.iter().map(|(gpu, links)| of_gpu(evidence, *gpu, links));
    let between = words::grouped(odd.iter().map(|look| (look.cell.pair.unordered(), *look)));
    of_gpus.chain(between.values().map(|looks| of_pair(evidence, looks))).collect()
}

/// Returns the figures of a pair's links, compared with each other.
fn looks<'a>(evidence: &Evidence<'_>, links: &[&'a SingleLink]) -> Vec<Look<'a>> {
    if links.len() < LEAST_LINKS {
        return Vec::new();
    }
    let of = |compared: Compared,
              figure: fn(&SingleLink) -> Option<f64>,
              is_odd: &dyn Fn(f64) -> bool| {
        let median = scatter::middle(links.iter().filter_map(|link| figure(link)));
        let look = |link: &&'a SingleLink| {
            let percent = 100.0 * figure(link)? / median?;
            Some(Look { cell: link, compared, percent, is_odd: is_odd(percent) })
        };
        links.iter().filter_map(look).collect::<Vec<_>>()
    };
    let below = |limit: &'static Parameter| {
        let limit = limit.of(evidence);
        move |percent: f64| percent < limit
    };
    let latest = LATENCY.of(evidence);
    let stores = of(Compared::Stores, |link| Some(link.store_gbps?.0), &below(&STORES));
    let loads = of(Compared::Loads, |link| Some(link.load_gbps?.0), &below(&LOADS));
    let times = of(Compared::Time, |link| link.latency_ns, &|percent| percent > latest);
    [stores, loads, times].into_iter().flatten().collect()
}

/// Returns an end all of whose data in one direction is odd, towards several GPUs.
fn one_way_end(looks: &[Look<'_>], odd: &[&Look<'_>]) -> Option<End> {
    let keys = odd
        .iter()
        .flat_map(|look| (0..2).filter_map(|way| Some((look.compared, way, look.ends()[way]?))));
    let keys: BTreeSet<_> = keys.collect();
    let number = |(compared, way, end): (Compared, usize, End)| {
        let mut same =
            looks.iter().filter(|look| look.compared == compared && look.ends()[way] == Some(end));
        let partners: BTreeSet<u32> = same.clone().map(|look| look.partner(end.0)).collect();
        (partners.len() > 1 && same.all(|look| look.is_odd)).then_some((partners.len(), end))
    };
    keys.into_iter().filter_map(number).max().map(|(_, end)| end)
}

/// Returns the end that several odd figures share, if all figures of that end are odd, and no other end has as many of them.
fn common_end(looks: &[Look<'_>], odd: &[&Look<'_>]) -> Option<End> {
    let of_end =
        |end: End| -> Vec<usize> { (0..odd.len()).filter(|at| odd[*at].has(end)).collect() };
    let ends: BTreeSet<End> = odd.iter().flat_map(|look| look.ends()).flatten().collect();
    let candidates: Vec<(End, Vec<usize>)> = ends
        .into_iter()
        .filter(|end| looks.iter().all(|look| look.is_odd || !look.has(*end)))
        .map(|end| (end, of_end(end)))
        .filter(|(_, own)| own.len() > 1)
        .collect();
    let is_alone = |(end, own): &&(End, Vec<usize>)| {
        let mut others = candidates.iter().filter(|(other, _)| other != end);
        others.all(|(_, of)| own.iter().all(|at| !of.contains(at)) || of.len() < own.len())
    };
    candidates.iter().filter(is_alone).max_by_key(|(_, own)| own.len()).map(|(end, _)| *end)
}

/// Describes the odd figures of one link, or of many.
fn oddness(looks: &[&Look<'_>], many: bool) -> String {
    let s = if many { "" } else { "s" };
    match (rate(looks), time(looks)) {
        (Some(rate), _) => {
            format!("carr{} {rate:.0}% of what the others carry", if many { "y" } else { "ies" })
        }
        (None, time) => {
            format!("answer{s} a load in {:.0}% of the others' time", time.unwrap_or(100.0))
        }
    }
}

/// Returns the least share of the others' rate, per cent.
fn rate(looks: &[&Look<'_>]) -> Option<f64> {
    let rates = looks.iter().filter(|look| look.compared != Compared::Time);
    rates.map(|look| look.percent).reduce(f64::min)
}

/// Returns the longest time as a share of the others', per cent.
fn time(looks: &[&Look<'_>]) -> Option<f64> {
    let times = looks.iter().filter(|look| look.compared == Compared::Time);
    times.map(|look| look.percent).reduce(f64::max)
}

fn of_gpu(evidence: &Evidence<'_>, gpu: u32, links: &[(u8, Vec<&Look<'_>>)]) -> Finding {
    let mut numbers: Vec<u8> = links.iter().map(|(link, _)| *link).collect();
    numbers.sort_unstable();
    let looks: Vec<&Look<'_>> = links.iter().flat_map(|(_, looks)| looks.clone()).collect();
    let partners: BTreeSet<u32> = looks.iter().map(|look| look.partner(gpu)).collect();
    let towards = match partners.first() {
        Some(one) if partners.len() == 1 => format!("GPU {one}"),
        _ => words::count(partners.len(), "GPU"),
    };
    let message = format!(
        "{} {}, towards {towards}",
        nvlink_ends::named(&numbers, &evidence.name(gpu)),
        oddness(&looks, numbers.len() > 1),
    );
    let subject = match numbers.as_slice() {
        [link] => Subject::Link { index: gpu, link: *link },
        _ => Subject::Gpu { index: gpu },
    };
    let (reseat, suspects) = nvlink_missing::of_errors(evidence, gpu);
    let plan = Plan::now([Step::LinkErrors, Step::XidOf("74"), Step::CheckAgain])
        .if_it_stays([reseat, Step::Swap(Part::of(&[gpu]))]);
    let mut found = with_facts(RULE.finding(subject, message, plan), &looks);
    found.suspects = suspects;
    found.gpus(&[gpu])
}

fn of_pair(evidence: &Evidence<'_>, looks: &[&Look<'_>]) -> Finding {
    let pair = looks[0].cell.pair;
    let gpus = [pair.source, pair.destination];
    let names = names(looks);
    let (first, others) = (&names[0], &names[1..]);
    let also = match others.is_empty() {
        true => String::new(),
        false => format!("; so does {}", others.join(", ")),
    };
    let message = format!("{first} {}{also}", oddness(looks, false));
    let part = match nvlink_missing::may_have_bridge(evidence, pair.source) {
        true => Part::GpuAndBridge(steps::one_of(&gpus)),
        false => Part::of(&gpus),
    };
    let plan =
        Plan::now([Step::LinkErrors, Step::XidOf("74"), Step::FabricManager, Step::CheckAgain])
            .if_it_stays([Step::Swap(part)]);
    with_facts(RULE.finding(Subject::Pair(pair), message, plan), looks)
}

/// Returns the names of the links between two GPUs, each once: both directions of one that joins two GPUs have the same ends.
fn names(looks: &[&Look<'_>]) -> Vec<String> {
    let name = |look: &&Look<'_>| {
        let mut ends: Vec<End> = look.ends().into_iter().flatten().collect();
        ends.sort_unstable();
        let ends = ends.into_iter().map(|(gpu, link)| format!("NVLink {link} of GPU {gpu}"));
        ends.collect::<Vec<_>>().join(" ↔ ")
    };
    let names: BTreeSet<String> = looks.iter().map(name).collect();
    names.into_iter().collect()
}

fn with_facts(mut found: Finding, looks: &[&Look<'_>]) -> Finding {
    // Only links that carry less hold up copies.
    let slow = looks.iter().filter(|look| look.compared != Compared::Time);
    found.scope.pairs = words::unique(slow.map(|look| look.cell.pair));
    found
        .fact("rate_of_others", rate(looks).map(Fact::percent))
        .fact("load_time_of_others", time(looks).map(Fact::percent))
        .fact("ways", names(looks))
}

/// Returns true if links that a finding is about hold up copies of a pair as much as they are held up: copies are spread over
/// all links and wait for the slowest.
pub(crate) fn holds_up(cause: &Finding, pair: Pair, evidence: &Evidence<'_>) -> bool {
    let named = &cause.scope.pairs;
    if !named.contains(&pair) && !named.contains(&pair.reversed()) {
        return false;
    }
    let cells = evidence.measured().nvlinks.iter();
    let of_pair = cells.filter(|cell| cell.pair == pair || cell.pair == pair.reversed());
    let links = words::grouped(of_pair.map(|cell| (cell.pair, cell)));
    let slowest = links.values().flat_map(|links| looks(evidence, links));
    let slowest = slowest.filter(|look| look.compared != Compared::Time);
    let slowest = slowest.map(|look| look.percent).reduce(f64::min);
    let copies = evidence.reference_of(Path::Direct, pair).and_then(|cell| cell.healthy_percent);
    slowest.zip(copies).is_none_or(|(links, copies)| copies >= links - HELD_UP)
}

/// Per cent of a healthy rate by which copies may be slower than the slowest link makes them. Chosen.
const HELD_UP: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    /// Returns the links of all pairs of four GPUs, of which one GPU's link 3 is changed.
    fn with(change: impl Fn(&mut SingleLink), of: impl Fn(Pair) -> bool) -> Vec<Finding> {
        let machine = h200_vm(4);
        let mut measurements = measured(&machine, 0.88);
        for pair in Pair::ordered(&[0, 1, 2, 3]) {
            for link in 0..6 {
                let mut cell = SingleLink::blank(pair, Some(link), Some((link + 1) % 6));
                cell.store_gbps = Some(GbPerSecond(17.5));
                cell.load_gbps = Some(GbPerSecond(20.9));
                cell.latency_ns = Some(890.0);
                cell.verified = Verified::Ok;
                let is_meant =
                    [(pair.source, link), (pair.destination, (link + 1) % 6)].contains(&(1, 3));
                if is_meant && of(pair) {
                    change(&mut cell);
                }
                measurements.nvlinks.push(cell);
            }
        }
        let code = RULE.id.to_string();
        findings(&machine, Some(&measurements))
            .into_iter()
            .filter(|found| *found.code == *code)
            .collect()
    }

    #[test]
    fn each_figure_has_its_limit_and_the_common_end_is_accused() {
        let rate = |gbps| move |cell: &mut SingleLink| cell.store_gbps = Some(GbPerSecond(gbps));
        let load = |gbps| move |cell: &mut SingleLink| cell.load_gbps = Some(GbPerSecond(gbps));
        let time = |ns| move |cell: &mut SingleLink| cell.latency_ns = Some(ns);
        assert_eq!(with(rate(10.6), |_| true), []);
        assert_eq!(with(load(18.9), |_| true), []);
        assert_eq!(with(time(1020.0), |_| true), []);
        for found in
            [with(rate(10.4), |_| true), with(load(18.7), |_| true), with(time(1030.0), |_| true)]
        {
            let [found] = found.as_slice() else { panic!("{found:#?}") };
            assert_eq!(found.subject, Subject::Link { index: 1, link: 3 });
        }
        // To one GPU alone it is the way between, whichever end it has.
        let one = with(rate(9.0), |pair| pair.unordered() == (1, 2));
        let [found] = one.as_slice() else { panic!("{one:#?}") };
        assert!(matches!(found.subject, Subject::Pair(_)), "{found:#?}");
        // A figure that was disturbed says nothing.
        let disturbed = |cell: &mut SingleLink| {
            cell.store_gbps = Some(GbPerSecond(9.0));
            cell.ending.disturbed = true;
        };
        assert_eq!(with(disturbed, |_| true), []);
    }
}

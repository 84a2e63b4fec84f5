//! # What it means
//!
//! One of the NVLinks between two GPUs is slower than the others, or answers later. Copies are spread over all of them in
//! blocks, so that every copy waits for the slowest.
//!
//! # What to do
//!
//! Look at the errors of that link (`nvidia-smi nvlink -e`) and at the kernel's log (Xid 74, SXid), and check again. A link
//! of a GPU that is slow to all others accuses that GPU, its seat or its port of the switch; one that is slow to a single
//! GPU, the way between the two.
//!
//! # How it is detected
//!
//! The group `links` measures each link by itself while all links of the pair carry as much (`measurements.nvlinks`). A link
//! reaches less than `least_stores_percent` or `least_loads_percent` of the median of its pair, or a load over it takes more
//! than `most_latency_percent` of it.
//!
//! # Sources
//!
//! 4 x H100: stores of 18 links within 0.5%, loads within 5%, latency within 3% (docs/dev/facts.md).

use super::nvlink_missing;
use super::prelude::*;
use explain::scatter;
use model::links::SingleLink;

const STORES: Parameter = Parameter {
    name: "least_stores_percent",
    default: 95.0,
    about: "rate of stores over a link, of the median of its pair; those of healthy links differ by 0.5%",
};
const LOADS: Parameter = Parameter {
    name: "least_loads_percent",
    default: 85.0,
    about: "rate of loads over a link, of the median of its pair; those of healthy links differ by 5%",
};
const LATENCY: Parameter = Parameter {
    name: "most_latency_percent",
    default: 115.0,
    about: "time of a load over a link, of the median of its pair; those of healthy links differ by 3%",
};

pub(crate) const RULE: Rule = Rule::new("nvlink-slower-than-siblings", Severity::Warning, judge)
    .with(&[STORES, LOADS, LATENCY]);

/// Fewest links of a pair that are siblings: with two, nobody knows which one is slow.
const LEAST_LINKS: usize = 3;

/// An end of a link: GPU and number.
type End = (u32, u8);

/// A link between two GPUs.
struct Way<'a> {
    cell: &'a SingleLink,
    ends: Vec<End>,
    /// Per cent of the rate of its siblings, and of their time.
    rate: f64,
    time: f64,
    is_odd: bool,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let sound = evidence.measured().nvlinks.iter().filter(|cell| {
        cell.ending.status == Status::Measured
            && !cell.ending.disturbed
            && !cell.verified.is_wrong()
    });
    let pairs = words::grouped(sound.map(|cell| (cell.pair, cell)));
    let ways: Vec<Way<'_>> = pairs.values().flat_map(|links| ways(evidence, links)).collect();
    let mut odd: Vec<&Way<'_>> = ways.iter().filter(|way| way.is_odd).collect();
    let mut found = Vec::new();
    while let Some((end, of_it)) = common_end(&ways, &odd) {
        let is_of = |way: &&Way<'_>| way.ends.contains(&end);
        found.push(of_end(
            evidence,
            end,
            of_it,
            &odd.iter().copied().filter(is_of).collect::<Vec<_>>(),
        ));
        odd.retain(|way| !is_of(way));
    }
    let between = words::grouped(odd.iter().map(|way| (way.cell.pair.unordered(), *way)));
    found.extend(between.values().map(|ways| of_pair(evidence, ways)));
    found
}

/// Returns the links of a pair, compared with each other.
fn ways<'a>(evidence: &Evidence<'_>, links: &[&'a SingleLink]) -> Vec<Way<'a>> {
    let median = |of: fn(&SingleLink) -> Option<f64>| {
        scatter::middle(links.iter().filter_map(|link| of(link)))
            .filter(|_| links.len() >= LEAST_LINKS)
    };
    let percent = |of: fn(&SingleLink) -> Option<f64>, link: &SingleLink| {
        Some(100.0 * of(link)? / median(of)?)
    };
    let way = |link: &&'a SingleLink| {
        let stores = percent(|link| Some(link.store_gbps?.0), link).unwrap_or(100.0);
        let loads = percent(|link| Some(link.load_gbps?.0), link).unwrap_or(100.0);
        let time = percent(|link| link.latency_ns, link).unwrap_or(100.0);
        let is_slow =
            stores < RULE.parameter(evidence, &STORES) || loads < RULE.parameter(evidence, &LOADS);
        let ends =
            [(link.pair.source, link.source_link), (link.pair.destination, link.destination_link)];
        Way {
            cell: link,
            ends: ends.into_iter().filter_map(|(gpu, link)| Some((gpu, link?))).collect(),
            rate: stores.min(loads),
            time,
            is_odd: is_slow || time > RULE.parameter(evidence, &LATENCY),
        }
    };
    links.iter().map(way).collect()
}

/// Returns the end that most odd links share, if all links of that end are odd and no other end explains as many. And how many
/// GPUs they lead to.
fn common_end(ways: &[Way<'_>], odd: &[&Way<'_>]) -> Option<(End, usize)> {
    let ends: BTreeSet<End> = odd.iter().flat_map(|way| way.ends.clone()).collect();
    let number = |end: End| {
        let of_end = ways.iter().filter(|way| way.ends.contains(&end)).count();
        let is_odd = odd.iter().filter(|way| way.ends.contains(&end)).count();
        (is_odd == of_end && is_odd > 1).then_some((is_odd, end))
    };
    let mut numbers: Vec<(usize, End)> = ends.into_iter().filter_map(number).collect();
    numbers.sort_by(|one, other| other.cmp(one));
    let (most, end) = *numbers.first()?;
    if numbers.get(1).is_some_and(|(other, _)| *other == most) {
        return None;
    }
    let others =
        odd.iter().filter(|way| way.ends.contains(&end)).map(|way| way.cell.pair.unordered());
    Some((end, others.collect::<BTreeSet<_>>().len()))
}

/// Returns what is odd about links.
fn oddness(ways: &[&Way<'_>]) -> (String, f64, f64) {
    let rate = ways.iter().map(|way| way.rate).fold(f64::INFINITY, f64::min);
    let time = ways.iter().map(|way| way.time).fold(0.0, f64::max);
    let words = match rate < 95.0 {
        true => format!("carries {rate:.0}% of what its siblings carry"),
        false => format!("answers a load in {time:.0}% of its siblings' time"),
    };
    (words, rate, time)
}

fn of_end(evidence: &Evidence<'_>, (gpu, link): End, others: usize, ways: &[&Way<'_>]) -> Finding {
    let (is_odd, ..) = oddness(ways);
    let message = format!(
        "NVLink {link} of {} {is_odd}, towards {}",
        words::gpu(evidence.snapshot, gpu),
        words::count(others, "GPU"),
    );
    let (reseat, suspects) = nvlink_missing::of_errors(evidence, gpu);
    let plan = Plan::now([
        Step::LinkErrorsOf(steps::gpu(gpu), Listed(vec![gpu])),
        Step::XidOf("74"),
        Step::CheckAgain,
    ])
    .if_it_stays([reseat, Step::Swap(Part::Gpu(steps::gpu(gpu)))]);
    let mut found =
        with_facts(RULE.finding(Subject::Link { index: gpu, link }, message, plan), ways);
    found.suspects = suspects;
    found.gpus(&[gpu])
}

fn of_pair(evidence: &Evidence<'_>, ways: &[&Way<'_>]) -> Finding {
    let pair = ways[0].cell.pair;
    let gpus = [pair.source, pair.destination];
    let name = |way: &&Way<'_>| {
        // Both directions of a link that joins two GPUs have the same ends.
        let mut ends = way.ends.clone();
        ends.sort_unstable();
        let ends: Vec<String> =
            ends.into_iter().map(|(gpu, link)| format!("NVLink {link} of GPU {gpu}")).collect();
        ends.join(" ↔ ")
    };
    let mut names: Vec<String> = ways.iter().map(name).collect();
    names.sort();
    names.dedup();
    let (is_odd, ..) = oddness(ways);
    let (first, others) = (&names[0], &names[1..]);
    let also =
        if others.is_empty() { String::new() } else { format!("; so does {}", others.join(", ")) };
    let message = format!("{first} {is_odd}{also}");
    let part = match nvlink_missing::may_have_bridge(evidence, pair.source) {
        true => Part::GpuBridgeOrCable(steps::one_of(&gpus)),
        false => Part::Gpu(steps::one_of(&gpus)),
    };
    let plan = Plan::now([Step::LinkErrors, Step::XidOf("74"), Step::FabricLog, Step::CheckAgain])
        .if_it_stays([Step::Swap(part)]);
    let pairs: Vec<Pair> = ways.iter().map(|way| way.cell.pair).collect();
    with_facts(RULE.finding(Subject::Pair(pair), message, plan), ways).pairs(&pairs)
}

fn with_facts(found: Finding, ways: &[&Way<'_>]) -> Finding {
    let (_, rate, time) = oddness(ways);
    let numbers = |of: fn(&SingleLink) -> Option<f64>| {
        ways.iter().filter_map(|way| of(way.cell)).fold(f64::INFINITY, f64::min)
    };
    found
        .fact("least_rate", Fact::percent(rate))
        .fact("longest_time", Fact::percent(time))
        .fact("slowest_gbps", Fact::figure(numbers(|cell| Some(cell.store_gbps?.0))))
}

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
                cell.store_gbps = Some(GbPerSecond(21.4));
                cell.load_gbps = Some(GbPerSecond(13.7));
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
        assert_eq!(with(rate(20.4), |_| true), []);
        assert_eq!(with(load(11.7), |_| true), []);
        assert_eq!(with(time(1020.0), |_| true), []);
        for found in
            [with(rate(20.3), |_| true), with(load(11.6), |_| true), with(time(1030.0), |_| true)]
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

use diagnose::Settings;
use fastrand::Rng;
use model::flow::Flow;

use super::*;
use crate::outlook::causes;
use crate::testing::Machine;

fn wanted(gpus: usize) -> Wanted {
    Wanted { gpus, all: false, leave_out: Severity::Error }
}

/// Returns every order of these GPUs that begins with the first.
fn orders(gpus: &[u32]) -> Vec<Vec<u32>> {
    let Some((first, rest)) = gpus.split_first() else {
        return vec![Vec::new()];
    };
    let tails = rest.iter().enumerate().flat_map(|(at, _)| {
        let mut turned = rest.to_vec();
        turned.swap(0, at);
        orders(&turned)
    });
    if rest.is_empty() {
        return vec![vec![*first]];
    }
    tails.map(|tail| [&[*first], tail.as_slice()].concat()).collect()
}

fn ring(outlook: &Outlook<'_>, order: &[u32]) -> f64 {
    let next = order.iter().skip(1).chain(order.first());
    let flows: Vec<Flow> = order.iter().zip(next).map(|(from, to)| between(*from, *to)).collect();
    let rates = outlook.at_once(&flows);
    rates.and_then(|rates| rates.into_iter().reduce(f64::min)).unwrap_or(0.0)
}

fn slowest(outlook: &Outlook<'_>, gpus: &[u32]) -> f64 {
    let pairs = Pair::ordered(gpus).into_iter();
    let rates = pairs.map(|pair| outlook.alone(pair.into()).unwrap_or(0.0));
    rates.reduce(f64::min).unwrap()
}

/// Returns the rate of the best ring of a set, each order with rates computed by itself.
fn fastest(outlook: &Outlook<'_>, gpus: &[u32]) -> f64 {
    let rings = orders(gpus).into_iter().map(|order| ring(outlook, &order));
    rings.fold(0.0, f64::max)
}

fn subsets(of: &[u32], size: usize) -> Vec<Vec<u32>> {
    let masks = (0_u32..1 << of.len()).filter(|mask| mask.count_ones() as usize == size);
    let members = |mask: u32| (0..of.len()).filter(move |at| mask & (1 << at) != 0);
    masks.map(|mask| members(mask).map(|at| of[at]).collect()).collect()
}

/// The best of all sets.
struct Brute {
    /// The rate of the slowest pair.
    slowest: f64,
    /// The fastest ring among the sets with such a pair.
    fastest: f64,
    /// The fewest NUMA nodes and then the fewest shared links, among sets that are clearly as fast.
    place: (usize, usize),
}

/// Looks at every set of GPUs and every order of each.
fn brute(outlook: &Outlook<'_>, of: &[u32], size: usize) -> Brute {
    let rated = subsets(of, size).into_iter();
    let rated: Vec<(f64, f64, Vec<u32>)> =
        rated.map(|set| (slowest(outlook, &set), fastest(outlook, &set), set)).collect();
    let most = rated.iter().map(|(pair, ..)| *pair).fold(0.0, f64::max);
    let best = || rated.iter().filter(|(pair, ..)| pair * 1.01 >= most);
    let fastest = best().map(|(_, ring, _)| *ring).fold(0.0, f64::max);
    let clearly = best().filter(|(pair, ring, _)| pair * 1.005 >= most && ring * 1.005 >= fastest);
    let place = clearly.map(|(.., set)| {
        let links = shared_uplinks(outlook.report(), set);
        (nodes(outlook, set).len(), links)
    });
    Brute { slowest: most, fastest, place: place.min().unwrap() }
}

/// Returns every way to split these GPUs into as many jobs as fit.
fn splits(of: &[u32], size: usize) -> Vec<Vec<Vec<u32>>> {
    let Some((first, rest)) = of.split_first().filter(|_| of.len() >= size) else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for partners in subsets(rest, size - 1) {
        let mut left = rest.to_vec();
        left.retain(|gpu| !partners.contains(gpu));
        let job = [&[*first], partners.as_slice()].concat();
        let others = splits(&left, size).into_iter();
        all.extend(others.map(|others| [vec![job.clone()], others].concat()));
    }
    if !of.len().is_multiple_of(size) {
        all.extend(splits(rest, size));
    }
    all
}

#[test]
fn the_pick_is_the_best_of_all_sets_and_orders() {
    let mut rng = Rng::with_seed(11);
    let mut compared = 0;
    for round in 0..16 {
        let machine = Machine::random(&mut rng, 3 + round % 4);
        let report = machine.check();
        let (causes, settings) = (causes(&report, &Settings::default()), Settings::default());
        let outlook = Outlook::of(&report, &causes, &settings).unwrap();
        for size in 2..=report.snapshot.gpus.len() {
            let Ok(picked) = pick(&outlook, wanted(size)) else {
                continue;
            };
            let left_out: Vec<u32> = picked.left_out.iter().map(|one| one.gpu).collect();
            let mut usable = outlook.gpus();
            usable.retain(|gpu| !left_out.contains(gpu));
            let Brute { slowest: most, fastest, place } = brute(&outlook, &usable, size);
            let job = &picked.jobs[0];
            let choice = &job.choice;
            let context = || format!("{machine:?}, {size} GPUs: {picked:?}");
            assert!(picked.exact, "{}", context());
            let own = slowest(&outlook, &choice.gpus);
            assert!(own * 1.011 >= most, "{own} of {most}: {}", context());
            let own = ring(&outlook, &choice.gpus);
            assert!(own * 1.021 >= fastest, "ring {own} of {fastest}: {}", context());
            let said = choice.all_reduce_bus_gbps.unwrap();
            assert!((said / own - 1.0).abs() < 0.02, "said {said}, {own}: {}", context());
            let own = (job.numa_nodes, job.shared_uplinks);
            assert!(own <= place, "{own:?} of {place:?}: {}", context());
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn the_worst_of_all_jobs_is_the_best_of_all_splits() {
    let mut rng = Rng::with_seed(13);
    let mut compared = 0;
    for round in 0..12 {
        let report = Machine::random(&mut rng, 4 + round % 3).check();
        let (causes, settings) = (causes(&report, &Settings::default()), Settings::default());
        let outlook = Outlook::of(&report, &causes, &settings).unwrap();
        for size in 2..=3 {
            let all = Wanted { all: true, ..wanted(size) };
            let Ok(picked) = pick(&outlook, all) else {
                continue;
            };
            let mut usable = outlook.gpus();
            usable.retain(|gpu| !picked.left_out.iter().any(|one| one.gpu == *gpu));
            let worst = |jobs: &[Vec<u32>], of: fn(&Outlook<'_>, &[u32]) -> f64| {
                let rates = jobs.iter().map(|job| of(&outlook, job));
                rates.fold(f64::INFINITY, f64::min)
            };
            let splits = splits(&usable, size);
            let most = splits.iter().map(|jobs| worst(jobs, slowest));
            let most = most.fold(0.0, f64::max);
            let best = splits.iter().filter(|jobs| worst(jobs, slowest) * 1.01 >= most);
            let ring = best.map(|jobs| worst(jobs, fastest)).fold(0.0, f64::max);
            let jobs: Vec<Vec<u32>> =
                picked.jobs.iter().map(|job| job.choice.gpus.clone()).collect();
            let context = || format!("{size} of {usable:?}: {jobs:?}");
            assert_eq!(jobs.len(), usable.len() / size, "{}", context());
            let own = worst(&jobs, slowest);
            assert!(own * 1.011 >= most, "{own} of {most}: {}", context());
            let own = worst(&jobs, fastest);
            assert!(own * 1.021 >= ring, "ring {own} of {ring}: {}", context());
            compared += 1;
        }
    }
    assert!(compared > 12, "{compared}");
}

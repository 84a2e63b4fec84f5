use diagnose::Settings;
use fastrand::Rng;
use model::flow::Flow;

use super::*;
use crate::outlook::causes;
use crate::testing::Machine;

fn wanted(gpus: usize) -> Wanted {
    Wanted {
        gpus,
        all: false,
        leave_out: Severity::Error,
    }
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
    tails
        .map(|tail| [&[*first], tail.as_slice()].concat())
        .collect()
}

fn ring(outlook: &Outlook<'_>, order: &[u32]) -> f64 {
    let next = order.iter().skip(1).chain(order.first());
    let flows: Vec<Flow> = order
        .iter()
        .zip(next)
        .map(|(from, to)| between(*from, *to))
        .collect();
    let rates = outlook.at_once(&flows);
    rates
        .and_then(|rates| rates.into_iter().reduce(f64::min))
        .unwrap_or(0.0)
}

fn slowest(outlook: &Outlook<'_>, gpus: &[u32]) -> f64 {
    let pairs = Pair::ordered(gpus).into_iter();
    let rates = pairs.map(|pair| outlook.alone(pair.into()).unwrap_or(0.0));
    rates.reduce(f64::min).unwrap()
}

/// Looks at every set of GPUs and every order of each, with rates computed for each order by itself.
fn brute(outlook: &Outlook<'_>, of: &[u32], size: usize) -> (f64, f64) {
    let sets = (0_u32..1 << of.len()).filter(|mask| mask.count_ones() as usize == size);
    let members = |mask: u32| (0..of.len()).filter(move |at| mask & (1 << at) != 0);
    let sets: Vec<Vec<u32>> = sets
        .map(|mask| members(mask).map(|at| of[at]).collect())
        .collect();
    let most = sets
        .iter()
        .map(|set| slowest(outlook, set))
        .fold(0.0, f64::max);
    let best = sets
        .iter()
        .filter(|set| slowest(outlook, set) * 1.01 >= most);
    let rings = best
        .flat_map(|set| orders(set))
        .map(|order| ring(outlook, &order));
    (most, rings.fold(0.0, f64::max))
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
            let (most, fastest) = brute(&outlook, &usable, size);
            let choice = &picked.jobs[0].choice;
            let context = || format!("{machine:?}, {size} GPUs: {picked:?}");
            assert!(picked.exact, "{}", context());
            let own = slowest(&outlook, &choice.gpus);
            assert!(own * 1.011 >= most, "{own} of {most}: {}", context());
            let own = ring(&outlook, &choice.gpus);
            assert!(
                own * 1.021 >= fastest,
                "ring {own} of {fastest}: {}",
                context()
            );
            let said = choice.all_reduce_bus_gbps.unwrap();
            assert!(
                (said / own - 1.0).abs() < 0.02,
                "said {said}, {own}: {}",
                context()
            );
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

//! Groups of GPUs with the same connections.

use std::collections::{BTreeMap, HashMap};

use super::figures::{count, ranges};
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use model::report::Report;
use model::topology::LinkClass;

/// Most groups in a matrix: chosen.
const MOST_IN_MATRIX: usize = 16;

/// Link class by ordered pair.
type Classes = HashMap<(u32, u32), LinkClass>;

fn class(classes: &Classes, source: u32, destination: u32) -> LinkClass {
    classes.get(&(source, destination)).copied().unwrap_or(LinkClass::Unknown)
}

/// Groups the GPUs whose members have the same class to and from every other GPU.
fn groups(classes: &Classes, gpus: &[u32]) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for &gpu in gpus {
        let alike = |group: &&mut Vec<u32>| {
            let first = group[0];
            gpus.iter().filter(|&&other| other != gpu && other != first).all(|&other| {
                class(classes, gpu, other) == class(classes, first, other)
                    && class(classes, other, gpu) == class(classes, other, first)
            })
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(gpu),
            None => groups.push(vec![gpu]),
        }
    }
    groups
}

/// Writes the groups.
pub(super) fn write(page: &mut Page, report: &Report, gpus: &[u32]) {
    let routes = report.topology.pairs.iter();
    let classes: Classes =
        routes.map(|route| ((route.pair.source, route.pair.destination), route.class)).collect();
    let groups = groups(&classes, gpus);
    match groups.as_slice() {
        [all] if all.len() > 1 => {
            let (class, all) = (class(&classes, all[0], all[1]), ranges(all));
            page.note(Paint::Plain, &format!("{class} from any of GPU {all} to any other"));
        }
        groups if groups.len() <= MOST_IN_MATRIX => {
            let mut table = Table::of_words(groups.len() + 1);
            let name = |group: &Vec<u32>| Cell::from(format!("GPU {}", ranges(group)));
            table.row([Cell::default()].into_iter().chain(groups.iter().map(name)));
            for from in groups {
                let cells = groups.iter().map(|to| match from.as_slice() {
                    [first, second, ..] if from == to => {
                        class(&classes, *first, *second).to_string().into()
                    }
                    _ if from == to => Cell::new("X", Paint::Faint),
                    _ => class(&classes, from[0], to[0]).to_string().into(),
                });
                table.row([name(from)].into_iter().chain(cells));
            }
            page.table(table);
        }
        _ => partners(page, &classes, gpus),
    }
}

/// Writes how many other GPUs each GPU reaches by each class. Used if there are many groups too.
fn partners(page: &mut Page, classes: &Classes, gpus: &[u32]) {
    let mut by_class: BTreeMap<LinkClass, BTreeMap<u32, usize>> = BTreeMap::new();
    for &gpu in gpus {
        for &other in gpus.iter().filter(|&&other| other != gpu) {
            let counts = by_class.entry(class(classes, gpu, other)).or_default();
            *counts.entry(gpu).or_default() += 1;
        }
    }
    for (class, counts) in by_class {
        let (least, most) = counts
            .values()
            .fold((usize::MAX, 0), |(least, most), &one| (one.min(least), one.max(most)));
        let others = match least {
            _ if least == most => count(most, "other"),
            least => format!("{least} to {most} others"),
        };
        let who = match counts.len() {
            all if all == gpus.len() => "each GPU".to_owned(),
            some => count(some, "GPU"),
        };
        page.item(2, 8, &class.to_string(), Paint::Strong, &format!("from {who} to {others}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::placement::Pair;

    fn table(gpus: u32, class_of: impl Fn(u32, u32) -> LinkClass) -> (Classes, Vec<u32>) {
        let gpus: Vec<_> = (0..gpus).collect();
        let pairs = Pair::ordered(&gpus);
        let classes = pairs
            .iter()
            .map(|pair| ((pair.source, pair.destination), class_of(pair.source, pair.destination)));
        (classes.collect(), gpus)
    }

    #[test]
    fn gpus_with_the_same_connections_are_one_group() {
        let (classes, gpus) = table(16, |_, _| LinkClass::NvLink(18));
        assert_eq!(groups(&classes, &gpus), [(0..16).collect::<Vec<_>>()]);
        // Two switches; GPU 0 has fewer links to the others on its own switch.
        let (classes, gpus) =
            table(20, |one, other| match (one / 10 == other / 10, one.min(other)) {
                (true, 0) => LinkClass::NvLink(16),
                (true, _) => LinkClass::NvLink(18),
                _ => LinkClass::Sys,
            });
        let expected: [Vec<u32>; 3] = [vec![0], (1..10).collect(), (10..20).collect()];
        assert_eq!(groups(&classes, &gpus), expected);
    }

    #[test]
    fn a_lone_link_makes_two_groups_of_its_ends() {
        let (classes, gpus) =
            table(
                4,
                |one, other| {
                    if one + other == 1 { LinkClass::NvLink(4) } else { LinkClass::Node }
                },
            );
        // The bridged GPUs have the same connections to all others. So have the other two.
        assert_eq!(groups(&classes, &gpus), [vec![0, 1], vec![2, 3]]);
    }
}

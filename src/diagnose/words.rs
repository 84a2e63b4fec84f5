//! Names and lists for people who have to find the part in the machine.

use std::collections::{BTreeMap, BTreeSet};

use model::fact::{Fact, Facts};
use model::finding::Subject;
use model::flow::Flow;
use model::placement::Pair;
use model::snapshot::Snapshot;
use model::units::{GbPerSecond, PciAddress};
use topology::pcie;

/// Most sentences that a message spells out. The evidence has them all.
const SENTENCES: usize = 3;

/// Longest list of pairs that a message spells out; the evidence has them all.
const SPELT_OUT: usize = 4;

/// Returns the place of a subject in the chassis: `GPU 3, 0000:3b:00.0, slot 5, below 0000:38:01.0 and 0000:36:00.0`.
/// Empty for the whole machine.
pub(crate) fn location(snapshot: &Snapshot, subject: &Subject) -> String {
    let function = |address: PciAddress| {
        let slot = after(", slot ", pcie::slot(snapshot, address));
        let above: Vec<_> = pcie::chain(snapshot, address)
            .iter()
            .skip(1)
            .map(|bridge| bridge.address.to_string())
            .collect();
        let below = after(", below ", Some(above.join(" < ")));
        format!("{address}{slot}{below}")
    };
    let of = |index: u32| match snapshot.address_of(index) {
        Some(address) => format!("GPU {index}, {}", function(address)),
        None => format!("GPU {index}"),
    };
    match subject {
        Subject::Machine => String::new(),
        Subject::Gpu { index } => of(*index),
        Subject::PcieLink { address } | Subject::PciFunction { address } => function(*address),
        Subject::Link { index, link } => format!("{}, NVLink {link}", of(*index)),
        Subject::Pair(pair) => format!("{}; {}", of(pair.source), of(pair.destination)),
    }
}

/// Returns the subject of a finding on one flow: its pair, or its GPU.
pub(crate) fn of_flow(flow: Flow) -> Subject {
    let gpu = || flow.gpus().next().map(|index| Subject::Gpu { index });
    let pair = flow.pair().map(Subject::Pair);
    pair.or_else(gpu).unwrap_or(Subject::Machine)
}

/// Returns words such as `GPU 0, GPU 1 and GPU 4`; with more than three, `GPUs 0-5, 7`.
pub(crate) fn gpus(indices: &[u32]) -> String {
    if indices.len() > 3 {
        return format!("GPUs {}", ranges(indices.iter().copied()));
    }
    let names: Vec<_> = indices.iter().map(|index| format!("GPU {index}")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => "no GPU".into(),
    }
}

/// Returns words such as `0,3`, as nvidia-smi accepts them.
pub(crate) fn option(indices: &[u32]) -> String {
    indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Returns words such as `0-3, 7`.
pub(crate) fn ranges(indices: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for index in indices {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    let text = |(first, last)| {
        if first == last { format!("{first}") } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns pairs, GPUs or others in order, each once.
pub(crate) fn unique<T: Ord>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let all: BTreeSet<T> = all.into_iter().collect();
    all.into_iter().collect()
}

/// Returns the values by their keys, each in order.
pub(crate) fn grouped<K: Ord, V>(all: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in all {
        groups.entry(key).or_default().push(value);
    }
    groups
}

/// Returns the one with the largest of these figures, the last of several.
pub(crate) fn largest<T>(all: impl IntoIterator<Item = T>, of: impl Fn(&T) -> f64) -> Option<T> {
    let all = all.into_iter();
    all.max_by(|one, other| of(one).total_cmp(&of(other)))
}

/// Returns the one with the smallest of these figures, the first of several.
pub(crate) fn smallest<T>(all: impl IntoIterator<Item = T>, of: impl Fn(&T) -> f64) -> Option<T> {
    let all = all.into_iter();
    all.min_by(|one, other| of(one).total_cmp(&of(other)))
}

/// Returns words for what comes after the one that is named, such as ` and 3 other ways`; none if there is nothing more.
pub(crate) fn further(before: &str, number: usize, thing: &str) -> String {
    match number {
        0 => String::new(),
        more => format!("{before}{}", count(more, thing)),
    }
}

/// Returns a text after a mark; nothing if there is no text.
pub(crate) fn after<T: ToString>(mark: &str, text: Option<T>) -> String {
    let text = text.map(|text| text.to_string()).unwrap_or_default();
    if text.is_empty() { text } else { format!("{mark}{text}") }
}

/// Returns a text in brackets, after a space; nothing if there is no text.
pub(crate) fn in_brackets<T: ToString>(text: Option<T>) -> String {
    match after(" (", text) {
        none if none.is_empty() => none,
        text => text + ")",
    }
}

/// Returns the first ones, separated by commas, and the number of the others.
pub(crate) fn first<T: ToString>(all: &[T], shown: usize) -> String {
    let named: Vec<String> = all.iter().take(shown).map(T::to_string).collect();
    let named = named.join(", ");
    match all.len().saturating_sub(shown) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Returns the first few sentences, separated by semicolons, and the number of the others.
pub(crate) fn spelt<T: AsRef<str>>(all: &[T]) -> String {
    let spelt: Vec<&str> = all.iter().take(SENTENCES).map(AsRef::as_ref).collect();
    let spelt = spelt.join("; ");
    match all.len().saturating_sub(SENTENCES) {
        0 => spelt,
        more => format!("{spelt}; {more} more"),
    }
}

/// Returns words such as `27.6 GB/s, 51% of the 54.2 of healthy machines; less than 44.9 is reported`.
pub(crate) fn of_healthy(rate: GbPerSecond, healthy: GbPerSecond, floor: GbPerSecond) -> String {
    share_of(rate, (healthy, "healthy machines"), floor)
}

/// Returns the rate as a share of what these reach, and the floor.
pub(crate) fn share_of(
    rate: GbPerSecond,
    (reached, by): (GbPerSecond, &str),
    floor: GbPerSecond,
) -> String {
    let percent = rate.percent_of(reached);
    format!("{rate} GB/s, {percent:.0}% of the {reached} of {by}; less than {floor} is reported")
}

/// Returns the pairs. If there are many, returns the GPU that all of them share, or the first few.
pub(crate) fn pairs(pairs: &[Pair]) -> String {
    if let (true, Some(gpu)) = (pairs.len() > SPELT_OUT, in_common(pairs)) {
        return format!("{} pairs with GPU {gpu}", pairs.len());
    }
    first(pairs, SPELT_OUT)
}

/// Returns the GPU that all of these pairs share.
fn in_common(pairs: &[Pair]) -> Option<u32> {
    let mut gpus = pairs.first()?.gpus().into_iter();
    gpus.find(|gpu| pairs.iter().all(|pair| pair.touches(*gpu)))
}

/// Returns the addresses, separated by commas.
pub(crate) fn addresses(addresses: &[PciAddress]) -> String {
    first(addresses, usize::MAX)
}

/// Returns GPUs by what they have in common: `570.1 (GPU 0 and GPU 1); 570.2 (GPU 2)`.
pub(crate) fn by_value(all: &BTreeMap<&str, Vec<u32>>) -> String {
    let each = all.iter().map(|(name, indices)| format!("{name} ({})", gpus(indices)));
    each.collect::<Vec<_>>().join("; ")
}

/// Returns GPUs by what they have in common, as a fact.
pub(crate) fn table(gpus: &BTreeMap<&str, Vec<u32>>) -> Facts {
    let all = gpus.iter();
    all.map(|(name, gpus)| (name, Fact::numbers(gpus.iter().copied()))).collect()
}

/// Returns words such as `1 pair`, `2 pairs`, `6 switches`.
pub(crate) fn count(number: impl TryInto<usize>, thing: &str) -> String {
    let number = number.try_into().unwrap_or(usize::MAX);
    let is_any = |ends: &[&str]| ends.iter().any(|end| thing.ends_with(end));
    match thing.strip_suffix('y') {
        _ if number == 1 => format!("1 {thing}"),
        Some(stem) if !is_any(&["ay", "ey", "oy"]) => format!("{number} {stem}ies"),
        _ if is_any(&["ch", "sh", "s", "x"]) => format!("{number} {thing}es"),
        _ => format!("{number} {thing}s"),
    }
}

/// Returns what was counted, without what was not: `3 fatal errors, 1 replay`.
pub(crate) fn counted(counts: &[(u64, &str)]) -> String {
    let some = counts.iter().filter(|(number, _)| *number > 0);
    some.map(|(number, thing)| count(*number, thing)).collect::<Vec<_>>().join(", ")
}

/// Returns the distinct texts, in order, separated by semicolons.
pub(crate) fn distinct<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !seen.iter().any(|known| known == text.as_ref()) {
            seen.push(text.as_ref().to_owned());
        }
    }
    seen.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_gpus_are_written_as_ranges() {
        assert_eq!(gpus(&[0, 1, 4]), "GPU 0, GPU 1 and GPU 4");
        assert_eq!(gpus(&[0, 1, 2, 3, 5, 7, 8]), "GPUs 0-3, 5, 7-8");
        assert_eq!(gpus(&[]), "no GPU");
    }

    #[test]
    fn many_pairs_are_named_by_the_gpu_that_they_have() {
        let with = |gpu: u32, others: std::ops::Range<u32>| -> Vec<Pair> {
            others
                .filter(|other| *other != gpu)
                .map(|other| Pair { source: gpu, destination: other })
                .collect()
        };
        assert_eq!(pairs(&with(2, 0..8)), "7 pairs with GPU 2");
        assert_eq!(pairs(&with(2, 0..3)), "GPU 2 → GPU 0, GPU 2 → GPU 1");
        let two = [with(2, 0..5), with(3, 0..5)].concat();
        assert!(pairs(&two).ends_with("and 4 more"), "{}", pairs(&two));
    }

    #[test]
    fn counted_things_have_their_plural() {
        for (number, thing, text) in [
            (1, "NVSwitch", "1 NVSwitch"),
            (6, "NVSwitch", "6 NVSwitches"),
            (2, "pair", "2 pairs"),
            (0, "GPU", "0 GPUs"),
        ] {
            assert_eq!(count(number, thing), text);
        }
    }
}

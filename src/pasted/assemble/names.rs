//! Which of the names that tools use mean the same GPU.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::At;
use crate::told::{Key, Note};
use model::units::PciAddress;

/// A name within all inputs. CUDA's numbers hold within one program's output only: variables change them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Index(u32),
    Pci(PciAddress),
    Uuid(String),
    /// Number of the input, kind of output, CUDA's number.
    Ordinal(usize, String, u32),
}

fn name(key: &Key, from: &At<'_>) -> Name {
    match key {
        Key::Index(index) => Name::Index(*index),
        Key::Pci(address) => Name::Pci(*address),
        Key::Uuid(uuid) => Name::Uuid(uuid.clone()),
        Key::Ordinal(ordinal) => Name::Ordinal(from.input, from.kind.to_owned(), *ordinal),
    }
}

/// Most names: those of 72 GPUs in each kind of output of a thousand files are fewer, but for CUDA's numbers.
const MOST_NAMES: usize = 20_000;

/// Most contradictions that are kept.
const MOST_CONTRADICTIONS: usize = 50;

/// The output that names GPUs by address and says nothing else of them.
const ONLY_NAMES: &str = "nccl-log";

const OF_CUDA: &str = "CUDA's numbers of GPUs were taken for nvidia-smi's; CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER \
    change them";

/// All names and the GPU of each.
#[derive(Debug, Default)]
pub(super) struct Names {
    gpus: BTreeMap<Name, u32>,
    /// True if a line beside the output of tools names a GPU: it is lost, and no list has it.
    has_lost: bool,
    /// How names were matched that no output matches.
    pub remarks: Vec<String>,
    pub contradictions: Vec<String>,
}

/// The names of one GPU.
#[derive(Debug, Clone, Default)]
struct Aliases {
    names: Vec<Name>,
}

impl Aliases {
    fn index(&self) -> Option<u32> {
        self.names.iter().find_map(|name| match name {
            Name::Index(index) => Some(*index),
            _ => None,
        })
    }

    fn pci(&self) -> Option<PciAddress> {
        self.names.iter().find_map(|name| match name {
            Name::Pci(address) => Some(*address),
            _ => None,
        })
    }

    fn ordinal(&self) -> Option<u32> {
        self.names.iter().find_map(|name| match name {
            Name::Ordinal(.., ordinal) => Some(*ordinal),
            _ => None,
        })
    }
}

/// Returns the keys of the GPUs that a statement is about.
pub(super) fn keys(what: &Note) -> Vec<&Key> {
    match what {
        Note::Gpu(key, _)
        | Note::CutLinks(key, _)
        | Note::Link(key, _)
        | Note::Local(key, ..)
        | Note::HostCopy(key, ..) => {
            vec![key]
        }
        Note::Same(one, other)
        | Note::Pair(one, other, _)
        | Note::SomeAccess(one, other, _)
        | Note::Bond(one, other, _)
        | Note::Access(one, other, _)
        | Note::Peer(one, other, ..)
        | Note::Latency(one, other, ..) => vec![one, other],
        Note::Host(_)
        | Note::Listed(_)
        | Note::Named(..)
        | Note::Function(_)
        | Note::Xid(_)
        | Note::Fault(..)
        | Note::Problem(_)
        | Note::Remark(_)
        | Note::Collective(_)
        | Note::KernelLog => Vec::new(),
    }
}

impl Names {
    /// Matches the names of all statements.
    ///
    /// # Errors
    ///
    /// A sentence if there are far more names than GPUs can have.
    pub(super) fn of(told: &[(At<'_>, &Note)]) -> Result<Self, String> {
        let mut names = Self::default();
        let mut groups: Vec<Aliases> = Vec::new();
        let mut place: BTreeMap<Name, usize> = BTreeMap::new();
        let mut described: BTreeSet<PciAddress> = BTreeSet::new();
        for (from, what) in told {
            names.has_lost |= from.kind.is_empty() && matches!(what, Note::Gpu(..));
            if from.kind != ONLY_NAMES {
                described.extend(keys(what).into_iter().filter_map(|key| match key {
                    Key::Pci(address) => Some(*address),
                    _ => None,
                }));
            }
            let keys = keys(what).into_iter().map(|key| name(key, from));
            let keys: Vec<Name> = keys.collect();
            for key in &keys {
                place.entry(key.clone()).or_insert_with(|| {
                    groups.push(Aliases { names: vec![key.clone()] });
                    groups.len() - 1
                });
            }
            if place.len() > MOST_NAMES {
                return Err(format!(
                    "has more than {MOST_NAMES} names of GPUs, up to {from}: give the output of one machine"
                ));
            }
            if let (Note::Same(..), [one, other]) = (what, keys.as_slice()) {
                names.join(&mut groups, &mut place, one, other, from);
            }
        }
        groups.retain(|group| !group.names.is_empty());
        names.number(groups, &described);
        Ok(names)
    }

    /// Joins two groups, unless their names contradict each other.
    fn join(
        &mut self,
        groups: &mut [Aliases],
        place: &mut BTreeMap<Name, usize>,
        one: &Name,
        other: &Name,
        from: &At<'_>,
    ) {
        let (Some(&to), Some(&gone)) = (place.get(one), place.get(other)) else {
            return;
        };
        if to == gone {
            return;
        }
        let differ =
            |one: Option<u32>, other: Option<u32>| one.is_some() && other.is_some() && one != other;
        let (first, second) = (&groups[to], &groups[gone]);
        let addresses = [first.pci(), second.pci()];
        if differ(first.index(), second.index())
            || matches!(addresses, [Some(one), Some(other)] if one != other)
        {
            if let [Some(one), Some(other)] = addresses
                && self.contradictions.len() < MOST_CONTRADICTIONS
            {
                let index = first.index().or(second.index());
                let gpu = index.map_or("a GPU".to_owned(), |index| format!("GPU {index}"));
                self.contradictions
                    .push(format!("{gpu} has the addresses {one} and {other} ({from})"));
            }
            return;
        }
        for name in std::mem::take(&mut groups[gone].names) {
            place.insert(name.clone(), to);
            groups[to].names.push(name);
        }
    }

    /// Gives each group the index of its GPU. `described` are the addresses of which some output says more than that they are
    /// there.
    fn number(&mut self, groups: Vec<Aliases>, described: &BTreeSet<PciAddress>) {
        let (mut with, without): (Vec<Aliases>, Vec<Aliases>) =
            groups.into_iter().partition(|group| group.index().is_some());
        let (mut by_address, by_number): (Vec<Aliases>, Vec<Aliases>) =
            without.into_iter().partition(|group| group.pci().is_some());
        by_address.sort_by_key(Aliases::pci);
        with.sort_by_key(Aliases::index);
        let bare: Vec<usize> = (0..with.len()).filter(|at| with[*at].pci().is_none()).collect();
        if !by_address.is_empty() && bare.len() == by_address.len() && !self.has_lost {
            // NVML numbers GPUs by their addresses.
            self.remarks.push(format!(
                "{} indices and addresses of GPUs were matched in their order",
                bare.len()
            ));
            for (at, group) in bare.into_iter().zip(std::mem::take(&mut by_address)) {
                with[at].names.extend(group.names);
            }
        } else if bare.len() >= by_address.len() {
            // They are some of those with an index: as further ones, they would be counted twice.
            let all = by_address.len();
            by_address.retain(|group| group.pci().is_some_and(|pci| described.contains(&pci)));
            if by_address.len() < all {
                self.remarks.push(format!(
                    "{} addresses of GPUs were left out: their indices are not known",
                    all - by_address.len()
                ));
            }
        }
        // Without nvidia-smi's numbers, CUDA's are those of the text.
        let ordinals: BTreeSet<u32> = by_address.iter().filter_map(Aliases::ordinal).collect();
        if with.is_empty() && !ordinals.is_empty() && ordinals.len() == by_address.len() {
            for group in std::mem::take(&mut by_address) {
                self.add(&group, group.ordinal().unwrap_or_default());
            }
            self.remarks.push(OF_CUDA.to_owned());
        }
        if by_address.len() > 1 || (!by_address.is_empty() && !with.is_empty()) {
            self.remarks.push("GPUs without an index were numbered by their addresses".to_owned());
        }
        for group in &with {
            let index = group.index().unwrap_or_default();
            self.add(group, index);
        }
        let mut free = (0..).filter(|index| with.iter().all(|group| group.index() != Some(*index)));
        for group in by_address {
            let index = free.next().unwrap_or_default();
            self.add(&group, index);
        }
        // One program may print the addresses of its numbers, and another only the numbers.
        let known = self.gpus.iter().filter_map(|(name, index)| match name {
            Name::Ordinal(.., ordinal) => Some((*ordinal, *index)),
            _ => None,
        });
        let known: BTreeMap<u32, u32> = known.collect();
        let mut guessed = false;
        for group in by_number {
            match group.ordinal() {
                Some(ordinal) => {
                    guessed = true;
                    self.add(&group, known.get(&ordinal).copied().unwrap_or(ordinal));
                }
                None => {
                    let taken: Vec<u32> = self.gpus.values().copied().collect();
                    let index = (0..).find(|index| !taken.contains(index));
                    self.add(&group, index.unwrap_or_default());
                }
            }
        }
        if guessed {
            self.remarks.push(OF_CUDA.to_owned());
        }
    }

    fn add(&mut self, group: &Aliases, index: u32) {
        for name in &group.names {
            self.gpus.insert(name.clone(), index);
        }
    }

    /// Returns the index of the GPU that a tool names so.
    pub(super) fn gpu(&self, key: &Key, from: &At<'_>) -> Option<u32> {
        self.gpus.get(&name(key, from)).copied()
    }

    /// Returns the indices of two GPUs that a tool names so, if they are two.
    pub(super) fn pair(&self, one: &Key, other: &Key, from: &At<'_>) -> Option<(u32, u32)> {
        let ends = self.gpu(one, from).zip(self.gpu(other, from));
        ends.filter(|(one, other)| one != other)
    }

    /// Returns all GPUs, each with its address if that is known.
    pub(super) fn all(&self) -> BTreeMap<u32, Option<PciAddress>> {
        let mut all: BTreeMap<u32, Option<PciAddress>> = BTreeMap::new();
        for (name, index) in &self.gpus {
            let address = all.entry(*index).or_default();
            if let Name::Pci(known) = name {
                *address = Some(*known);
            }
        }
        all
    }
}

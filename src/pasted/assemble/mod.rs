//! Statements of all sections → one machine: facts with their origins, figures, and what contradicts.

mod figures;
mod ledger;
mod links;
mod missing;
mod names;
mod snapshot;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::scan::Scanned;
use crate::told::{Key, NOT_THERE, Note};
use crate::{Machine, messages, trouble};
use ledger::{At, Ledger};
use links::Bonds;
use model::pasted::{Collective, Explained, Pasted, PastedFault, PastedInput, PastedLine};
use model::reading::{Reading, Taken};
use model::report::MOST_GPUS;
use model::snapshot::{Gpu, GpuPair, Host, NvLink, P2pStatus, Xid, XidKey};
use model::units::{Generation, PciAddress};
use names::Names;
use tree::Tree;

/// Most remarks that are kept.
const MOST_REMARKS: usize = 1000;

/// The kind of the kernel's log.
const LOG: &str = "kernel-log";

/// Most faults, and most problems, that are named.
const MOST_FAULTS: usize = 50;
const MOST_PROBLEMS: usize = 20;
/// Most lines that are kept of one message.
const MOST_ALIKE: usize = 8;

/// What was joined so far.
#[derive(Default)]
struct Joined {
    host: Option<Host>,
    gpus: BTreeMap<u32, Gpu>,
    pairs: BTreeMap<(u32, u32), GpuPair>,
    bonds: Bonds,
    /// Words of matrices of access whose kind is not known.
    words: BTreeMap<(u32, u32), Vec<(P2pStatus, u32)>>,
    links: BTreeMap<u32, BTreeMap<u8, NvLink>>,
    tree: Tree,
    xids: Vec<Xid>,
    /// The places of Xids by address and code.
    xid_places: BTreeMap<XidKey, usize>,
    /// GPUs whose links may not all be there, and whether dots stand for others.
    cut: BTreeMap<u32, bool>,
    /// Number of GPUs that NVML lists.
    listed: Option<u32>,
    /// Input and line of the last error of each function in the kernel's log.
    logged: BTreeMap<PciAddress, (String, u32)>,
    has_log: bool,
    faults: Vec<PastedFault>,
    explained: Vec<Explained>,
    collectives: Vec<Collective>,
    problems: Vec<String>,
    /// Number of further problems like one of these, by its words without figures.
    alike: BTreeMap<String, (usize, usize)>,
    remarks: Vec<String>,
}

/// Returns the words of a problem with those left out that have figures, and are no addresses.
fn shape(problem: &str) -> String {
    let is_kept = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        !word.contains(|c: char| c.is_ascii_digit()) || word.parse::<PciAddress>().is_ok()
    };
    problem.split_whitespace().filter(is_kept).collect::<Vec<_>>().join(" ")
}

/// Returns a line and its place.
fn said(text: &str, pci: Option<PciAddress>, at: &At<'_>) -> PastedLine {
    PastedLine { text: text.to_owned(), pci, input: at.name.to_owned(), line: at.line }
}

/// Returns the facts of a pair.
fn pair_of(
    pairs: &mut BTreeMap<(u32, u32), GpuPair>,
    source: u32,
    destination: u32,
) -> &mut GpuPair {
    let pair = pairs.entry((source, destination));
    pair.or_insert_with(|| GpuPair::unread(source, destination, &NOT_THERE))
}

/// Joins everything that was read. `unread` are sentences on inputs that were not.
///
/// # Errors
///
/// A sentence if there are more GPUs than a report can have.
pub(crate) fn assemble(read: &[Scanned], unread: Vec<String>) -> Result<Machine, String> {
    let sections = read.iter().enumerate().flat_map(|(input, scanned)| {
        scanned.sections.iter().map(move |section| (input, scanned, section))
    });
    let told = sections.flat_map(|(input, scanned, section)| {
        section.told.iter().map(move |told| {
            let at = At { input, name: &scanned.name, kind: &section.shown.kind, line: told.line };
            (at, &told.what)
        })
    });
    let troubles = read.iter().enumerate().flat_map(|(input, scanned)| {
        scanned.troubles.iter().map(move |told| {
            let at = At { input, name: &scanned.name, kind: "", line: told.line };
            (at, &told.what)
        })
    });
    let mut told: Vec<(At<'_>, &Note)> = told.chain(troubles).collect();
    let mut joined = Joined::default();
    let mut ledger = Ledger::default();
    joined.functions(&told, &mut ledger);
    // Without any other list of GPUs, those on the bus or in the kernel's log are the GPUs.
    let of_log = told.iter().filter_map(|(at, what)| match what {
        Note::Xid(xid) if !xid.is_of_switch() => Some(xid.pci),
        Note::Function(function)
            if at.kind == LOG && function.driver.as_deref() == Some("nvidia") =>
        {
            Some(function.facts.address)
        }
        _ => None,
    });
    let mut bus: BTreeSet<PciAddress> = joined.tree.displays().into_iter().collect();
    bus.extend(of_log);
    if bus.len() > MOST_GPUS {
        return Err(format!("names {} GPUs; a report can have {MOST_GPUS} at most", bus.len()));
    }
    let is_named = told.iter().any(|(_, what)| !names::keys(what).is_empty());
    let displays: Vec<(PciAddress, Note)> = bus
        .into_iter()
        .filter(|_| !is_named)
        .map(|address| {
            let mut gpu = Gpu::unread(0, &NOT_THERE);
            gpu.pci = Reading::Known(address);
            (address, Note::Gpu(Key::Pci(address), Box::new(gpu)))
        })
        .collect();
    for (address, what) in &displays {
        let is_it = |what: &Note| match what {
            Note::Function(function) => function.facts.address == *address,
            Note::Xid(xid) => xid.pci == *address,
            _ => false,
        };
        let at = told.iter().find(|(_, what)| is_it(what)).map(|(at, _)| *at);
        told.extend(at.map(|at| (at, what)));
    }
    let mut names = Names::of(&told)?;
    let gpus = names.all().len();
    if gpus > MOST_GPUS {
        return Err(format!("has {gpus} GPUs; a report can have {MOST_GPUS} at most"));
    }
    joined.remarks.append(&mut names.remarks);
    joined.problems.extend(unread);
    ledger.contradictions.append(&mut names.contradictions);
    joined.facts(&told, &names, &mut ledger);
    joined.count_alike();
    let snapshot = joined.snapshot(&names, &mut ledger);
    let measurements = figures::measurements(&told, &names, &mut ledger, &mut joined.remarks);
    let missing = missing::missing(&snapshot, measurements.as_ref(), joined.has_log);
    let inputs = read.iter().map(|scanned| PastedInput {
        name: scanned.name.clone(),
        lines: scanned.lines,
        sections: scanned.sections.iter().map(|section| section.shown.clone()).collect(),
    });
    let mut seen = HashSet::new();
    let mut remarks = joined.remarks;
    remarks.retain(|remark| seen.insert(remark.clone()));
    remarks.truncate(MOST_REMARKS);
    Ok(Machine {
        snapshot,
        measurements,
        pasted: Pasted {
            inputs: inputs.collect(),
            origins: ledger.origins,
            faults: joined.faults,
            explained: joined.explained,
            collectives: joined.collectives,
            contradictions: ledger.contradictions,
            remarks,
            missing,
        },
    })
}

impl Joined {
    fn host(&mut self) -> &mut Host {
        self.host.get_or_insert_with(|| Host::unread(&NOT_THERE))
    }

    /// Joins the PCI functions.
    fn functions(&mut self, told: &[(At<'_>, &Note)], ledger: &mut Ledger) {
        for (at, what) in told {
            if let Note::Function(function) = what {
                let of = format!("pci[{}]", function.facts.address);
                let taken = |key, how| ledger.taken(&of, key, how, *at);
                self.tree.add((**function).clone(), taken);
                if at.kind == LOG {
                    let place = (at.name.to_owned(), at.line);
                    self.logged.insert(function.facts.address, place);
                }
            }
        }
    }

    /// Joins everything else but figures.
    fn facts(&mut self, told: &[(At<'_>, &Note)], names: &Names, ledger: &mut Ledger) {
        for index in names.all().into_keys() {
            self.gpus.insert(index, Gpu::unread(index, &NOT_THERE));
        }
        // Of several starts in a log, the last one counts.
        let of_log = told.iter().rev().filter(|(at, _)| at.kind == LOG);
        let others = told.iter().filter(|(at, _)| at.kind != LOG);
        let mut seen: BTreeSet<(String, Option<u64>, u32, PciAddress)> = BTreeSet::new();
        // Inputs with a start of the machine further below.
        let mut started = BTreeSet::new();
        for (at, what) in others.chain(of_log) {
            match what {
                Note::Host(host) => {
                    if at.kind == LOG && host.kernel_version.known().is_some() {
                        started.insert(at.input);
                    }
                    let taken = |key, how| ledger.taken("host", key, how, *at);
                    self.host().take((**host).clone(), taken);
                }
                Note::Gpu(key, facts) => {
                    if let Some(gpu) =
                        names.gpu(key, at).and_then(|index| self.gpus.get_mut(&index))
                    {
                        take_gpu(gpu, facts, *at, ledger);
                    }
                }
                Note::Pair(one, other, facts) => {
                    if let Some((source, destination)) = names.pair(one, other, at) {
                        let pair = pair_of(&mut self.pairs, source, destination);
                        if facts.common_ancestor.known().is_some()
                            && let Some(links) = self.bonds.remove(&(source, destination))
                        {
                            self.problems.push(format!(
                                "GPU {source} and GPU {destination} had NV{links} in an earlier output, and later none ({at})"
                            ));
                        }
                        let of = format!("pairs[{source}→{destination}]");
                        pair.take((**facts).clone(), |key, how| ledger.taken(&of, key, how, *at));
                    }
                }
                Note::SomeAccess(one, other, word) => {
                    if let Some(ends) = names.pair(one, other, at) {
                        self.words.entry(ends).or_default().push((*word, at.line));
                    }
                }
                Note::Bond(one, other, links) => {
                    if let Some((source, destination)) = names.pair(one, other, at) {
                        let pair = self.pairs.get(&(source, destination));
                        if pair.is_some_and(|pair| pair.common_ancestor.known().is_some()) {
                            self.remarks.push(format!(
                                "GPU {source} and GPU {destination} had no NVLink in an earlier output, and later NV{links} ({at})"
                            ));
                        }
                        self.bond(source, destination, *links, *at, ledger);
                    }
                }
                Note::Link(key, facts) => {
                    if let Some(index) = names.gpu(key, at) {
                        let number = facts.link;
                        let link = self.links.entry(index).or_default().entry(number);
                        let link = link.or_insert_with(|| NvLink::unread(number, &NOT_THERE));
                        let of = format!("gpus[{index}].nvlinks[{number}]");
                        link.take((**facts).clone(), |key, how| ledger.taken(&of, key, how, *at));
                    }
                }
                Note::Xid(xid) => {
                    // Parts of logs are pasted in any order, so that this ends no event.
                    if started.remove(&at.input) {
                        let what = "an event above a start of the machine may be of a time before";
                        self.remarks.push(format!("{what} ({at})"));
                    }
                    // A bug report has the kernel's log several times.
                    let once = (xid.text.clone(), xid.seconds_since_boot, xid.code, xid.pci);
                    if xid.seconds_since_boot.is_none() || seen.insert(once) {
                        self.xid(xid);
                        ledger.origin(format!("host.xids[{}, {}]", xid.pci, xid.code), *at);
                    }
                }
                Note::CutLinks(key, cut) => {
                    if let Some(gpu) = names.gpu(key, at) {
                        let by_dots = self.cut.entry(gpu).or_default();
                        *by_dots |= *cut;
                    }
                }
                Note::Named(number, model) => self.named(*number, model, *at),
                Note::Listed(number) => self.listed = self.listed.or(Some(*number)),
                Note::KernelLog => self.has_log = true,
                Note::Fault(kind, pci, text) => {
                    if self.faults.len() < MOST_FAULTS {
                        let said = said(text, *pci, at);
                        self.faults.push(PastedFault { kind: *kind, said });
                    }
                }
                Note::Problem(problem) => {
                    if let Some(found) = messages::explained(problem) {
                        self.explain(found, said(problem, trouble::address(problem), at));
                        continue;
                    }
                    let (place, times) = self.alike.entry(shape(problem)).or_default();
                    *times += 1;
                    if *times == 1 {
                        *place = self.problems.len();
                        self.problems.push(format!("{problem} ({at})"));
                    }
                }
                Note::Collective(collective) => self.collectives.push(*collective),
                Note::Remark(remark) => self.remarks.push(format!("{remark} ({at})")),
                Note::Same(..)
                | Note::Function(_)
                | Note::Access(..)
                | Note::Peer(..)
                | Note::Local(..)
                | Note::HostCopy(..)
                | Note::Latency(..) => {}
            }
        }
    }

    /// Takes the model of all GPUs, if nothing else names one. What tools print comes first.
    fn named(&mut self, number: usize, model: &str, at: At<'_>) {
        let is_free = self.gpus.values().all(|gpu| gpu.name.known().is_none());
        if is_free && number == self.gpus.len() {
            let all = self.gpus.values_mut();
            all.for_each(|gpu| gpu.name = Reading::Known(model.to_owned()));
            self.remarks.push(format!("a sentence names the model: {model} (inferred; {at})"));
        }
    }

    /// Adds a line of a message that is known, unless it has many.
    fn explain(&mut self, mut found: Explained, said: PastedLine) {
        match self.explained.iter_mut().find(|one| one.meaning == found.meaning) {
            Some(known) if known.lines.len() < MOST_ALIKE => known.lines.push(said),
            Some(_) => {}
            None => {
                found.lines.push(said);
                self.explained.push(found);
            }
        }
    }

    /// Names how many problems are like one that is named.
    fn count_alike(&mut self) {
        for (place, times) in std::mem::take(&mut self.alike).into_values() {
            if let Some(problem) = self.problems.get_mut(place).filter(|_| times > 1) {
                *problem += &format!(", and {} alike", times - 1);
            }
        }
    }

    fn bond(&mut self, source: u32, destination: u32, links: u8, at: At<'_>, ledger: &mut Ledger) {
        let of = format!("bonds[{source}→{destination}]");
        let known = self.bonds.get(&(source, destination)).copied();
        let how = match known {
            None => Taken::New,
            Some(known) if known == links => Taken::Same,
            Some(known) => {
                Taken::Other { kept: format!("NV{known}"), refused: format!("NV{links}") }
            }
        };
        self.bonds.entry((source, destination)).or_insert(links);
        ledger.taken(&of, "links", how, at);
    }

    /// Adds an Xid to those alike. The log is read backwards: the first one is the last.
    fn xid(&mut self, xid: &Xid) {
        let place = *self.xid_places.entry(xid.key()).or_insert(self.xids.len());
        match self.xids.get_mut(place) {
            Some(known) => {
                known.times = known.times.saturating_add(1);
                let link = |text: &str| {
                    let (_, rest) = text.split_once("Link ")?;
                    Some(rest.split(|c: char| !c.is_ascii_digit()).next()?.to_owned())
                };
                let new = link(&xid.text).filter(|new| {
                    let mut words = known.text.split([' ', ',']);
                    xid.is_of_switch() && !words.any(|word| word == new)
                });
                if let Some(new) = new.filter(|_| known.text.len() < 400) {
                    known.text += &format!(", also link {new}");
                }
            }
            None => self.xids.push(xid.clone()),
        }
    }
}

/// Takes facts of a GPU. A link shows a lower generation at rest: of two readings the higher one counts.
fn take_gpu(gpu: &mut Gpu, facts: &Gpu, at: At<'_>, ledger: &mut Ledger) {
    let of = format!("gpus[{}]", gpu.index);
    let higher: Option<Generation> = gpu
        .pcie_generation
        .get()
        .zip(facts.pcie_generation.get())
        .map(|(one, other)| one.max(other));
    gpu.take(facts.clone(), |key, how| ledger.taken(&of, key, how, at));
    if let Some(higher) = higher {
        gpu.pcie_generation = Reading::Known(higher);
    }
}

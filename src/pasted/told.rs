//! What the output of tools says: statements about a machine, each with its line.

use model::flow::Setup;
use model::host::HostWay;
use model::measurement::Verified;
use model::pasted::{Collective, PastedFaultKind};
use model::placement::Path;
use model::reading::{Reading, Unknown};
use model::snapshot::{Gpu, GpuPair, Host, NvLink, P2pStatus, PciFunction, PciKind, Xid};
use model::units::{Bytes, PciAddress};

/// The reason why a fact is unknown that no output has.
pub(crate) const NOT_THERE: Unknown =
    Unknown::NotRead(std::borrow::Cow::Borrowed("not in the input"));

/// A GPU as a tool names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// NVML's index, as nvidia-smi shows it.
    Index(u32),
    /// CUDA's number in the program that printed it.
    Ordinal(u32),
    Pci(PciAddress),
    Uuid(String),
}

/// A statement about the machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Note {
    Host(Box<Host>),
    /// Facts of a GPU. The index in them has no meaning.
    Gpu(Key, Box<Gpu>),
    /// Two names of one GPU.
    Same(Key, Key),
    /// Number of GPUs that NVML lists.
    Listed(u32),
    /// Number and model of GPUs in a sentence.
    Named(usize, String),
    /// Facts of a pair; source and destination in them have no meaning.
    Pair(Key, Key, Box<GpuPair>),
    /// A word of a matrix of access whose kind is not known.
    SomeAccess(Key, Key, P2pStatus),
    /// Number of NVLinks between two GPUs.
    Bond(Key, Key, u8),
    Link(Key, Box<NvLink>),
    /// A PCI function. Its parent and host bridge are not known yet.
    Function(Box<Function>),
    Xid(Box<Xid>),
    /// CUDA's answer on peer access.
    Access(Key, Key, bool),
    Peer(Key, Key, Setup, Printed),
    Local(Key, Bytes, Printed),
    HostCopy(Key, HostWay, Bytes, Printed),
    Latency(Key, Key, Path, Printed),
    /// The list of this GPU's NVLinks ends with the input, and may be whole; true: it ends with dots that stand for others.
    CutLinks(Key, bool),
    /// A fault of the machine, in the tool's words. Address of the GPU, if it is there.
    Fault(PastedFaultKind, Option<PciAddress>, String),
    /// The highest bus bandwidth of a collective within one machine.
    Collective(Collective),
    /// An error that may be none of the machine's, or something that was not understood, in the tool's words. The machine is
    /// not healthy by this input.
    Problem(String),
    /// How the output was read where it leaves room.
    Remark(String),
    /// The kernel's log was given.
    KernelLog,
}

/// A figure: GB/s, or microseconds for latencies. NaN: its bytes were checked, and its rate is not in the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Printed {
    pub value: f64,
    pub samples: u32,
    pub verified: Verified,
}

/// A PCI function, with the buses of a bridge.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Function {
    pub facts: PciFunction,
    /// First and last bus behind a bridge.
    pub buses: Option<(u8, u8)>,
    pub driver: Option<String>,
    /// Name of the model.
    pub name: Option<String>,
}

impl Function {
    /// Returns a function of which nothing else is known.
    pub(crate) fn of(address: PciAddress, kind: PciKind) -> Self {
        let facts = PciFunction::unread(address, None, String::new(), kind, &NOT_THERE);
        Self { facts, buses: None, driver: None, name: None }
    }
}

/// A statement and its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub line: u32,
    pub what: Note,
}

/// What a reader took from a section.
#[derive(Debug)]
pub(crate) struct Notes {
    /// Number of statements that may still be added.
    pub left: usize,
    /// The line from which on statements were dropped, because there were too many.
    pub full: Option<u32>,
    pub told: Vec<Told>,
    /// Version of the tool.
    pub version: Option<String>,
    /// Number of lines that a reader looked at in vain, if they were many.
    pub in_vain: usize,
}

impl Notes {
    /// Returns notes that may have this many statements.
    pub(crate) fn within(left: usize) -> Self {
        Self { left, full: None, told: Vec::new(), version: None, in_vain: 0 }
    }

    pub(crate) fn add(&mut self, line: u32, what: Note) {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.told.push(Told { line, what });
            }
            None => self.full = self.full.or(Some(line)),
        }
    }

    /// Adds facts of the host.
    pub(crate) fn host(&mut self, line: u32, set: impl FnOnce(&mut Host)) {
        let mut host = Host::unread(&NOT_THERE);
        set(&mut host);
        self.add(line, Note::Host(Box::new(host)));
    }

    /// Adds facts of a GPU.
    pub(crate) fn gpu(&mut self, line: u32, key: &Key, set: impl FnOnce(&mut Gpu)) {
        let mut gpu = Gpu::unread(0, &NOT_THERE);
        set(&mut gpu);
        self.add(line, Note::Gpu(key.clone(), Box::new(gpu)));
    }

    /// Adds the address of a GPU, and more facts of it.
    pub(crate) fn at(
        &mut self,
        line: u32,
        key: &Key,
        address: PciAddress,
        set: impl FnOnce(&mut Gpu),
    ) {
        self.same(line, key.clone(), Key::Pci(address));
        self.gpu(line, key, |gpu| {
            gpu.pci = Reading::Known(address);
            set(gpu);
        });
    }

    /// Adds facts of a pair.
    pub(crate) fn pair(
        &mut self,
        line: u32,
        source: &Key,
        destination: &Key,
        set: impl FnOnce(&mut GpuPair),
    ) {
        let mut pair = GpuPair::unread(0, 0, &NOT_THERE);
        set(&mut pair);
        let what = Note::Pair(source.clone(), destination.clone(), Box::new(pair));
        self.add(line, what);
    }

    /// Adds facts of an NVLink.
    pub(crate) fn link(&mut self, line: u32, key: &Key, number: u8, set: impl FnOnce(&mut NvLink)) {
        let mut link = NvLink::unread(number, &NOT_THERE);
        set(&mut link);
        self.add(line, Note::Link(key.clone(), Box::new(link)));
    }

    /// Adds that a copy between two GPUs moved nothing.
    pub(crate) fn nothing(&mut self, line: u32, from: usize, to: usize) {
        let words = format!("0.00 GB/s between {from} and {to}");
        self.add(line, Note::Fault(PastedFaultKind::TestFailed, None, words));
    }

    pub(crate) fn same(&mut self, line: u32, one: Key, other: Key) {
        self.add(line, Note::Same(one, other));
    }
}

impl Printed {
    /// Returns a figure that cannot be checked against its bytes.
    pub(crate) const fn of(value: f64, samples: u32) -> Self {
        Self { value, samples, verified: Verified::Skipped }
    }

    /// Returns a part of it, such as half of a sum of both directions.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, ..self }
    }
}

/// Length of a UUID (RFC 9562).
const UUID: usize = 36;

/// Returns true for a whole UUID of a GPU. One that was blanked does not tell GPUs apart.
pub(crate) fn is_uuid(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("GPU-") else {
        return false;
    };
    let is_hex = rest.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_hex && rest.len() == UUID && rest.bytes().any(|byte| byte != b'0' && byte != b'-')
}

/// Returns true for what people write in place of lines that they leave out: `......`, `[...]`, `<snip>`, `…`.
pub(crate) fn stands_for_more(text: &str) -> bool {
    let inside = text.trim_matches(['[', ']', '<', '>', '(', ')', '-', ' ', '*', '#']);
    let is_dots = !inside.is_empty() && inside.chars().all(|c| ".… ".contains(c));
    let starts = ["...", "…", "snip", "etc", "cut", "omitted", "truncated"];
    let begins = |start: &&str| {
        let head = inside.as_bytes().get(..start.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes()))
    };
    is_dots || starts.iter().any(begins)
}

/// Reads a rate or a time. Text that is no number, or a number that cannot be one, is none.
pub(crate) fn number(text: &str) -> Option<f64> {
    let value: f64 = text.trim_end_matches(',').parse().ok()?;
    (0.0..1e6).contains(&value).then_some(value)
}

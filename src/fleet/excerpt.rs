//! The part of a report that a digest is made from. The keys are those of docs/report.md; other keys are not read.

use serde::Deserialize;

use model::finding::{Severity, Subject};
use model::flow::HostMemory;
use model::load::Pattern;
use model::measurement::{Status, Verified};
use model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use model::report::Verdict;
use model::topology::LinkClass;
use model::units::{Generation, Lanes};

/// The part of a report that a fleet reads.
#[derive(Debug, Deserialize)]
pub(crate) struct Excerpt {
    pub schema: String,
    pub tool: Tool,
    pub started_at: String,
    pub machine: String,
    #[serde(default)]
    pub request: Request,
    pub snapshot: Snapshot,
    pub topology: Topology,
    pub measurements: Option<Measurements>,
    pub findings: Vec<Finding>,
    pub verdict: Verdict,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Tool {
    pub version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    pub gpus_left_out: u32,
    pub probes_left_out: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Snapshot {
    pub host: Host,
    pub gpus: Vec<Gpu>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Host {
    pub hostname: Option<String>,
    pub driver_version: Option<String>,
    pub cuda_version: Option<String>,
    pub kernel_version: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Gpu {
    pub index: u32,
    pub pci: Option<String>,
    pub uuid: Option<String>,
    pub name: Option<String>,
    pub serial: Option<String>,
    pub vbios: Option<String>,
    pub numa_node: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Topology {
    pub links: Vec<Link>,
    pub pairs: Vec<Route>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Link {
    pub upper: String,
    pub lower: String,
    pub kind: String,
    pub label: String,
    pub capacity_gbps: Option<f64>,
    pub possible_gbps: Option<f64>,
    #[serde(default)]
    pub pcie: Option<Pcie>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pcie {
    pub gpu: Option<u32>,
    #[serde(default)]
    pub slot: Option<String>,
    pub now: Shape,
    pub possible: Shape,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Shape {
    pub generation: Option<Generation>,
    pub width: Option<Lanes>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Route {
    pub source: u32,
    pub destination: u32,
    pub class: LinkClass,
    #[serde(default)]
    pub peer_access: Access,
}

impl Route {
    pub(crate) const fn pair(&self) -> Pair {
        Pair {
            source: self.source,
            destination: self.destination,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Access {
    pub cuda: Option<bool>,
    pub cuda_failure: Option<String>,
}

impl Access {
    /// Returns true if CUDA lets the GPUs reach each other.
    pub(crate) fn is_direct(&self) -> bool {
        self.cuda == Some(true) && self.cuda_failure.is_none()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Measurements {
    pub profile: String,
    #[serde(default)]
    pub interrupted: bool,
    #[serde(default)]
    pub cut_off: bool,
    #[serde(default)]
    pub peer: Vec<Peer>,
    #[serde(default)]
    pub latency: Vec<Latency>,
    #[serde(default)]
    pub local: Vec<Local>,
    #[serde(default)]
    pub host: Vec<HostCopy>,
    #[serde(default)]
    pub load: Vec<Load>,
    #[serde(default)]
    pub counted: Vec<Counted>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Peer {
    pub source: u32,
    pub destination: u32,
    pub placement: Placement,
    pub issuer: Side,
    pub engine: Engine,
    pub direction: Direction,
    pub path: Path,
    pub bytes: u64,
    pub achieved_gbps: Option<f64>,
    pub percent: Option<f64>,
    pub verified: Verified,
    pub status: Status,
    #[serde(default)]
    pub disturbed: bool,
}

impl Peer {
    pub(crate) const fn pair(&self) -> Pair {
        Pair {
            source: self.source,
            destination: self.destination,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Latency {
    pub source: u32,
    pub destination: u32,
    pub path: Path,
    pub bytes: u64,
    pub latency_us: Option<f64>,
    pub status: Status,
    #[serde(default)]
    pub disturbed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Local {
    pub gpu: u32,
    pub bytes: u64,
    pub achieved_gbps: Option<f64>,
    pub status: Status,
    #[serde(default)]
    pub disturbed: bool,
}

/// A copy between host and GPU. Every key may be missing: older reports contain fewer of them.
#[derive(Debug, Deserialize)]
pub(crate) struct HostCopy {
    pub gpu: Option<u32>,
    pub numa_node: Option<u32>,
    pub memory: Option<HostMemory>,
    pub direction: Option<String>,
    pub engine: Option<String>,
    pub allocation: Option<String>,
    pub at_once: Option<u32>,
    pub bytes: Option<u64>,
    pub achieved_gbps: Option<f64>,
    pub percent: Option<f64>,
    pub verified: Option<Verified>,
    pub status: Option<Status>,
    #[serde(default)]
    pub disturbed: bool,
}

/// Several flows at once, without the single flows, which the rules judge.
#[derive(Debug, Deserialize)]
pub(crate) struct Load {
    pub pattern: Pattern,
    #[serde(default)]
    pub of: String,
    pub bytes: u64,
    pub achieved_gbps: Option<f64>,
    #[serde(default)]
    pub percent: Option<f64>,
    pub verified: Verified,
    pub status: Status,
    #[serde(default)]
    pub disturbed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Counted {
    pub gpu: u32,
    pub pattern: Pattern,
    #[serde(default)]
    pub of: String,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub nvlink_sent_bytes: Option<u64>,
    pub nvlink_received_bytes: Option<u64>,
    #[serde(default)]
    pub links: Vec<LinkShare>,
    #[serde(default)]
    pub disturbed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LinkShare {
    #[serde(default)]
    pub sent_percent: Option<f64>,
    #[serde(default)]
    pub received_percent: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    pub code: String,
    pub severity: Severity,
    pub subject: Subject,
    pub message: String,
}

//! # What it means
//!
//! A GPU may not reach the memory of another directly: copies between them go through the host's
//! memory.
//!
//! # How it is detected
//!
//! CUDA's word decides where CUDA was asked, else NVML's. The message shows both, since they
//! differ on machines with patched drivers, and the rate of the staged copies beside them. It is an
//! error where another pair of the same GPU models, at the same distance or farther, or over the
//! same NVSwitch, has access, and for one direction where the other has it; and wherever CUDA gave
//! an error instead of an answer, or said yes and then did not grant it, whatever other pairs do.
//! Otherwise, and with MIG, it is how this machine is made, and one warning tells all pairs.
//!
//! # Why it matters
//!
//! Staged copies are slower (35 to 38 instead of 396 GB/s on H200), take the host's memory
//! bandwidth, and hold up the thread that issues them.
//!
//! # What to do
//!
//! GeForce and other workstation boards: the driver of NVIDIA does not allow it, there is nothing
//! to repair. In a virtual machine `CNS` is the emulated chipset: the host must pass the GPUs
//! through with peer-to-peer on. Error 711: more than eight peers of one GPU without NVSwitch. One
//! GPU or pair of several alike: check that it hangs on the same switch or processor as its like,
//! that ACS and IOMMU settings are the same everywhere, and that its BAR1 window is as large. An
//! error of CUDA is the driver's trouble and no policy: look for its messages in dmesg (NVRM, Xid).
//!
//! # Sources
//!
//! `nvidia-smi topo -p2p` (CNS chipset, GNS GPU, TNS topology not supported, DR disabled by
//! registry key, NS not supported); CUDA driver API, `cuCtxEnablePeerAccess`; measured on 8 x H200.

use std::collections::HashMap;

use serde_json::json;

use crate::diagnose::cluster::{self, Common};
use crate::diagnose::rule::{Evidence, Rule, finding};
use crate::diagnose::words;
use crate::model::finding::{Finding, Severity, Subject};
use crate::model::measurement::{PeerAccess, Status};
use crate::model::placement::{Pair, Path};
use crate::model::snapshot::P2pStatus;
use crate::model::topology::{LinkClass, PairRoute};
use crate::model::units::GbPerSecond;
use crate::topology::passes_nvswitch;

/// See the module's documentation.
pub struct PeerAccessMissing;

impl Rule for PeerAccessMissing {
    fn code(&self) -> &'static str {
        "peer-access-missing"
    }

    fn severity(&self) -> Severity {
        Severity::Error
    }

    fn source(&self) -> &'static str {
        include_str!("peer_access_missing.rs")
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let routes = &evidence.topology.pairs;
        let missing: Vec<_> = routes.iter().filter(|route| access(evidence, route) == Some(false)).collect();
        let (broken, refused): (Vec<&PairRoute>, Vec<_>) =
            missing.into_iter().partition(|route| errored(evidence, route.pair));
        let farthest = farthest_with_access(evidence);
        let like_pair_has_it = |route: &PairRoute| {
            farthest.get(&models(evidence, route.pair)).is_some_and(|far| *far >= distance(route.class))
        };
        let (odd, usual): (Vec<&PairRoute>, Vec<_>) =
            refused.into_iter().partition(|route| !in_mig(evidence, route.pair) && like_pair_has_it(route));

        let seen: Vec<_> =
            routes.iter().filter(|route| access(evidence, route).is_some()).map(|route| route.pair).collect();
        let groups = |routes: &[&PairRoute]| {
            let bad: Vec<_> = routes.iter().map(|route| route.pair).collect();
            cluster::groups(&bad, &seen, evidence.topology)
        };
        let mut findings: Vec<_> = groups(&odd).iter().map(|group| self.fault(evidence, group)).collect();
        findings.extend(groups(&broken).iter().map(|group| self.driver_trouble(evidence, group)));
        if !usual.is_empty() {
            let known = if odd.is_empty() && broken.is_empty() { seen.len() } else { 0 };
            findings.push(self.as_made(evidence, &usual, known));
        }
        findings
    }
}

impl PeerAccessMissing {
    fn fault(&self, evidence: &Evidence<'_>, group: &cluster::Group) -> Finding {
        let routes: Vec<_> = group.pairs.iter().filter_map(|pair| evidence.topology.route(*pair)).collect();
        let place = match (&group.common, group.pairs.as_slice()) {
            (Common::OnePair, [pair]) => format!(
                "from {} to {}, while other pairs like it, or the other direction, have it",
                words::gpu(evidence.snapshot, pair.source),
                words::gpu(evidence.snapshot, pair.destination)
            ),
            (Common::OnePair, _) => group.place(evidence.snapshot) + ", while other pairs like it have it",
            _ => group.place(evidence.snapshot) + ", while other GPUs of this machine have it",
        };
        let next_step = match group.common {
            Common::Gpu(index) => format!(
                "Compare GPU {index} with the others: the switch or processor that it hangs on, the ACS and IOMMU \
                 settings of the bridges above it (lspci -vvv), the size of its BAR1 window (nvidia-smi -q), and \
                 whether a fabric manager, where there is one, knows it"
            ),
            _ => "Compare these GPUs with a pair that has access: the switch or processor that they hang on, the ACS \
                 and IOMMU settings of the bridges above them (lspci -vvv), and the size of their BAR1 windows \
                 (nvidia-smi -q)"
                .into(),
        };
        self.finding(evidence, group.subject(), format!("No peer access {place}"), &routes, next_step)
    }

    /// CUDA gave an error, which is neither a yes nor a no.
    fn driver_trouble(&self, evidence: &Evidence<'_>, group: &cluster::Group) -> Finding {
        let routes: Vec<_> = group.pairs.iter().filter_map(|pair| evidence.topology.route(*pair)).collect();
        let message =
            format!("Peer access {} could not be had, for an error of the driver", group.place(evidence.snapshot));
        let next_step = "Look for the driver's messages (dmesg | grep -iE 'nvrm|xid'); reload the driver or reboot, and \
             check again. If it stays, compare with the same driver version on another machine, and with patches to \
             the driver that force peer access";
        self.finding(evidence, group.subject(), message, &routes, next_step.into())
    }

    /// One warning for all pairs that no like pair shows to be out of the ordinary.
    fn as_made(&self, evidence: &Evidence<'_>, routes: &[&PairRoute], known: usize) -> Finding {
        let pairs: Vec<_> = routes.iter().map(|route| route.pair).collect();
        let which = if pairs.len() == known { "any pair of GPUs".to_owned() } else { words::pairs(&pairs) };
        let (cause, next_step) = if pairs.iter().all(|pair| in_mig(evidence, *pair)) {
            (
                "MIG mode is on, which excludes it",
                "Nothing to repair; switch MIG off (nvidia-smi -mig 0) if these GPUs are to exchange data",
            )
        } else if evidence.virtual_machine() {
            (
                "this is a virtual machine, whose host decides on it",
                "Ask whoever runs the host whether the GPUs are passed through with peer-to-peer enabled",
            )
        } else {
            (
                "no like pair has it, so driver policy or the way this machine is built is the likely reason",
                "Nothing to repair if these are GeForce or other boards that the driver refuses it; otherwise look at \
                 ACS and IOMMU settings and at nvidia-smi topo -p2p r",
            )
        };
        let message = format!("No peer access for {which}; {cause}");
        let mut found = self.finding(evidence, Subject::Machine, message, routes, next_step.into());
        found.severity = Severity::Warning;
        found
    }

    fn finding(
        &self,
        evidence: &Evidence<'_>,
        subject: Subject,
        message: String,
        routes: &[&PairRoute],
        next_step: String,
    ) -> Finding {
        let nvml: Vec<_> = routes.iter().map(|route| nvml_word(&route.peer_access)).collect();
        let cuda: Vec<_> = routes.iter().map(|route| cuda_word(&route.peer_access)).collect();
        let (nvml, cuda) =
            (words::distinct(nvml.iter().map(String::as_str)), words::distinct(cuda.iter().map(String::as_str)));
        let rates = staged_rates(evidence);
        let staged: Vec<_> = routes.iter().filter_map(|route| rates.get(&route.pair)).map(|rate| rate.0).collect();
        let lowest = staged.iter().copied().min_by(f64::total_cmp).map(GbPerSecond);
        let highest = staged.iter().copied().max_by(f64::total_cmp).map(GbPerSecond);
        let measured = match (lowest, highest) {
            (Some(low), Some(high)) if low.to_string() == high.to_string() => {
                format!("; staged copies reach {low} GB/s")
            }
            (Some(low), Some(high)) => format!("; staged copies reach {low} to {high} GB/s"),
            _ => String::new(),
        };
        let pairs: Vec<_> = routes.iter().map(|route| route.pair.to_string()).collect();
        finding(
            self,
            subject,
            format!("{message}. NVML says {nvml}, CUDA {cuda}{measured}"),
            [
                ("nvml_read_write", json!(nvml)),
                ("cuda", json!(cuda)),
                ("staged_lowest_gbps", json!(lowest)),
                ("staged_highest_gbps", json!(highest)),
                ("pairs", json!(pairs)),
            ],
            next_step,
        )
    }
}

/// Whether the source reaches the destination's memory: CUDA's word where it was asked, or else
/// NVML's. An error of CUDA's is no access.
fn access(evidence: &Evidence<'_>, route: &PairRoute) -> Option<bool> {
    if errored(evidence, route.pair) {
        return Some(false);
    }
    let said = &route.peer_access;
    said.cuda.or_else(|| {
        let words = [said.nvml_read, said.nvml_write].map(|word| word.filter(|word| *word != P2pStatus::Unknown));
        let refused = words.iter().flatten().any(|word| *word != P2pStatus::Ok);
        words.iter().any(Option::is_some).then_some(!refused)
    })
}

/// Whether CUDA was asked about this pair and gave an error. A GPU that could not be opened was not
/// asked: that is told by other rules.
fn errored(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let said = evidence.measurements.and_then(|measurements| measurements.driver.said_of(pair));
    said.is_some_and(|said| said.failure.is_some())
}

fn nvml_word(said: &PeerAccess) -> String {
    let word =
        |word: Option<P2pStatus>| word.map_or("nothing".to_owned(), |word| format!("{word} ({})", word.meaning()));
    if said.nvml_read == said.nvml_write {
        word(said.nvml_read)
    } else {
        format!("{} for reading, {} for writing", word(said.nvml_read), word(said.nvml_write))
    }
}

fn cuda_word(said: &PeerAccess) -> String {
    match (said.cuda, &said.cuda_failure) {
        (Some(true), Some(why)) => format!("yes, and then {why}"),
        (Some(true), None) => "yes".into(),
        (Some(false), _) => "no".into(),
        (None, Some(why)) => format!("gave an error ({why})"),
        (None, None) => "was not asked".into(),
    }
}

/// What staged copies reach, in the reference placement or else in the first that was measured.
fn staged_rates(evidence: &Evidence<'_>) -> HashMap<Pair, GbPerSecond> {
    let cells = evidence.measurements.map_or(&[][..], |measurements| &measurements.peer);
    let staged = cells.iter().filter(|cell| cell.path == Path::Staged && cell.status == Status::Measured);
    let mut rates = HashMap::new();
    for cell in staged {
        if let Some(rate) = cell.achieved_gbps {
            rates.entry(cell.pair).or_insert(rate);
        }
    }
    let reference = evidence.reference(Path::Staged);
    rates.extend(reference.into_iter().filter_map(|(pair, cell)| Some((pair, cell.achieved_gbps?))));
    rates
}

fn in_mig(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let mig = |index| evidence.snapshot.gpu(index).is_some_and(|gpu| gpu.mig.get() == Some(true));
    mig(pair.source) || mig(pair.destination)
}

/// Distance of a class; NVLinks are near however many they are.
fn distance(class: LinkClass) -> u8 {
    match class {
        LinkClass::NvLink(_) => 0,
        LinkClass::Pix => 1,
        LinkClass::Pxb => 2,
        LinkClass::Phb => 3,
        LinkClass::Node => 4,
        LinkClass::Sys => 5,
        LinkClass::Unknown => 6,
    }
}

/// The models of a pair's GPUs, in one order.
type Models<'a> = [Option<&'a String>; 2];

fn models<'a>(evidence: &Evidence<'a>, pair: Pair) -> Models<'a> {
    let model = |index| evidence.snapshot.gpu(index).and_then(|gpu| gpu.name.known());
    let (one, other) = (model(pair.source), model(pair.destination));
    if one < other { [one, other] } else { [other, one] }
}

/// How far apart two GPUs of these models are that have access nevertheless: the farthest of them.
/// A nearer pair proves nothing (many machines allow it below one switch only), unless it is near
/// through an NVSwitch, which should join the others as well.
fn farthest_with_access<'a>(evidence: &Evidence<'a>) -> HashMap<Models<'a>, u8> {
    let mut farthest = HashMap::new();
    for route in &evidence.topology.pairs {
        if access(evidence, route) == Some(true) {
            let far = if passes_nvswitch(route) { u8::MAX } else { distance(route.class) };
            let known = farthest.entry(models(evidence, route.pair)).or_insert(far);
            *known = far.max(*known);
        }
    }
    farthest
}

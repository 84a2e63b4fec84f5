//! One verdict for all users of peer access: what to set where it failed. `docs/forecast.md` describes it.

use std::collections::{BTreeMap, BTreeSet};

use model::finding::{Finding, Severity};
use model::measurement::Rung;
use model::placement::Pair;
use model::report::Report;
use model::veto::{FailedPair, PairsFile, Setting, Veto};

use super::forecast::{Level, Machine};

/// What a finding says that programs must not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fails {
    /// Peer access.
    Access,
    /// Peer access, if it was not seen to work: the finding may be about staged copies alone.
    AccessUnlessSeen,
    /// Peer access, if CUDA granted it and then refused.
    AccessThoughGranted,
    /// Memory of `cuMemCreate` that processes share by descriptor.
    Descriptors,
    /// Memory that processes share by the older handles.
    Handles,
}

/// The codes of findings that take something away.
const CODES: [(&str, Fails); 12] = [
    ("peer-access-broken", Fails::Access),
    ("load-data-wrong", Fails::Access),
    ("blocks-wrong", Fails::Access),
    ("bytes-wrong-over-time", Fails::Access),
    ("copy-lost-over-time", Fails::Access),
    ("live-talk-failed", Fails::Access),
    ("live-order-broken", Fails::Access),
    ("peer-data-wrong", Fails::AccessUnlessSeen),
    ("peer-copy-hung", Fails::AccessUnlessSeen),
    ("peer-copy-failed", Fails::AccessUnlessSeen),
    ("peer-access-missing", Fails::AccessThoughGranted),
    ("peer-access-one-way", Fails::AccessThoughGranted),
];

type Failed = BTreeMap<(u32, u32), BTreeSet<(Fails, String)>>;

/// Returns what to set so that no program uses what failed; `None` if nothing did.
pub fn veto(report: &Report) -> Option<Veto> {
    let machine = Machine::of(report);
    let failed = failed(report, &machine);
    if failed.is_empty() {
        return None;
    }
    let is_access = |fails: Fails| !matches!(fails, Fails::Descriptors | Fails::Handles);
    let with = |wanted: &dyn Fn(Fails) -> bool| -> BTreeSet<(u32, u32)> {
        let of = failed.iter();
        of.filter(|(_, why)| why.iter().any(|(fails, _)| wanted(*fails)))
            .map(|(pair, _)| *pair)
            .collect()
    };
    let access = with(&is_access);
    let descriptors = with(&|fails| fails == Fails::Descriptors);
    let handles = with(&|fails| fails == Fails::Handles);
    let listed = failed.iter().map(|(pair, why)| FailedPair {
        pair: Pair { source: pair.0, destination: pair.1 },
        codes: why.iter().map(|(_, code)| code.clone()).collect(),
        access: access.contains(pair),
    });
    let without_vllm: BTreeSet<_> = access.union(&handles).copied().collect();
    Some(Veto {
        failed: listed.collect(),
        environment: environment(&machine, &access, &descriptors, &handles),
        pairs_file: (!without_vllm.is_empty())
            .then(|| pairs_file(report, &machine, &without_vllm))
            .flatten(),
        by_hand: by_hand(&access),
    })
}

fn failed(report: &Report, machine: &Machine<'_>) -> Failed {
    let mut failed = Failed::new();
    let known: BTreeSet<(u32, u32)> = machine.pairs().collect();
    let severe = |finding: &&Finding| finding.severity >= Severity::Warning;
    for finding in report.findings.iter().filter(severe) {
        let code = finding.code.to_string();
        let Some((_, fails)) = CODES.iter().find(|(known, _)| *known == code) else {
            continue;
        };
        for pair in finding.scope.pairs.iter().map(|pair| pair.unordered()) {
            let counts = match fails {
                Fails::AccessUnlessSeen => machine.bytes_arrive(pair) != Some(true),
                Fails::AccessThoughGranted => was_granted(report, pair),
                _ => true,
            };
            if counts && known.contains(&pair) {
                failed.entry(pair).or_default().insert((*fails, code.clone()));
            }
        }
    }
    // One pair was tried, and what refuses it is the process, the system or the driver: it refuses every pair.
    for (fails, code) in refused(report) {
        for pair in &known {
            let why = failed.entry(*pair).or_default();
            why.insert((fails, code.to_owned()));
        }
    }
    failed
}

/// Returns the ways to share memory of GPUs that processes cannot use, and the codes of the findings on them.
fn refused(report: &Report) -> BTreeSet<(Fails, &'static str)> {
    let cells = report.measurements.iter().flat_map(|all| &all.sharing);
    let refused = cells.filter_map(|cell| {
        let fails = match cell.rung {
            Rung::Descriptor => Fails::Descriptors,
            Rung::LegacyMemory => Fails::Handles,
            _ => return None,
        };
        match (cell.works, cell.verified.is_wrong()) {
            (_, true) => Some((fails, "shared-bytes-wrong")),
            (Some(false), _) => Some((fails, "sharing-refused")),
            _ => None,
        }
    });
    refused.collect()
}

/// Returns true if CUDA said that access is possible, and then did not enable it.
fn was_granted(report: &Report, pair: (u32, u32)) -> bool {
    let driver = report.measurements.as_ref().map(|all| &all.driver);
    let mut said = driver.into_iter().flat_map(|driver| &driver.peer_access);
    said.any(|said| {
        said.pair.unordered() == pair
            && said.possible == Some(true)
            && said.failure.is_some()
            && !said.hindered
    })
}

fn environment(
    machine: &Machine<'_>,
    access: &BTreeSet<(u32, u32)>,
    descriptors: &BTreeSet<(u32, u32)>,
    handles: &BTreeSet<(u32, u32)>,
) -> Vec<Setting> {
    let nccl = |name: &str, value: &str, effect: &str| Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        program: "NCCL".to_owned(),
        effect: effect.to_owned(),
    };
    let torch = |name: &str, value: &str, effect: &str| Setting {
        program: "PyTorch".to_owned(),
        ..nccl(name, value, effect)
    };
    let mut all = Vec::new();
    let no_access = nccl("NCCL_P2P_DISABLE", "1", "peer access of all pairs");
    if !access.is_empty() {
        all.push(match level_without(machine, access) {
            Some(level) => {
                nccl("NCCL_P2P_LEVEL", level.word(), "peer access of pairs that are farther apart")
            }
            None => no_access,
        });
        all.push(torch("ENABLE_INTRA_NODE_COMM", "0", "PyTorch's own all-reduce by peer access"));
    } else if !descriptors.is_empty() && !handles.is_empty() {
        all.push(no_access);
    } else if !descriptors.is_empty() {
        all.push(nccl(
            "NCCL_CUMEM_ENABLE",
            "0",
            "memory that is shared by descriptor; NCCL takes handles of CUDA IPC",
        ));
    }
    if !descriptors.is_empty() {
        all.push(torch(
            "PYTORCH_CUDA_ALLOC_CONF",
            "expandable_segments:False",
            "memory that is shared by descriptor",
        ));
    }
    all
}

/// Returns the farthest level that leaves out every failed pair and keeps one that works. None is farther than NCCL's
/// lowest default, or than what is set: a level must not give a way.
fn level_without(machine: &Machine<'_>, access: &BTreeSet<(u32, u32)>) -> Option<Level> {
    let variables = machine.variables;
    if variables.number("NCCL_P2P_DISABLE") == Some(1) {
        return None;
    }
    let set = variables.get("NCCL_P2P_LEVEL").and_then(Level::of);
    let level_of = |pair: (u32, u32)| machine.path(pair).map(|(level, _)| level);
    let nearest: Option<Vec<Level>> = access.iter().map(|pair| level_of(*pair)).collect();
    let nearest = nearest?.into_iter().min()?;
    let allowed = [Level::Pxb, Level::Pix, Level::NvLink]
        .into_iter()
        .find(|level| *level < nearest && set.is_none_or(|set| *level <= set))?;
    let works = |pair: (u32, u32)| level_of(pair).is_some_and(|level| level <= allowed);
    machine.pairs().any(works).then_some(allowed)
}

/// Returns the pairs as vLLM and SGLang read them. Every pair must be there, so those that work say so if this run saw the
/// bytes arrive both ways. A rank that sees no failed pair would wait for one that does: where a job has the later GPU of a
/// failed pair, each of its ranks must see false.
fn pairs_file(
    report: &Report,
    machine: &Machine<'_>,
    failed: &BTreeSet<(u32, u32)>,
) -> Option<PairsFile> {
    let driver = &report.measurements.as_ref()?.driver;
    let shown = driver.devices.iter();
    let shown = shown.filter_map(|device| Some((device.ordinal?, device.index)));
    let shown: BTreeMap<u32, u32> = shown.collect();
    let ordinal = |gpu: u32| shown.iter().find(|(_, index)| **index == gpu).map(|(at, _)| *at);
    let later = failed.iter();
    let later: BTreeSet<u32> =
        later.filter_map(|(one, other)| Some(ordinal(*one)?.max(ordinal(*other)?))).collect();
    let mut works = BTreeMap::new();
    for (source, from) in &shown {
        for (destination, to) in &shown {
            let pair = ((*from).min(*to), (*from).max(*to));
            let is_fit = source == destination
                || (!failed.contains(&pair)
                    && !later.contains(source)
                    && !later.contains(destination)
                    && machine.bytes_arrive(pair) == Some(true));
            works.insert(format!("{source}->{destination}"), is_fit);
        }
    }
    let devices: Vec<String> = shown.keys().map(ToString::to_string).collect();
    Some(PairsFile { devices: devices.join(","), works })
}

fn by_hand(access: &BTreeSet<(u32, u32)>) -> Vec<String> {
    let pairs: Vec<String> = access.iter().map(|(one, other)| format!("{one}-{other}")).collect();
    let sentence = format!(
        "PyTorch has no variable that keeps copies of tensors from peer access: between GPUs {} copy by way of the host, \
         tensor.cpu()",
        pairs.join(", ")
    );
    (!pairs.is_empty()).then_some(sentence).into_iter().collect()
}

#[cfg(test)]
mod tests;

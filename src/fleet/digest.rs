//! A digest of a report: the part that a fleet keeps, a few kilobytes for a machine of eight GPUs.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::excerpt::{Excerpt, Peer, Route, Shape};
use super::kind::{Figure, Figures, Kind};
use diagnose::PEERS;
use model::finding::{Severity, Subject};
use model::placement::{Pair, Path};
use model::report::{Conclusion, MOST_GPUS, Report, SCHEMA, Verdict};
use model::topology::LinkClass;

/// The digest of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// Source file, with the name within its archive.
    pub file: String,
    /// Host name, or the name of the file if the host name is not known.
    pub node: String,
    /// Start of the run, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// Version of peerscope.
    pub version: String,
    /// Profile of the check; `None` for a report of facts alone.
    pub profile: Option<String>,
    /// True if the run was interrupted or cut off.
    pub interrupted: bool,
    /// Number of GPUs that the user left out.
    pub gpus_left_out: u32,
    /// Version of the NVIDIA driver.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The GPUs in the report's order.
    pub gpus: Vec<Gpu>,
    pub links: Vec<Link>,
    /// Link class of every ordered pair.
    pub classes: Vec<(Pair, LinkClass)>,
    /// Kinds of measurements with their setup, each once.
    pub kinds: Vec<Kind>,
    pub figures: Vec<Figure>,
    pub findings: Vec<Finding>,
    /// The report's own verdict.
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub index: u32,
    /// PCI address.
    pub pci: Option<String>,
    /// NVML's UUID.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// Version of the video BIOS.
    pub vbios: Option<String>,
    /// Label of the physical slot.
    pub slot: Option<String>,
    /// PCIe link under load: `Gen5 x16`.
    pub link: Option<String>,
    /// Best link that both ends can do.
    pub link_possible: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The upper and the lower node.
    pub ends: [String; 2],
    /// `pcie`, `nv-link`, ….
    pub kind: String,
    /// For people: `Gen4 x16`.
    pub label: String,
    /// Current payload rate per direction, GB/s.
    pub capacity_gbps: Option<f64>,
    /// Payload rate per direction that both ends can do, GB/s.
    pub possible_gbps: Option<f64>,
}

/// A finding of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Code of the rule.
    pub code: String,
    pub severity: Severity,
    pub subject: Subject,
    pub message: String,
}

impl Finding {
    /// Returns the GPUs that the finding is about.
    pub fn gpus(&self) -> Vec<u32> {
        match &self.subject {
            Subject::Gpu { index } | Subject::Link { index, .. } => vec![*index],
            Subject::Pair(pair) => vec![pair.source, pair.destination],
            Subject::Machine | Subject::PcieLink { .. } | Subject::PciFunction { .. } => Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoReport {
    /// Another file that peerscope writes.
    Other,
    /// The reason why it cannot be read, worded to follow the file's name.
    Broken(String),
}

/// The key that is checked first.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
}

/// Digests a report's text. `scratch` is reusable memory.
///
/// # Errors
///
/// Returns the reason why the text is not a report.
pub(crate) fn read(file: &str, text: &[u8], scratch: &mut Vec<u8>) -> Result<Digest, NoReport> {
    let needed = match super::prune::pruned(text, scratch) {
        Some(()) => scratch.as_slice(),
        None => text,
    };
    let excerpt: Excerpt = match serde_json::from_slice(needed) {
        Ok(excerpt) => excerpt,
        Err(why) => return Err(refusal(needed, &why)),
    };
    if excerpt.schema != SCHEMA {
        return Err(of_schema(&excerpt.schema));
    }
    if excerpt.snapshot.gpus.len() > MOST_GPUS {
        let gpus = excerpt.snapshot.gpus.len();
        return Err(NoReport::Broken(format!(
            "has {gpus} GPUs; a report can have {MOST_GPUS} at most"
        )));
    }
    if let Some(gpu) = stranger(&excerpt) {
        return Err(NoReport::Broken(format!(
            "cannot be a report: snapshot.gpus has no GPU {gpu}, and other rows have it"
        )));
    }
    Ok(digest(file, excerpt))
}

/// Returns a GPU of a route or a measurement that the facts do not list.
fn stranger(excerpt: &Excerpt) -> Option<u32> {
    let gpus: HashSet<u32> = excerpt.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let of_pair = |pair: Pair| [pair.source, pair.destination];
    let routes = excerpt
        .topology
        .pairs
        .iter()
        .flat_map(|route| of_pair(route.pair()));
    let cells = excerpt.measurements.iter().flat_map(|measured| {
        let latency = measured
            .latency
            .iter()
            .flat_map(|cell| [cell.source, cell.destination]);
        let single = measured
            .local
            .iter()
            .map(|cell| cell.gpu)
            .chain(measured.host.iter().filter_map(|cell| cell.gpu));
        measured
            .peer
            .iter()
            .flat_map(move |cell| of_pair(cell.pair()))
            .chain(latency)
            .chain(single)
    });
    routes.chain(cells).find(|gpu| !gpus.contains(gpu))
}

/// Counts pairs of GPUs without a row for their copies, on the path that they use. Applies to a report that calls
/// itself healthy. A fleet cannot tell if single rows are missing; `diagnose` can.
fn pairs_without_a_row(excerpt: &Excerpt) -> usize {
    let asked = !excerpt
        .request
        .probes_left_out
        .iter()
        .any(|group| group == PEERS);
    let Some(measured) = excerpt.measurements.as_ref().filter(|_| asked) else {
        return 0;
    };
    let direct = measured
        .peer
        .iter()
        .filter(|cell| cell.path == Path::Direct)
        .map(Peer::pair);
    let (direct, any): (HashSet<Pair>, HashSet<Pair>) = (
        direct.collect(),
        measured.peer.iter().map(Peer::pair).collect(),
    );
    let reach = excerpt
        .topology
        .pairs
        .iter()
        .filter(|route| route.peer_access.is_direct())
        .map(Route::pair);
    let reach: HashSet<Pair> = reach.collect();
    let gpus: Vec<u32> = excerpt.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let lacks = |pair: &Pair| {
        if reach.contains(pair) {
            !direct.contains(pair)
        } else {
            !any.contains(pair)
        }
    };
    Pair::ordered(&gpus)
        .iter()
        .filter(|pair| lacks(pair))
        .count()
}

/// Makes a healthy report inconclusive if some pairs have no row.
fn doubt(excerpt: &mut Excerpt) {
    if excerpt.verdict.verdict != Conclusion::Healthy {
        return;
    }
    let lacking = pairs_without_a_row(excerpt);
    if lacking == 0 {
        return;
    }
    excerpt.verdict.verdict = Conclusion::Inconclusive;
    excerpt.verdict.untested = excerpt
        .verdict
        .untested
        .max(u32::try_from(lacking).unwrap_or(u32::MAX));
    excerpt.findings.push(super::excerpt::Finding {
        code: "not-tested".into(),
        severity: Severity::Warning,
        subject: Subject::Machine,
        message: format!(
            "The report has no row of copies of {lacking} of its pairs of GPUs: they were taken out of it"
        ),
    });
}

fn refusal(text: &[u8], why: &serde_json::Error) -> NoReport {
    match serde_json::from_slice::<Head>(text) {
        Ok(Head {
            schema: Some(schema),
        }) if schema != SCHEMA => of_schema(&schema),
        Ok(Head { schema: None }) => {
            NoReport::Broken("is not a peerscope report: it has no \"schema\"".into())
        }
        Ok(_) => NoReport::Broken(format!("is not a complete report: {why}")),
        Err(why) => NoReport::Broken(format!("is not JSON: {why}")),
    }
}

fn of_schema(schema: &str) -> NoReport {
    let short: String = schema.chars().take(80).collect();
    if [
        "peerscope.fleet/",
        "peerscope.comparison/",
        "peerscope.journal/",
    ]
    .iter()
    .any(|own| schema.starts_with(own))
    {
        return NoReport::Other;
    }
    NoReport::Broken(format!(
        "has the schema '{short}', this version reads {SCHEMA}"
    ))
}

fn digest(file: &str, mut excerpt: Excerpt) -> Digest {
    doubt(&mut excerpt);
    let node = name(file, &excerpt);
    let Excerpt {
        tool,
        started_at,
        machine,
        request,
        snapshot,
        topology,
        measurements,
        findings,
        verdict,
        ..
    } = excerpt;
    let classes: Vec<_> = topology
        .pairs
        .iter()
        .map(|route| (route.pair(), route.class))
        .collect();
    let numa: HashMap<u32, Option<u32>> = snapshot
        .gpus
        .iter()
        .map(|gpu| (gpu.index, gpu.numa_node))
        .collect();
    let figures = Figures::of(
        measurements.as_ref(),
        classes.iter().copied().collect(),
        numa,
    );
    let mut links = BTreeMap::new();
    for pcie in topology.links.iter().filter_map(|link| link.pcie.as_ref()) {
        links.extend(pcie.gpu.map(|gpu| {
            (
                gpu,
                (shape(pcie.now), shape(pcie.possible), pcie.slot.clone()),
            )
        }));
    }
    let gpus = snapshot.gpus.into_iter().map(|gpu| {
        let (link, link_possible, slot) = links.remove(&gpu.index).unwrap_or_default();
        let super::excerpt::Gpu {
            index,
            pci,
            uuid,
            name,
            serial,
            vbios,
            ..
        } = gpu;
        Gpu {
            index,
            pci,
            uuid,
            name,
            serial,
            vbios,
            slot,
            link,
            link_possible,
        }
    });
    let gpus = gpus.collect();
    Digest {
        file: file.to_owned(),
        node,
        started_at,
        machine,
        version: tool.version,
        interrupted: measurements
            .as_ref()
            .is_some_and(|measured| measured.interrupted || measured.cut_off),
        profile: measurements.map(|measured| measured.profile),
        gpus_left_out: request.gpus_left_out,
        driver: snapshot.host.driver_version,
        cuda: snapshot.host.cuda_version,
        kernel: snapshot.host.kernel_version,
        gpus,
        links: topology.links.into_iter().map(link).collect(),
        classes,
        kinds: figures.kinds,
        figures: figures.figures,
        findings: findings.into_iter().map(finding).collect(),
        verdict,
    }
}

/// Host name of simulated machines.
const SIMULATED: &str = "simulated";

/// Returns the host name. Returns the machine's name for a simulated machine without a host name of its own. Returns
/// the name of the file if neither is known.
fn name(file: &str, excerpt: &Excerpt) -> String {
    let is_simulated = excerpt.machine != Report::LIVE;
    match &excerpt.snapshot.host.hostname {
        Some(name) if is_simulated && name == SIMULATED => excerpt.machine.clone(),
        Some(name) if !name.trim().is_empty() => name.clone(),
        _ => {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.split('.').next().unwrap_or(name).to_owned()
        }
    }
}

fn shape(shape: Shape) -> Option<String> {
    let generation = shape
        .generation
        .map(|generation| format!("Gen{generation}"));
    let width = shape.width.map(|width| format!("x{width}"));
    let parts: Vec<_> = generation.into_iter().chain(width).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn link(link: super::excerpt::Link) -> Link {
    let super::excerpt::Link {
        upper,
        lower,
        kind,
        label,
        capacity_gbps,
        possible_gbps,
        ..
    } = link;
    Link {
        ends: [upper, lower],
        kind,
        label,
        capacity_gbps,
        possible_gbps,
    }
}

fn finding(finding: super::excerpt::Finding) -> Finding {
    let super::excerpt::Finding {
        code,
        severity,
        subject,
        message,
    } = finding;
    Finding {
        code,
        severity,
        subject,
        message,
    }
}

impl Digest {
    /// Returns true if no figure comes from hardware.
    pub fn is_simulated(&self) -> bool {
        self.machine != Report::LIVE
    }
}

/// Returns the word for a verdict.
pub(crate) const fn word(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Healthy => "healthy",
        Conclusion::Faulty => "faulty",
        Conclusion::Inconclusive => "inconclusive",
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::{Ends, What};
    use super::*;
    use model::units::Bytes;
    use report::{Style, named, render};

    fn digest_of(text: &[u8]) -> Result<Digest, NoReport> {
        read("a/node7.json", text, &mut Vec::new())
    }

    #[test]
    fn what_is_taken_out_changes_no_digest() {
        let samples = [
            sample::healthy(8),
            sample::loaded(),
            sample::pcie_box(),
            sample::unknown(3),
            sample::nothing_measured(),
        ];
        let mut texts: Vec<String> = samples
            .iter()
            .map(|report| render(report, named("json").unwrap(), &Style::PLAIN))
            .collect();
        for file in [
            "h200x4-standard",
            "h200x4-masked",
            "h200x2-worker-killed",
            "h200x2-beside-copies",
        ] {
            let path = format!(
                "{}/../../tests/data/{file}.json",
                env!("CARGO_MANIFEST_DIR")
            );
            texts.push(std::fs::read_to_string(path).unwrap());
        }
        for text in texts {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let whole = digest_of(value.to_string().as_bytes()).unwrap();
            let compact = digest_of(text.as_bytes()).unwrap();
            assert!(super::super::prune::pruned(text.as_bytes(), &mut Vec::new()).is_some());
            assert_eq!(compact, whole);
            assert!(
                compact.profile.is_none()
                    || compact.verdict.tested == 0
                    || !compact.figures.is_empty()
            );
        }
    }

    #[test]
    fn patterns_of_flows_and_what_was_counted_of_them_are_figures() {
        let mut report = sample::loaded();
        let measured = report.measurements.as_mut().unwrap();
        measured.counted[3].nvlink_sent_bytes = measured.counted[3]
            .nvlink_sent_bytes
            .map(|all| Bytes(all.0 / 2));
        measured.counted[5].links[7].received_percent = Some(1.0);
        measured.counted[6].disturbed = true;
        let digest = digest_of(&serde_json::to_vec(&report).unwrap()).unwrap();
        let of = |what: &What| -> Vec<(Ends, Option<f32>)> {
            let figures = digest
                .figures
                .iter()
                .filter(|figure| &digest.kinds[usize::from(figure.kind)].what == what);
            figures.map(|figure| (figure.ends, figure.value)).collect()
        };
        assert_eq!(
            of(&What::Load("ring".into())),
            [(Ends::Machine, Some(3120.0))]
        );
        assert_eq!(
            of(&What::Load("all to one, GPU 0".into())),
            [(Ends::Machine, Some(399.0))]
        );
        let sent = of(&What::Counted("ring, sent".into()));
        let expected = [100.0, 100.0, 100.0, 50.0, 100.0, 100.0, f32::NAN, 100.0];
        assert_eq!(sent.len(), 8);
        for (gpu, ((ends, value), expected)) in sent.into_iter().zip(expected).enumerate() {
            let gpu = u16::try_from(gpu).unwrap();
            assert_eq!(
                (ends, value),
                (
                    Ends::Gpus(gpu, gpu),
                    Some(expected).filter(|value| !value.is_nan())
                )
            );
        }
        let least = of(&What::LeastLink("ring, received".into()));
        assert_eq!((least[5].1, least[6].1), (Some(18.0), None));
        assert!((least[0].1.unwrap() - 100.0).abs() < 1e-3, "{least:?}");
    }

    #[test]
    fn what_is_no_report_says_why() {
        let why = |text: &str| match digest_of(text.as_bytes()) {
            Err(NoReport::Broken(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why("").starts_with("is not JSON"));
        assert!(why("{}").contains("no \"schema\""));
        assert!(why(r#"{"schema": "other/1"}"#).contains("'other/1'"));
        assert!(why(r#"{"schema": "peerscope.report/1"}"#).starts_with("is not a complete report"));
        assert_eq!(
            digest_of(br#"{"schema": "peerscope.fleet/1"}"#),
            Err(NoReport::Other)
        );
    }

    #[test]
    fn a_node_has_the_name_of_its_host_or_else_of_its_file() {
        let mut report = sample::unknown(2);
        let of = |report: &Report| {
            digest_of(&serde_json::to_vec(report).unwrap())
                .unwrap()
                .node
        };
        report.snapshot.host.hostname = model::reading::Reading::Known("rack1".into());
        assert_eq!(of(&report), "rack1");
        report.snapshot.host.hostname = Err(model::reading::Unknown::Unsupported).into();
        assert_eq!(of(&report), "node7");
    }
}

//! The lines of pasted output that a finding stands on.

use model::finding::{Finding, Subject};
use model::pasted::{Origin, Pasted};
use model::placement::Pair;
use model::snapshot::Snapshot;

/// Most lines that a finding names.
const MOST: usize = 4;

/// Starts of codes, and parts of the names of facts that such findings stand on.
const FACTS: &[(&str, &[&str])] = &[
    ("pcie-", &["pcie_", "].width", "].generation"]),
    ("payload-", &["payload"]),
    ("acs-", &["acs_redirect"]),
    ("iommu-", &["host.iommu", ".iommu_"]),
    ("nvlink-", &[".nvlinks["]),
    ("peer-access-", &["peer_access[", ".p2p_"]),
    ("peer-", &["peer["]),
    ("direct-", &["peer["]),
    ("staged-", &["peer["]),
    ("both-", &["peer["]),
    ("bandwidth-", &["peer["]),
    ("latency-", &["latency["]),
    ("local-", &["local["]),
    ("host-", &["host["]),
    ("pinned-", &["host["]),
    ("fabric-", &[".fabric"]),
    ("gpu-unreachable", &["host.xids["]),
    ("gpu-not-listed", &["pci["]),
    ("gpu-throttled", &[".throttle_reasons"]),
    ("gpu-memory-errors", &[".remapped_rows", ".ecc"]),
    ("gpu-shared", &[".processes"]),
    ("mig-", &[".mig"]),
    ("compute-mode-", &[".compute_mode"]),
    ("persistence-", &[".persistence"]),
    ("firmware-", &[".vbios"]),
    ("gpus-mixed", &[".name"]),
    ("driver-", &["host.driver_version", "host.kernel_module_version"]),
];

/// Adds to each finding the lines of the input that it stands on.
pub(crate) fn add(findings: &mut [Finding], read: &Pasted, snapshot: &Snapshot) {
    for finding in findings {
        let lines = lines(finding, read, snapshot);
        if !lines.is_empty() {
            *finding = finding.clone().fact("read_in", lines);
        }
    }
}

fn lines(finding: &Finding, read: &Pasted, snapshot: &Snapshot) -> Vec<String> {
    let kinds = FACTS.iter().find(|(start, _)| finding.code.starts_with(start));
    let kinds = kinds.map_or(&[][..], |(_, kinds)| kinds);
    let names = names(finding, snapshot);
    let is_of = |origin: &&Origin| {
        kinds.iter().any(|kind| origin.of.contains(kind))
            && (names.is_empty() || names.iter().any(|name| origin.of.contains(name.as_str())))
    };
    let mut lines: Vec<(&str, u32)> = Vec::new();
    for origin in read.origins.iter().filter(is_of) {
        let line = (origin.input.as_str(), origin.line);
        if !lines.contains(&line) {
            lines.push(line);
        }
        if lines.len() == MOST {
            break;
        }
    }
    let of_input = |group: &[(&str, u32)]| {
        let numbers: Vec<String> = group.iter().map(|(_, line)| line.to_string()).collect();
        let word = if group.len() == 1 { "line" } else { "lines" };
        format!("{word} {} of {}", numbers.join(", "), group[0].0)
    };
    let inputs = lines.chunk_by(|(one, _), (other, _)| one == other);
    inputs.map(of_input).collect()
}

/// Returns the names by which origins mention the parts of a finding; none if it is about the whole machine.
fn names(finding: &Finding, snapshot: &Snapshot) -> Vec<String> {
    let mut gpus = finding.scope.gpus.clone();
    let mut names: Vec<String> = Vec::new();
    match &finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => gpus.push(*index),
        Subject::PcieLink { address } | Subject::PciFunction { address } => {
            names.push(format!("[{address}"));
        }
        _ => {}
    }
    for gpu in gpus {
        names.push(format!("gpus[{gpu}]"));
        names.push(format!("GPU {gpu},"));
        names.push(format!("GPU {gpu} "));
        names.extend(snapshot.address_of(gpu).map(|address| format!("[{address}")));
    }
    for Pair { source, destination } in &finding.scope.pairs {
        names.push(format!("[{source}→{destination}]"));
        names.push(format!("[GPU {source} → GPU {destination},"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fact;
    use model::finding::Severity;
    use serde_json::json;

    #[test]
    fn findings_name_the_lines_of_their_own_facts() {
        let origin = |of: &str, line| Origin { of: of.to_owned(), input: "q.txt".to_owned(), line };
        let read = Pasted {
            origins: vec![
                origin("gpus[1].pcie_width", 41),
                origin("gpus[10].pcie_width", 99),
                origin("gpus[1].name", 3),
                origin("gpus[1].nvlinks[0].active", 7),
                origin("gpus[1].pcie_width_max", 40),
            ],
            ..Pasted::default()
        };
        let finding = |code: &str, subject| {
            Finding::new(code.to_owned().into(), Severity::Error, subject, "words", Vec::new())
        };
        let mut findings = [
            finding("pcie-narrow", Subject::Gpu { index: 1 }),
            finding("gpus-mixed", Subject::Machine),
            finding("nvlink-inactive", Subject::Gpu { index: 2 }),
        ];
        add(&mut findings, &read, &model::testing::empty());
        let lines = findings.map(|finding| fact(&finding, "read_in"));
        assert_eq!(lines[0], json!(["lines 41, 40 of q.txt"]));
        assert_eq!(lines[1], json!(["line 3 of q.txt"]));
        assert_eq!(lines[2], json!(null));
    }
}

//! The topology as a Graphviz graph: `dot -Tsvg machine.dot -o machine.svg`.

use std::fmt::Write;

use super::digest::Digest;
use super::escape::{dot_label, dot_quoted};
use super::format::{Format, Of, Style};
use super::paths;
use model::node::NodeId;
use model::rounding::rate;
use model::topology::{Link, LinkKind, Node, NodeKind};

pub(super) const FORMAT: Format = Format {
    is_looked_at: true,
    of: Of::Topology,
    ..Format::new("dot", &["dot", "gv"], "For Graphviz", render)
};

/// Share of its possible rate below which a link counts as slower than possible. Above it, the two figures differ by
/// rounding only.
const AS_POSSIBLE: f64 = 0.99;

/// Returns the graph, with narrow links in red.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    let report = digest.report;
    let mut out = String::from("graph peerscope {\n");
    let mut title: Vec<_> = digest.caveats.values().map(String::as_str).collect();
    title.extend(report.snapshot.host.hostname.known().map(String::as_str));
    title.push(&report.started_at);
    let attributes = [
        format!("label={}", dot_label(&title)),
        "labelloc=t".to_owned(),
        "rankdir=TB".to_owned(),
        "nodesep=0.3".to_owned(),
        "ranksep=0.7".to_owned(),
        "fontname=\"sans-serif\"".to_owned(),
        "node [fontname=\"sans-serif\", fontsize=10, style=filled, fillcolor=white, color=\"#666666\"]".to_owned(),
        "edge [fontname=\"sans-serif\", fontsize=9, color=\"#666666\"]".to_owned(),
    ];
    for attribute in attributes {
        put(&mut out, &attribute);
    }
    for node in &report.topology.nodes {
        put(&mut out, &node_statement(node));
    }
    // GPUs are side by side in their order, at any depth of the tree.
    let leaves = report.topology.nodes.iter().filter(|node| node.kind == NodeKind::Gpu);
    let leaves: Vec<_> = leaves.map(|node| quoted(node.id)).collect();
    if leaves.len() > 1 {
        put(&mut out, &format!("{{ rank=same; {} [style=invis] }}", leaves.join(" -- ")));
    }
    let numa = report.topology.nodes.iter().filter(|node| node.kind == NodeKind::NumaNode);
    let numa: Vec<_> = numa.map(|node| quoted(node.id)).collect();
    if numa.len() > 1 {
        put(&mut out, &format!("{{ rank=same; {} }}", numa.join("; ")));
    }
    for link in &report.topology.links {
        put(&mut out, &link_statement(link));
    }
    out.push_str("}\n");
    out
}

fn put(out: &mut String, statement: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(out, "  {statement};");
}

fn node_statement(node: &Node) -> String {
    let (shape, fill) = match node.kind {
        NodeKind::NumaNode => ("box3d", "#e8e8e8"),
        NodeKind::HostBridge => ("hexagon", "#f3f3f3"),
        NodeKind::RootPort => ("box", "#ffffff"),
        NodeKind::SwitchPort => ("box", "#e9f1fb"),
        NodeKind::Bridge => ("diamond", "#ffffff"),
        NodeKind::Gpu => ("box", "#c8e6a0"),
        NodeKind::NvSwitchPlane => ("octagon", "#fde7b0"),
        NodeKind::Adapter => ("ellipse", "#cfe2f7"),
    };
    let pci = node.pci.map(|pci| pci.to_string()).filter(|pci| !node.label.contains(pci.as_str()));
    let mut lines = vec![node.label.as_str()];
    lines.extend(pci.as_deref());
    let pen = if node.kind == NodeKind::Gpu { ", penwidth=2" } else { "" };
    let id = quoted(node.id);
    format!("{id} [label={}, shape={shape}, fillcolor=\"{fill}\"{pen}]", dot_label(&lines))
}

fn quoted(id: NodeId) -> String {
    dot_quoted(&id.to_string())
}

fn link_statement(link: &Link) -> String {
    let slow = match (link.capacity_gbps, link.possible_gbps) {
        (Some(now), Some(possible)) => now.0 < possible.0 * AS_POSSIBLE,
        _ => false,
    };
    let (narrow, label) = match &link.pcie {
        Some(pcie) => {
            (!pcie.narrow.is_empty(), paths::link_text(pcie).unwrap_or_else(|| link.label.clone()))
        }
        None => (slow, link.label.clone()),
    };
    let rates = match (link.capacity_gbps, link.possible_gbps) {
        (Some(now), Some(possible)) if slow => {
            Some(format!("{} of {} GB/s", rate(now.0), rate(possible.0)))
        }
        (Some(now), _) => Some(format!("{} GB/s", rate(now.0))),
        _ => None,
    };
    let lines: Vec<_> = [Some(label.as_str()), rates.as_deref()].into_iter().flatten().collect();
    let pen = match link.kind {
        _ if narrow => ", color=red, fontcolor=red, penwidth=3",
        LinkKind::NvLink => ", color=\"#5a8f00\", penwidth=2",
        LinkKind::Pcie => "",
        LinkKind::RootComplex => ", style=dashed",
        LinkKind::Interconnect => ", style=dashed, constraint=false",
    };
    // The PCIe tree is above the GPUs, the NVSwitches are below. Links between GPUs move neither.
    let (upper, lower) = if link.upper == NodeId::NvSwitch {
        (link.lower, link.upper)
    } else {
        (link.upper, link.lower)
    };
    let aside = if upper.is_gpu() && lower.is_gpu() { ", constraint=false" } else { "" };
    let (upper, lower) = (quoted(upper), quoted(lower));
    format!("{upper} -- {lower} [label={}{pen}{aside}]", dot_label(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::Report;

    fn graph(report: &Report) -> String {
        render(&Digest::of(report), &Style::PLAIN)
    }

    #[test]
    fn a_narrow_slot_is_red_and_says_how_narrow() {
        let text = graph(&sample::pcie_box());
        let line = text.lines().find(|line| line.contains("-- \"gpu3\" [label")).unwrap();
        assert!(line.contains("x4 of x16") && line.contains("color=red"), "{line}");
        let idle = text.lines().find(|line| line.contains("-- \"gpu1\" [label")).unwrap();
        assert!(!idle.contains("red"), "{idle}");
        assert!(text.contains("SIMULATED machine demo"));
        assert!(text.starts_with("graph peerscope {\n") && text.ends_with("}\n"));
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let mut report = sample::healthy(2);
        report.topology.nodes[0].label = "x\"]; evil [label=\"\u{1b}[31m\n".into();
        let text = graph(&report);
        assert!(text.contains(r#"label="x\"]; evil [label=\"\\u{1b}[31m\\n"#), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    /// Runs only if Graphviz is installed; the tests above always run.
    #[test]
    #[allow(clippy::disallowed_macros, reason = "a skipped test must not look green in silence")]
    fn graphviz_accepts_it() {
        for report in
            [sample::pcie_box(), sample::healthy(8), sample::unknown(3), sample::hostile()]
        {
            let file = tempfile::Builder::new().suffix(".dot").tempfile().unwrap();
            std::fs::write(file.path(), graph(&report)).unwrap();
            let Ok(output) =
                std::process::Command::new("dot").arg("-Tsvg").arg(file.path()).output()
            else {
                eprintln!("SKIPPED: Graphviz (dot) is not installed, nothing was checked");
                return;
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

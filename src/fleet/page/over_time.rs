//! What changed since an earlier collection of reports, and over several.

use std::collections::BTreeSet;

use report::matrix::Cell;
use report::page::{Page, Paint};

use super::words;
use crate::digest::word;
use crate::model::Fleet;

pub(super) fn changes(page: &mut Page, fleet: &Fleet) {
    let Some(changes) = &fleet.changes else {
        return;
    };
    page.heading(&format!("Changes since {}", changes.since));
    let before = page.blocks().len();
    let lists = [
        ("verdict", &changes.verdicts),
        ("new finding", &changes.appeared),
        ("gone", &changes.gone),
        ("fact", &changes.facts),
        ("figure", &changes.figures),
    ];
    for (what, list) in lists {
        for (key, nodes) in list {
            page.item(2, 16, what, Paint::Faint, &format!("{key}: {nodes}"));
        }
    }
    for (what, nodes) in [
        ("other GPUs", &changes.other_gpus),
        ("new nodes", &changes.new_nodes),
        ("no report", &changes.lost_nodes),
    ] {
        if !nodes.is_empty() {
            page.item(2, 16, what, Paint::Faint, nodes);
        }
    }
    if page.blocks().len() == before {
        page.note(Paint::Plain, "none");
    }
}

pub(super) fn history(page: &mut Page, fleet: &Fleet) {
    if fleet.history.is_empty() {
        return;
    }
    page.heading("Nodes with several reports");
    let mut table = words(4);
    table.captions(["node", "started", "verdict", "findings"]);
    let several: BTreeSet<&str> = fleet.history.iter().map(|older| older.node.as_str()).collect();
    for node in fleet.nodes.iter().filter(|node| several.contains(node.node.as_str())) {
        let codes: BTreeSet<&str> = node.findings.iter().map(|found| found.code.as_str()).collect();
        let codes: Vec<_> = codes.into_iter().collect();
        table.row([
            (&node.node).into(),
            (&node.started_at).into(),
            word(node.verdict).into(),
            codes.join(", ").into(),
        ]);
        for older in fleet.history.iter().filter(|older| older.node == node.node) {
            let faint = |text: &str| Cell::new(text, Paint::Faint);
            table.row([
                faint(""),
                faint(&older.started_at),
                faint(word(older.verdict)),
                faint(&older.codes.join(", ")),
            ]);
        }
    }
    page.table(table);
}

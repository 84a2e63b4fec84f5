//! Nodes that are built alike, and their figures.

use model::rounding::short;
use report::figures::count;
use report::matrix::{Cell, Table};
use report::page::{Page, Paint};

use super::{LIST, ROWS, words};
use crate::model::{Cohort, Fleet};

pub(super) fn inventory(page: &mut Page, fleet: &Fleet) {
    let all: Vec<_> = fleet
        .inventory
        .iter()
        .filter(|attribute| attribute.values.len() > 1 || page.verbose())
        .collect();
    if all.is_empty() {
        return;
    }
    page.heading("Facts that differ within a model");
    let is_one = all.iter().all(|attribute| attribute.model == all[0].model);
    let mut table = words(4);
    table.captions(["fact", "value", "nodes", "which"]);
    for attribute in all {
        let fact = match is_one {
            true => attribute.attribute.clone(),
            false => format!("{}, {}", attribute.attribute, attribute.model),
        };
        for share in &attribute.values {
            let [fact, value, nodes] =
                [&fact, &share.value, &share.nodes].map(|text| Cell::cut(text, LIST));
            table.row([fact, value, share.count.to_string().into(), nodes]);
        }
    }
    page.table(table);
}

pub(super) fn cohorts(page: &mut Page, fleet: &Fleet) {
    if fleet.cohorts.is_empty() {
        return;
    }
    page.heading("Cohorts: the same GPUs, connected in the same way");
    let shown = if page.verbose() { fleet.cohorts.len() } else { fleet.cohorts.len().min(ROWS) };
    let mut table = words(5);
    table.captions(["", "nodes", "model", "topology", "which"]);
    for cohort in &fleet.cohorts[..shown] {
        let Cohort { cohort: number, count, model, topology, nodes, .. } = cohort;
        let [model, topology, nodes] = [model, topology, nodes].map(|text| Cell::cut(text, LIST));
        table.row([number.to_string().into(), count.to_string().into(), model, topology, nodes]);
    }
    page.table(table);
    let compared = fleet.cohorts.iter().filter(|cohort| !cohort.figures.is_empty());
    let shown = if page.verbose() { usize::MAX } else { 3 };
    for cohort in compared.take(shown) {
        figures(page, cohort);
    }
    let small: usize = fleet
        .cohorts
        .iter()
        .filter(|cohort| cohort.count < crate::outliers::FEWEST)
        .map(|cohort| cohort.count)
        .sum();
    if small > 0 {
        let least = crate::outliers::FEWEST;
        page.note(
            Paint::Faint,
            &format!(
                "figures of {} were not compared: fewer than {least} of a kind",
                count(small, "node")
            ),
        );
    }
}

fn figures(page: &mut Page, cohort: &Cohort) {
    page.heading(&format!("What cohort {} reaches", cohort.cohort));
    let mut table = Table::of_figures(8);
    table.captions(["", "nodes", "median", "min", "max", "scatter", "unit", "odd"]);
    for figures in &cohort.figures {
        let class = figures.class.as_ref().map(|class| format!(" {class}")).unwrap_or_default();
        let setup =
            if figures.setup.is_empty() { String::new() } else { format!(": {}", figures.setup) };
        let label = format!("{}{class}{setup}", figures.probe);
        let [median, min, max, spread] = [figures.median, figures.min, figures.max, figures.spread]
            .map(|figure| Cell::from(short(figure)));
        let odd = Cell::new(
            figures.odd.to_string(),
            if figures.odd > 0 { Paint::Warning } else { Paint::Plain },
        );
        table.row([
            label.into(),
            figures.nodes.to_string().into(),
            median,
            min,
            max,
            spread,
            figures.unit.into(),
            odd,
        ]);
    }
    page.table(table);
    page.note(
        Paint::Faint,
        "scatter: what most nodes differ from the median by, and 1% of it at least",
    );
}

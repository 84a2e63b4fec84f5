//! `nvidia-smi topo -m`: how GPUs are connected, and the NUMA node of each.

use crate::lines::is_name;
use crate::matrix::{self, NAMELESS, Named};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes};
use model::reading::Reading;
use model::snapshot::CommonAncestor;

pub(crate) const READER: Reader =
    Reader { kind: "smi-topo", tool: "nvidia-smi topo -m", begins, read };

pub(super) fn begins(line: &str) -> bool {
    line.starts_with(['G', 'N', 'm']) && is_name(line.split_whitespace().next().unwrap_or_default())
}

/// Returns the index of a GPU in a matrix.
pub(super) fn gpu(name: &str) -> Option<Key> {
    name.strip_prefix("GPU")?.parse().ok().map(Key::Index)
}

/// Reads a matrix of GPUs, whole or wrapped by a terminal. The one with more cells is right.
pub(super) fn matrix_of(
    ahead: Ahead<'_>,
    notes: &mut Notes,
    is_cell: fn(&str) -> bool,
    take: &mut dyn FnMut(&Named<'_>, &mut Notes),
) -> Option<usize> {
    let is_whole = |matrix: &Named<'_>| {
        let cells = matrix.rows.iter().map(|(_, cells, _)| cells.len());
        cells.sum::<usize>() == matrix.columns.len() * matrix.columns.len()
    };
    let mut found = matrix::named(ahead.lines, is_name, is_cell);
    let joined;
    if !found.as_ref().is_some_and(is_whole) {
        // Only the lines of this matrix can have its width.
        let lines = &ahead.lines[..ahead.lines.len().min(matrix::MOST_LINES)];
        let used = lines.iter().position(|line| line.text.is_empty()).unwrap_or(lines.len());
        notes.in_vain = used;
        joined = matrix::joined(&lines[..used]);
        let whole = matrix::named(&joined, is_name, is_cell).filter(is_whole);
        found = whole.map(|matrix| Named { used, ..matrix }).or(found);
    }
    let found = found?;
    take(&found, notes);
    Some(found.used)
}

fn ancestor(word: &str) -> Option<CommonAncestor> {
    Some(match word {
        "PIX" => CommonAncestor::SingleSwitch,
        "PXB" => CommonAncestor::MultipleSwitches,
        "PHB" => CommonAncestor::HostBridge,
        "NODE" => CommonAncestor::NumaNode,
        // Older versions call it SOC.
        "SYS" | "SOC" => CommonAncestor::System,
        "PSB" => CommonAncestor::Internal,
        _ => return None,
    })
}

fn bond(word: &str) -> Option<u8> {
    word.strip_prefix("NV")?.parse().ok()
}

fn is_cell(word: &str) -> bool {
    word == "X" || word == "N/A" || ancestor(word).is_some() || bond(word).is_some()
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    // It leaves NVLinks out.
    let pcie_only = ahead.command.is_some_and(|command| command.contains("-mp"));
    let mut shows_a_class = false;
    let used = matrix_of(ahead, notes, is_cell, &mut |matrix, notes| {
        take(matrix, pcie_only, notes);
        let words = matrix.rows.iter().flat_map(|(_, cells, _)| cells);
        shows_a_class = words.clone().any(|(word, _)| *word != "X" && *word != "N/A")
            || (matrix.columns.len() == 1 && words.count() == 1);
    })?;
    shows_a_class.then_some(used)
}

fn take(matrix: &Named<'_>, pcie_only: bool, notes: &mut Notes) {
    let gpus = matrix.rows.iter().filter(|(name, ..)| gpu(name).is_some());
    let columns = matrix.columns.iter().filter(|name| gpu(name).is_some());
    let whole = columns.count() == gpus.clone().count();
    let mut cut = None;
    let mut last = 0;
    let mut count = 0;
    let mut near = Vec::new();
    for (name, cells, more) in gpus {
        let Some(source) = gpu(name) else { continue };
        count += 1;
        for ((word, line), (column, place)) in cells.iter().zip(matrix.columns.iter().zip(0..)) {
            last = *line;
            // Only GPUs have NVLinks: one whose row was cut off.
            let lost = (*column == NAMELESS && bond(word).is_some()).then_some(place);
            cut = cut.or(lost);
            let destination = gpu(column).or(lost.map(Key::Index));
            let Some(destination) = destination.filter(|other| *other != source) else {
                continue;
            };
            if let Some(links) = bond(word) {
                let bond = Note::Bond(source.clone(), destination, links);
                notes.add(*line, bond);
            } else if let Some(ancestor) = ancestor(word).filter(|_| !pcie_only) {
                notes.pair(*line, &source, &destination, |pair| {
                    pair.common_ancestor = Reading::Known(ancestor);
                });
            }
        }
        let adapters = cells
            .iter()
            .zip(&matrix.columns)
            .filter(|((word, _), column)| gpu(column).is_none() && matches!(*word, "PIX" | "PXB"));
        let adapters: Vec<&str> = adapters.map(|(_, column)| *column).collect();
        // A row that was cut does not show them all.
        if cells.len() == matrix.columns.len() {
            let none = if adapters.is_empty() { "none" } else { "" };
            near.push(format!("{name} {}{none}", adapters.join(" ")));
        }
        // Behind the cells: processors, NUMA node of the processors, and that of the GPU's own memory.
        let node = more.get(1).and_then(|word| word.parse::<u32>().ok());
        notes.gpu(last, &source, |gpu| {
            if let Some(node) = node.filter(|_| more.len() <= 3) {
                gpu.numa_node = Reading::Known(node);
            }
        });
    }
    // Rows may be cut off.
    for key in matrix.columns.iter().filter_map(|name| gpu(name)) {
        notes.gpu(last, &key, |_| {});
    }
    if matrix.columns.iter().any(|name| name.starts_with("NIC") || name.contains("mlx")) {
        let near = near.join(", ");
        notes.add(last, Note::Remark(format!("adapters near each GPU (PIX, PXB): {near}")));
    }
    if pcie_only {
        notes.add(last, Note::Remark("-mp leaves NVLinks out".to_owned()));
    }
    if let Some(gpu) = cut {
        let text = format!("GPU {gpu} has a column and no row: it was cut");
        notes.add(last, Note::Remark(text));
    } else if whole {
        notes.add(last, Note::Listed(count));
    }
}

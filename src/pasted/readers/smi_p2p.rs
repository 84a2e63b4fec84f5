//! `nvidia-smi topo -p2p r|w|n|a|p`: access of GPUs to each other's memory. Only the command shows which kind; without it,
//! the words that refuse still refuse.

use super::smi_topo::{begins, gpu, matrix_of};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes};
use model::reading::Reading;
use model::snapshot::{GpuPair, P2pStatus};

/// Declares the reader of one kind of access: its letter, its name, and the fact that it sets.
macro_rules! access {
    ($($reader:ident $letter:literal $kind:literal $fact:ident,)*) => {$(
        pub(crate) const $reader: Reader = Reader {
            kind: $kind,
            tool: concat!("nvidia-smi topo -p2p ", $letter),
            begins,
            read: |ahead, notes| read(ahead, notes, $letter, |pair, word| pair.$fact = word),
        };
    )*};
}

access! {
    READ 'r' "smi-p2p-read" p2p_read,
    WRITE 'w' "smi-p2p-write" p2p_write,
    NVLINK 'n' "smi-p2p-nvlink" p2p_nvlink,
    ATOMICS 'a' "smi-p2p-atomics" p2p_atomics,
    PCIE 'p' "smi-p2p-pcie" p2p_pci,
}

/// A matrix of an unknown kind.
pub(crate) const ANY: Reader =
    Reader { kind: "smi-p2p", tool: "nvidia-smi topo -p2p", begins, read: any };

fn status(word: &str) -> Option<P2pStatus> {
    Some(match word {
        "OK" => P2pStatus::Ok,
        "CNS" => P2pStatus::ChipsetNotSupported,
        "GNS" => P2pStatus::GpuNotSupported,
        "TNS" => P2pStatus::TopologyNotSupported,
        "DR" => P2pStatus::DisabledByRegkey,
        "NS" => P2pStatus::NotSupported,
        "U" => P2pStatus::Unknown,
        _ => return None,
    })
}

fn read(
    ahead: Ahead<'_>,
    notes: &mut Notes,
    which: char,
    set: fn(&mut GpuPair, Reading<P2pStatus>),
) -> Option<usize> {
    if named(ahead) != Some(which) {
        return None;
    }
    cells(ahead, notes, |notes, line, source, destination, word| {
        notes.pair(line, source, destination, |pair| set(pair, Reading::Known(word)));
    })
}

fn any(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let first = ahead.lines.first()?.number;
    let used = cells(ahead, notes, |notes, line, source, destination, word| {
        notes.add(line, Note::SomeAccess(source.clone(), destination.clone(), word));
    })?;
    notes.add(
        first,
        Note::Remark(
            "a matrix of access has no command above it: only its refusals count".to_owned(),
        ),
    );
    Some(used)
}

/// Returns the letter of the kind, if the command above has it.
fn named(ahead: Ahead<'_>) -> Option<char> {
    let (_, option) = ahead.command?.split_once("-p2p")?;
    option.trim().chars().next()
}

/// Takes the cells of a matrix that have a status.
fn cells(
    ahead: Ahead<'_>,
    notes: &mut Notes,
    take: impl Fn(&mut Notes, u32, &Key, &Key, P2pStatus),
) -> Option<usize> {
    let is_cell = |word: &str| word == "X" || status(word).is_some();
    let mut found = false;
    let used = matrix_of(ahead, notes, is_cell, &mut |matrix, notes| {
        for (name, cells, _) in &matrix.rows {
            for ((word, line), column) in cells.iter().zip(&matrix.columns) {
                let ends = gpu(name).zip(gpu(column)).filter(|(one, other)| one != other);
                if let (Some((source, destination)), Some(word)) = (ends, status(word)) {
                    found = true;
                    take(notes, *line, &source, &destination, word);
                }
            }
        }
    })?;
    found.then_some(used)
}

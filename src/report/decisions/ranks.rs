//! The GPU, processors and adapters of each rank.

use crate::escape::clean;
use crate::matrix::{Align, Cell, Table};
use crate::page::Paint;
use decide::Binding;

pub(super) fn ranks(ranks: &[Binding]) -> Table {
    let mut table =
        Table::new(2, vec![Align::Right, Align::Right, Align::Left, Align::Left, Align::Left]);
    table.captions(["rank", "GPU", "PCI address", "bind to", "adapters"]);
    for (rank, binding) in ranks.iter().enumerate() {
        let plain = |text: String| Cell::new(clean(&text), Paint::Plain);
        table.row([
            plain(rank.to_string()),
            plain(binding.gpu.to_string()),
            plain(binding.pci.clone().unwrap_or_else(|| "?".into())),
            plain(bound(binding)),
            plain(adapters(binding)),
        ]);
    }
    table
}

fn bound(binding: &Binding) -> String {
    match (binding.numa_node, &binding.cpus) {
        (Some(node), _) => format!("numactl -N {node} -m {node}"),
        (None, Some(cpus)) => format!("taskset -c {cpus}"),
        (None, None) => "not known".into(),
    }
}

fn adapters(binding: &Binding) -> String {
    match (binding.adapters.as_slice(), binding.adapter_distance) {
        ([], _) | (_, None) => "none".into(),
        (names, Some(distance)) => format!("{} ({distance})", names.join(" ")),
    }
}

/// Returns the GPUs as CUDA_VISIBLE_DEVICES takes them: UUIDs, or indices by PCI address if one is not known.
pub(super) fn devices(ranks: &[Binding], between: &str) -> String {
    let uuids: Option<Vec<String>> = ranks.iter().map(|binding| binding.uuid.clone()).collect();
    let is_plain =
        |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let uuids = uuids.filter(|uuids| uuids.iter().all(is_plain));
    let names =
        uuids.unwrap_or_else(|| ranks.iter().map(|binding| binding.gpu.to_string()).collect());
    names.join(between)
}

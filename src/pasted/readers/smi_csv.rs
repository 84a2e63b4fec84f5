//! `nvidia-smi --query-gpu=… --format=csv`: a line of names, then one of values for each GPU.

use super::smi_facts::{State, of_host, plain};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Notes, is_uuid};
use model::units::PciAddress;

pub(crate) const READER: Reader = Reader {
    kind: "smi-csv",
    tool: "nvidia-smi --query-gpu --format=csv",
    begins: |line| fields(line).is_some(),
    read,
};

/// The names of columns that are read, and the heading and key of the same fact in `nvidia-smi -q`.
const FIELDS: &[(&str, &str, &str)] = &[
    ("index", "", "index"),
    ("name", "", "product_name"),
    ("uuid", "", "gpu_uuid"),
    ("serial", "", "serial"),
    ("vbios_version", "", "vbios_version"),
    ("driver_version", "", "driver_version"),
    ("pci.bus_id", "", "bus_id"),
    ("pcie.link.gen.current", "", "current_link_gen"),
    ("pcie.link.gen.gpucurrent", "", "current_link_gen"),
    ("pcie.link.gen.max", "", "max_link_gen"),
    ("pcie.link.gen.gpumax", "", "max_device_link_gen"),
    ("pcie.link.width.current", "", "current_link_width"),
    ("pcie.link.width.max", "", "max_link_width"),
    ("pstate", "", "performance_state"),
    ("persistence_mode", "", "persistence_mode"),
    ("compute_mode", "", "compute_mode"),
    ("mig.mode.current", "mig_mode", "current"),
    ("ecc.mode.current", "ecc_mode", "current"),
    ("ecc.errors.uncorrected.volatile.total", "volatile", "uncorrectable"),
    ("memory.total", "fb_memory_usage", "total"),
    ("temperature.gpu", "temperature", "gpu_temp"),
    ("clocks.current.sm", "clocks", "sm"),
];

/// Parts of `nvidia-smi -q` whose columns have their names before the same keys.
const PARTS: &[&str] = &["clocks_event_reasons", "clocks_throttle_reasons", "remapped_rows"];

/// Returns heading and key of each column, if this line names some that are read.
fn fields(line: &str) -> Option<Vec<(&str, &str)>> {
    // A command that asks for the fields names them too.
    if !line.contains(',') || line.len() > 4000 || line.contains("--") {
        return None;
    }
    let columns = line.split(',').map(|name| {
        let name = name.trim().split(" [").next().unwrap_or_default();
        let part = || name.split_once('.').filter(|(part, _)| PARTS.contains(part));
        let known = FIELDS.iter().find(|(field, ..)| *field == name);
        known.map(|(_, heading, key)| (*heading, *key)).or_else(part).unwrap_or_default()
    });
    let columns: Vec<_> = columns.collect();
    let known = columns.iter().filter(|(_, key)| !key.is_empty()).count();
    (known > 1 && known * 2 >= columns.len()).then_some(columns)
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let head = ahead.lines.first()?;
    let columns = fields(&head.text)?;
    let mut used = 1;
    for (place, line) in ahead.lines.iter().enumerate().skip(1).take(200) {
        let values: Vec<&str> = line.text.split(',').map(str::trim).collect();
        if values.len() != columns.len() {
            break;
        }
        let value = |wanted: &str| {
            let place = columns.iter().position(|(_, key)| *key == wanted)?;
            values.get(place).copied()
        };
        let index = value("index").and_then(|index| index.parse().ok()).map(Key::Index);
        let address = value("bus_id").and_then(|address| address.parse::<PciAddress>().ok());
        let uuid =
            value("gpu_uuid").filter(|uuid| is_uuid(uuid)).map(|uuid| Key::Uuid(uuid.to_owned()));
        let Some(key) = index.clone().or(address.map(Key::Pci)).or(uuid) else {
            break;
        };
        if let Some(address) = address {
            notes.at(line.number, &key, address, |_| {});
        }
        let mut state = State::of(Some(key));
        for ((heading, name), value) in columns.iter().zip(&values) {
            if *name == "driver_version" {
                of_host(name, value, line.number, notes);
            } else {
                state.take(&[plain(heading)], name, value, line.number, notes);
            }
        }
        state.end(notes);
        used = place + 1;
    }
    (used > 1).then_some(used)
}

//! The table that `nvidia-smi` prints without options: driver, and of each GPU its index, name, address and state.

use super::smi_facts::{of_host, set};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes};
use crate::trouble::shortened;
use model::pasted::PastedFaultKind;
use model::reading::Reading;
use model::units::{Bytes, MIB, PciAddress};

pub(crate) const READER: Reader = Reader {
    kind: "smi-table",
    tool: "nvidia-smi",
    begins: |line| line.starts_with("| NVIDIA-SMI ") || row(line).is_some(),
    read,
};

/// Most lines of the table, with its processes.
const LONGEST: usize = 2000;

/// Failed readings in one line that show that the GPU does not answer.
const MANY: usize = 3;

/// Takes index, name, persistence mode, address and uncorrected memory errors since the last reboot from the first line of a GPU's row.
fn row(line: &str) -> Option<(u32, &str, &str, PciAddress, Option<u64>)> {
    let mut cells = line.strip_prefix('|')?.split('|');
    let first = cells.next()?.trim();
    let address = cells.next()?.split_whitespace().next()?;
    if address.len() < 12 || !address.contains(':') {
        return None;
    }
    let (index, rest) = first.split_once(' ')?;
    let (name, persistence) = rest.trim().rsplit_once(' ')?;
    Some((
        index.parse().ok()?,
        name.trim(),
        persistence,
        address.parse().ok()?,
        cells.next().and_then(|errors| errors.trim().parse().ok()),
    ))
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut used = 0;
    let mut last: Option<Key> = None;
    let (mut gpus, mut ended, mut silent) = (0_u32, false, false);
    let mut at = None;
    let mut strange = 0;
    for (place, line) in ahead.lines.iter().enumerate().take(LONGEST) {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        let inside = text.starts_with(['|', '+']);
        if !inside {
            strange += 1;
            if strange > 1 || ended {
                break;
            }
            continue;
        }
        if text.starts_with("| NVIDIA-SMI ") {
            if place > 0 {
                break;
            }
            head(text, line.number, notes);
        } else if text.contains("Processes:") {
            ended = true;
        } else if let Some((index, name, persistence, address, errors)) =
            row(text).filter(|_| !ended)
        {
            let key = Key::Index(index);
            (at, silent) = (Some(address), name.contains("ERR!"));
            notes.at(line.number, &key, address, |gpu| {
                // Long names are cut, and end with dots.
                if !name.ends_with("...") && !name.contains("ERR!") {
                    gpu.name = Reading::Known(name.to_owned());
                }
                set(&mut gpu.ecc_uncorrected, errors);
                if matches!(persistence, "On" | "Off") {
                    gpu.persistence = Reading::Known(persistence == "On");
                }
            });
            gpus += 1;
            last = Some(key);
        } else if let Some(key) = last.as_ref().filter(|_| !ended) {
            silent |= text.matches("ERR!").count() >= MANY;
            if !silent {
                second(text, line.number, key, notes);
            }
        }
        if text.contains("ERR!") && silent {
            notes.add(line.number, Note::Fault(PastedFaultKind::Lost, at, shortened(text)));
        } else if text.contains("ERR!") {
            let text = format!("one reading of a GPU failed, read it again; {}", shortened(text));
            notes.add(line.number, Note::Problem(text));
        }
        (used, strange) = (place + 1, 0);
    }
    if ended {
        notes.add(ahead.lines.get(used.checked_sub(1)?)?.number, Note::Listed(gpus));
    }
    (gpus > 0 || notes.version.is_some()).then_some(used)
}

/// `| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: 13.0 |`
fn head(text: &str, line: u32, notes: &mut Notes) {
    for (label, key) in [("Driver Version:", "driver_version"), ("CUDA Version:", "cuda_version")] {
        let value = text.split_once(label).and_then(|(_, rest)| rest.split_whitespace().next());
        if let Some(value) = value.filter(|value| value.starts_with(|c: char| c.is_ascii_digit())) {
            of_host(key, value, line, notes);
        }
    }
}

/// `| N/A   34C    P0   77W / 700W |    4MiB / 143771MiB |   0%   Default |`
fn second(text: &str, line: u32, key: &Key, notes: &mut Notes) {
    let mut cells = text.trim_matches('|').split('|');
    let (state, memory) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
    let total = memory.split_once('/').and_then(|(_, total)| total.trim().strip_suffix("MiB"));
    let total = total.and_then(|total| total.trim().parse::<u64>().ok()?.checked_mul(MIB));
    let mut words = state.split_whitespace();
    let power = words.find_map(|word| word.strip_prefix('P')?.parse::<u8>().ok());
    if total.is_none() || !state.contains('W') {
        return;
    }
    notes.gpu(line, key, |gpu| {
        if let Some(total) = total {
            gpu.memory_total_bytes = Reading::Known(Bytes(total));
        }
        if let Some(power) = power.filter(|power| *power < 16) {
            gpu.power_state = Reading::Known(power);
        }
    });
}

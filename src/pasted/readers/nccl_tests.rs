//! Tables of nccl-tests (`all_reduce_perf` and so on): the GPUs, the highest bus bandwidth, and wrong values.

use std::collections::BTreeSet;

use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, number};
use model::pasted::{Collective, PastedFaultKind};
use model::reading::Reading;
use model::units::{Bytes, GbPerSecond, MIB, PciAddress};

pub(crate) const READER: Reader = Reader {
    kind: "nccl-tests",
    tool: "nccl-tests",
    begins: |line| {
        line.starts_with("# nThread ") || rank(line).is_some() || Row::of(line).is_some()
    },
    read,
};

/// Takes host, address and name from `#  Rank  0 Group  0 Pid 1 on node1 device  0 [0x06] NVIDIA H200`. Newer versions print
/// `[0000:06:00]`.
fn rank(line: &str) -> Option<(&str, PciAddress, &str)> {
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix("Rank")?;
    let (host, rest) = rest.split_once(" device ")?;
    let host = host.split_whitespace().next_back()?;
    let (place, name) = rest.split_once('[')?.1.split_once(']')?;
    let address = match place.strip_prefix("0x") {
        Some(bus) => {
            PciAddress { domain: 0, bus: u8::from_str_radix(bus, 16).ok()?, device: 0, function: 0 }
        }
        None => format!("{place}.0").parse().ok()?,
    };
    Some((host, address, name.trim()))
}

/// Part of the highest rate below which larger sizes are named; chosen: healthy machines rise up to the largest size.
const FALL: f64 = 0.6;

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut used = 0;
    let (mut gpus, mut hosts) = (0_u32, BTreeSet::new());
    let mut rows: Vec<(Row, u32)> = Vec::new();
    let mut wrong: Option<u32> = None;
    for (place, line) in ahead.lines.iter().enumerate() {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        if let Some((host, address, name)) = rank(text) {
            gpus = gpus.saturating_add(1);
            hosts.insert(host);
            let key = Key::Pci(address);
            notes.gpu(line.number, &key, |gpu| {
                gpu.pci = Reading::Known(address);
                if !name.is_empty() {
                    gpu.name = Reading::Known(name.to_owned());
                }
            });
        } else if text.starts_with('#') {
            let text = text.trim_start_matches(['#', ' ']);
            if text.starts_with("Out of bounds values") && text.contains("FAILED") {
                wrong = wrong.or(Some(line.number));
            } else if let Some(version) = text.strip_prefix("nccl-tests version ") {
                notes.version = version.split(' ').next().map(str::to_owned);
            }
        } else if let Some(row) = Row::of(text) {
            if row.wrong > 0 {
                wrong = wrong.or(Some(line.number));
            }
            rows.push((row, line.number));
        } else {
            // Lines of NCCL's log come between; its reader takes them.
            break;
        }
        used = place + 1;
    }
    let best =
        rows.iter().enumerate().max_by(|(_, one), (_, other)| one.0.bus.total_cmp(&other.0.bus));
    if let Some((place, (row, line))) = best {
        let (rate, bytes) = (row.bus, Bytes(row.bytes));
        let is_small = rows.iter().all(|(row, _)| row.bytes < MIB);
        let kind = if is_small { " (latency, not bandwidth)" } else { "" };
        let over = match (gpus, row.ranks()) {
            (known, Some(ranks)) if u64::from(known) < ranks => {
                format!("about {ranks} GPUs (inferred)")
            }
            (0, None) => "unnamed GPUs".to_owned(),
            _ => format!("{gpus} GPUs"),
        };
        let what = format!(
            "nccl-tests reached a bus bandwidth of {rate} GB/s with {bytes}{kind} over {over}{}; one collective does not \
                 show which link limits it",
            if rows.iter().all(|(row, _)| row.checked && row.wrong == 0) {
                ", no wrong values"
            } else {
                ""
            }
        );
        notes.add(*line, Note::Remark(what));
        if hosts.len() == 1 {
            let (bytes, bus_gbps) = (Bytes(row.bytes), GbPerSecond(row.bus));
            notes.add(*line, Note::Collective(Collective { gpus, bytes, bus_gbps }));
        }
        let larger = rows.get(place + 1..).unwrap_or_default();
        let is_low = |(row, _): &(Row, u32)| row.bus < FALL * rate;
        if larger.len() > 1
            && larger.iter().all(is_low)
            && let Some((low, line)) = larger.first()
        {
            let from = Bytes(low.bytes);
            let text = format!(
                "a bus bandwidth of {rate} GB/s with {bytes}, and {} GB/s from {from} on",
                low.bus
            );
            notes.add(*line, Note::Fault(PastedFaultKind::RateFalls, None, text));
        }
    }
    if let Some(line) = wrong {
        notes.add(
            line,
            Note::Fault(
                PastedFaultKind::WrongValues,
                None,
                "nccl-tests counted wrong values".to_owned(),
            ),
        );
    }
    notes.in_vain = used;
    (used > 0).then_some(used)
}

/// A row of the table: out of place and in place.
struct Row {
    bytes: u64,
    /// Rate of the algorithm.
    own: f64,
    bus: f64,
    wrong: u64,
    /// True if its values were checked.
    checked: bool,
}

impl Row {
    /// `8589934592  2147483648  float  sum  -1  44621  192.51  336.89  0  44624  192.50  336.88  0`
    fn of(text: &str) -> Option<Self> {
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let bytes = words.first()?.parse().ok()?;
        words.get(1)?.parse::<u64>().ok()?;
        let kind = words.get(2)?;
        if kind.parse::<f64>().is_ok() || words.len() < 7 {
            return None;
        }
        // Behind the names of type and operation: root, then time, algbw, busbw and #wrong, twice.
        let figures: Vec<&str> = words.iter().rev().take(8).rev().copied().collect();
        let out_of_place = figures.get(2).and_then(|rate| number(rate))?;
        let in_place = figures.get(6).and_then(|rate| number(rate)).unwrap_or(0.0);
        let is_first = out_of_place >= in_place;
        let own = figures.get(if is_first { 1 } else { 5 }).and_then(|rate| number(rate))?;
        let wrong = [3, 7].iter().filter_map(|place| figures.get(*place)?.parse::<u64>().ok());
        Some(Self {
            bytes,
            own,
            bus: out_of_place.max(in_place),
            checked: wrong.clone().next().is_some(),
            wrong: wrong.fold(0, u64::saturating_add),
        })
    }

    /// Returns the number of ranks of an all-reduce: only its bus bandwidth is more than that of the algorithm, by
    /// 2(n-1)/n (nccl-tests, doc/PERFORMANCE.md).
    fn ranks(&self) -> Option<u64> {
        let share = self.bus / self.own;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 2 to 200")]
        (share > 1.0 && share < 1.99).then(|| (2.0 / (2.0 - share)).round() as u64)
    }
}

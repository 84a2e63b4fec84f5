//! `nvidia-smi nvlink -s` (status) and `-e` (error counters): the links below the line of each GPU.

use super::smi_list::named;
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Notes, What};
use model::reading::Reading;

pub(crate) const STATUS: Reader = Reader {
    kind: "smi-nvlink",
    tool: "nvidia-smi nvlink -s",
    begins,
    read: |ahead, notes| read(ahead, notes, status),
};
pub(crate) const ERRORS: Reader = Reader {
    kind: "smi-nvlink-errors",
    tool: "nvidia-smi nvlink -e",
    begins,
    read: |ahead, notes| read(ahead, notes, errors),
};

fn begins(line: &str) -> bool {
    line.starts_with("GPU ") && line.contains("(UUID: ")
}

/// Takes what the line says of a link. Returns false if it is none of this kind.
type Take = fn(&mut Notes, u32, &Key, u8, &str) -> bool;

/// Reads one GPU and its links.
fn read(ahead: Ahead<'_>, notes: &mut Notes, take: Take) -> Option<usize> {
    let head = ahead.lines.first()?;
    let gpu = named(&head.text, head.number, notes)?;
    let mut used = 1;
    let mut found = 0_u32;
    for (place, line) in ahead.lines.iter().enumerate().skip(1) {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        let link = text
            .strip_prefix("Link ")
            .and_then(|rest| rest.split_once(':'));
        let number =
            link.and_then(|(number, rest)| Some((number.trim().parse().ok()?, rest.trim())));
        let Some((number, rest)) = number else { break };
        if !take(notes, line.number, &gpu, number, rest) {
            break;
        }
        (used, found) = (place + 1, found + 1);
    }
    let rest = ahead.lines.iter().skip(used);
    if rest.clone().all(|line| line.text.trim().is_empty()) {
        notes.add(head.number, What::CutLinks(gpu));
    }
    (found > 0).then_some(used)
}

/// `26.562 GB/s`, or `<inactive>`.
fn status(notes: &mut Notes, line: u32, gpu: &Key, number: u8, rest: &str) -> bool {
    let rate = rest
        .strip_suffix("GB/s")
        .and_then(|rate| rate.trim().parse::<f64>().ok());
    let rate = rate.filter(|rate| *rate > 0.0 && *rate < 1000.0);
    let inactive = rest.to_ascii_lowercase().contains("inactive");
    if rate.is_none() && !inactive {
        return false;
    }
    notes.link(line, gpu, number, |link| {
        link.active = Reading::Known(!inactive);
        if let Some(rate) = rate {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "below 1000"
            )]
            let speed = (rate * 1000.0) as u32;
            link.speed_mbps = Reading::Known(speed);
        }
    });
    true
}

/// `Replay Errors: 0`, `Recovery Errors: 0`, `CRC Errors: 0`.
fn errors(notes: &mut Notes, line: u32, gpu: &Key, number: u8, rest: &str) -> bool {
    let Some((name, count)) = rest.rsplit_once(':') else {
        return false;
    };
    let Ok(count) = count.trim().parse::<u64>() else {
        return name.contains("rror") && count.contains("N/A");
    };
    let (name, count) = (name.to_ascii_lowercase(), Reading::Known(count));
    notes.link(line, gpu, number, |link| match () {
        () if name.contains("replay") => link.replay_errors = count,
        () if name.contains("recovery") => link.recovery_errors = count,
        () if name.contains("crc flit") || name.trim() == "crc errors" => link.crc_errors = count,
        () => {}
    });
    name.contains("error")
}

//! `nvidia-smi nvlink -s` (status) and `-e` (error counters): the links below the line of each GPU.

use super::smi_list::{heading, is_inactive, named};
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, stands_for_more};
use model::reading::Reading;

/// Declares the reader of one kind of list: the end of its name, its option, and what takes a line.
macro_rules! list {
    ($($reader:ident $end:literal $option:literal $take:ident,)*) => {$(
        pub(crate) const $reader: Reader = Reader {
            kind: concat!("smi-nvlink", $end),
            tool: concat!("nvidia-smi nvlink -", $option),
            begins,
            read: |ahead, notes| read(ahead, notes, $take),
        };
    )*};
}

list! {
    STATUS "" 's' status,
    ERRORS "-errors" 'e' errors,
}

fn begins(line: &str) -> bool {
    heading(line).is_some()
}

/// Takes what the line says of a link. Returns false for another line.
type Take = fn(&mut Notes, u32, &Key, u8, &str) -> bool;

/// Returns first and last link of a line, and what follows: `Link 3: ...`, `Link 3, ...`, `Links 0-5: ...`.
fn links(text: &str) -> Option<(u8, u8, &str)> {
    let (numbers, rest) = text.strip_prefix("Link")?.split_once([':', ','])?;
    let numbers = numbers.strip_prefix('s').unwrap_or(numbers).trim();
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < MOST_LINKS).then(|| (first, last, rest.trim()))
}

/// More links than any GPU has.
const MOST_LINKS: u8 = 64;

/// Reads one GPU and its links.
fn read(ahead: Ahead<'_>, notes: &mut Notes, take: Take) -> Option<usize> {
    let head = ahead.lines.first()?;
    let gpu = named(&head.text, head.number, notes)?;
    let mut used = 1;
    let (mut is_own, mut is_torn) = (false, false);
    for (place, line) in ahead.lines.iter().enumerate().skip(1) {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        // `NVML: Unable to retrieve NVLink information as all links are inActive`: their number is not known.
        let all = is_inactive(text).then_some((0, 0, text));
        let Some((first, last, rest)) = links(text).or(all) else {
            break;
        };
        let mut is_link = false;
        for number in first..=last {
            is_link = take(notes, line.number, &gpu, number, rest);
        }
        if !is_link {
            // `Link 14:`, cut within the line, or a rate that is no number.
            is_torn = is_own;
            break;
        }
        is_own = true;
        used = place + 1;
    }
    let mut rest = ahead.lines.iter().enumerate().skip(used);
    match rest.find(|(_, line)| !line.text.trim().is_empty()) {
        Some(_) if is_torn => notes.add(head.number, Note::CutLinks(gpu, true)),
        Some((place, line)) if stands_for_more(line.text.trim()) => {
            notes.add(head.number, Note::CutLinks(gpu, true));
            used = place + 1;
        }
        Some((_, line)) if begins(&line.text) => {}
        _ => notes.add(head.number, Note::CutLinks(gpu, false)),
    }
    is_own.then_some(used)
}

/// `26.562 GB/s`, or `<inactive>`.
fn status(notes: &mut Notes, line: u32, gpu: &Key, number: u8, rest: &str) -> bool {
    let rate = rest.strip_suffix("GB/s").and_then(|rate| rate.trim().parse::<f64>().ok());
    let rate = rate.filter(|rate| *rate > 0.0 && *rate < 1000.0);
    let inactive = is_inactive(rest);
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

/// `Replay Errors: 0`, `Recovery Errors: 0`, `CRC Errors: 0`, or `No errors`.
fn errors(notes: &mut Notes, line: u32, gpu: &Key, number: u8, rest: &str) -> bool {
    if rest == "No errors" {
        notes.link(line, gpu, number, |link| {
            link.replay_errors = Reading::Known(0);
            link.recovery_errors = Reading::Known(0);
            link.crc_errors = Reading::Known(0);
        });
        return true;
    }
    let Some((name, count)) = rest.rsplit_once(':') else {
        return false;
    };
    // NVLink 5 counts other things too, such as `Tx discards` and `Effective BER`.
    let name = name.to_ascii_lowercase();
    let is_counter = ["error", "discard", "event", " ber"];
    if !is_counter.iter().any(|word| name.contains(word)) {
        return false;
    }
    if let Ok(count) = count.trim().parse::<u64>() {
        let count = Reading::Known(count);
        notes.link(line, gpu, number, |link| match () {
            () if name.contains("replay") => link.replay_errors = count,
            () if name.contains("recovery errors") => link.recovery_errors = count,
            () if name.contains("crc flit") || name.trim() == "crc errors" => {
                link.crc_errors = count;
            }
            () => {}
        });
    }
    true
}

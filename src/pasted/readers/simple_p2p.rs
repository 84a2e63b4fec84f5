//! `simpleP2P` of the CUDA samples: access, the rate between two GPUs, and whether the bytes were right.

use crate::reader::{Ahead, Reader};
use crate::told::{Key, Note, Notes, Printed, number};
use model::flow::Setup;
use model::measurement::Verified;
use model::pasted::PastedFaultKind;
use model::placement::{Placement, StreamKind};
use model::reading::Reading;
use model::units::{Bytes, MIB};

pub(crate) const READER: Reader = Reader {
    kind: "simple-p2p",
    tool: "simpleP2P",
    begins: |line| {
        let starts = ["cudaMemcpyPeer / cudaMemcpy", RUN, WRONG];
        line.contains("Peer access from ") || starts.iter().any(|start| line.starts_with(start))
    },
    read,
};

/// `Run kernel on GPU1, taking source data from GPU0 and writing to GPU1...`
const RUN: &str = "Run kernel on GPU";

/// `Verification error @ element 1: val = 0.000000, ref = 4.000000`
const WRONG: &str = "Verification error @";

/// Lines between the rate and the result of the comparison.
const BEHIND: usize = 24;

/// Returns the GPU of `NVIDIA H200 (GPU0)` or of `GPU0`.
fn gpu(text: &str) -> Option<Key> {
    let (_, rest) = text.rsplit_once("GPU")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(Key::Ordinal)
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let line = ahead.lines.first()?;
    let text = line.text.trim();
    if let Some((_, rest)) = text.split_once("Peer access from ") {
        let (ends, word) = rest.rsplit_once(':')?;
        let (from, to) = ends.split_once("->")?;
        let possible = match word.trim() {
            "Yes" => true,
            "No" => false,
            _ => return None,
        };
        let (from_gpu, to_gpu) = (gpu(from)?, gpu(to)?);
        for (key, text) in [(&from_gpu, from), (&to_gpu, to)] {
            if let Some((name, _)) = text.trim().split_once(" (") {
                notes.gpu(line.number, key, |gpu| gpu.name = Reading::Known(name.to_owned()));
            }
        }
        notes.add(line.number, Note::Access(from_gpu, to_gpu, possible));
        return Some(1);
    }
    // What stood above the kernels may be cut off.
    let (ends, rate) = if text.starts_with(RUN) {
        (text.split_once(" from ")?.1, f64::NAN)
    } else if text.starts_with(WRONG) {
        let what = Note::Fault(PastedFaultKind::WrongValues, None, text.to_owned());
        notes.add(line.number, what);
        return Some(ahead.lines.iter().take_while(|line| line.text.contains(WRONG)).count());
    } else {
        let (ends, rate) = text.split_once(" between ")?.1.split_once(':')?;
        let rate = number(rate.trim().strip_suffix("GB/s")?.trim());
        (ends, rate.filter(|rate| *rate > 0.0)?)
    };
    let (one, other) = ends.split_once(" and ")?;
    let mut used = 1;
    let mut verified = Verified::Skipped;
    for (place, line) in ahead.lines.iter().enumerate().skip(1).take(BEHIND) {
        let text = &line.text;
        verified = match verified {
            _ if text.contains(WRONG) || text.contains("Test failed") => Verified::Corrupt,
            Verified::Skipped if text.contains("Test passed") => Verified::Ok,
            _ => continue,
        };
        used = place + 1;
        if text.contains("Test ") {
            break;
        }
    }
    if rate.is_nan() && verified != Verified::Corrupt {
        return None;
    }
    let figure = Printed { verified, ..Printed::of(rate, 100) };
    // The program copies there and back in turn, in the default stream.
    let setup = Setup {
        placement: Placement {
            source: StreamKind::Default,
            destination: StreamKind::Default,
            ..Placement::REFERENCE
        },
        bytes: Bytes(64 * MIB),
        ..Setup::REFERENCE
    };
    let (one, other) = (gpu(one)?, gpu(other)?);
    for (from, to) in [(one.clone(), other.clone()), (other, one)] {
        notes.add(line.number, Note::Peer(from, to, setup, figure));
    }
    Some(used)
}

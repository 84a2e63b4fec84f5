//! `nvidia-smi -L`: `GPU 0: NVIDIA H200 (UUID: GPU-…)`.

use crate::reader::{Ahead, Reader};
use crate::told::{Key, Notes, is_uuid};
use model::reading::Reading;

pub(crate) const READER: Reader = Reader {
    kind: "smi-list",
    tool: "nvidia-smi -L",
    begins: |line| line.starts_with("GPU ") && line.contains("(UUID: "),
    read,
};

/// Takes index, name and UUID from a line that names a GPU.
pub(super) fn named(text: &str, line: u32, notes: &mut Notes) -> Option<Key> {
    let (index, rest) = text.trim().strip_prefix("GPU ")?.split_once(": ")?;
    let (name, uuid) = rest.split_once(" (UUID: ")?;
    let uuid = uuid.split(')').next()?;
    let key = Key::Index(index.parse().ok()?);
    if is_uuid(uuid) {
        notes.same(line, key.clone(), Key::Uuid(uuid.to_owned()));
        notes.gpu(line, &key, |gpu| gpu.uuid = Reading::Known(uuid.to_owned()));
    }
    notes.gpu(line, &key, |gpu| gpu.name = Reading::Known(name.to_owned()));
    Some(key)
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    // With links below, it is the output of `nvidia-smi nvlink`.
    let mut below = ahead.lines.iter().skip(1).filter(|line| !line.text.is_empty());
    if below.next().is_some_and(|line| line.text.trim_start().starts_with("Link")) {
        return None;
    }
    let line = ahead.lines.first()?;
    named(&line.text, line.number, notes).map(|_| 1)
}

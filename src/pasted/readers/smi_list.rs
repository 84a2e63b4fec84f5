//! `nvidia-smi -L`: `GPU 0: NVIDIA H200 (UUID: GPU-…)`.

use crate::messages::is_model;
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Notes, is_uuid};
use model::reading::Reading;

pub(crate) const READER: Reader = Reader {
    kind: "smi-list",
    tool: "nvidia-smi -L",
    begins: |line| heading(line).is_some_and(|(_, name, uuid)| uuid.is_some() || is_model(name)),
    read,
};

/// Takes index, name and UUID from a line that names a GPU. People blank the UUID, or take it out.
pub(super) fn heading(line: &str) -> Option<(u32, &str, Option<&str>)> {
    let (index, rest) = line.trim().strip_prefix("GPU ")?.split_once(':')?;
    let index = index.parse().ok().filter(|_| index.len() < 6)?;
    Some(match rest.split_once("(UUID") {
        Some((name, uuid)) => (index, name.trim(), Some(uuid.trim_matches([':', ' ', ')']))),
        None => (index, rest.trim(), None),
    })
}

/// Takes what a line says that names a GPU.
pub(super) fn named(text: &str, line: u32, notes: &mut Notes) -> Option<Key> {
    let (index, name, uuid) = heading(text)?;
    let key = Key::Index(index);
    if let Some(uuid) = uuid.filter(|uuid| is_uuid(uuid)) {
        notes.same(line, key.clone(), Key::Uuid(uuid.to_owned()));
        notes.gpu(line, &key, |gpu| gpu.uuid = Reading::Known(uuid.to_owned()));
    }
    notes.gpu(line, &key, |gpu| {
        if !name.is_empty() {
            gpu.name = Reading::Known(name.to_owned());
        }
    });
    Some(key)
}

/// Returns true for what nvidia-smi says of NVLinks that are down.
pub(super) fn is_inactive(rest: &str) -> bool {
    rest.to_ascii_lowercase().contains("inactive")
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    // With links below, it is the output of `nvidia-smi nvlink`.
    let mut below = ahead.lines.iter().skip(1).filter(|line| !line.text.is_empty());
    let is_link = |text: &str| text.starts_with("Link") || is_inactive(text);
    if below.next().is_some_and(|line| is_link(line.text.trim_start())) {
        return None;
    }
    let line = ahead.lines.first()?;
    named(&line.text, line.number, notes).map(|_| 1)
}

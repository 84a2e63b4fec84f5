//! Contents that several processes share: a file without a name has them, and whoever writes or reads such a buffer does
//! so through the file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use model::sharing::Rung;

use super::contents::{Content, Contents, Stretch};

/// Most bytes of a file: a buffer is shared as a list of stretches, of which there are few.
const MOST: u64 = 1 << 24;

/// Beginning of the names of such files.
pub const SHARED_FILE: &str = "peerscope-simulated-";

/// A file with the contents of a buffer.
#[derive(Debug)]
pub(crate) struct Backing(File);

/// A stretch as the file has it: start, content, origin.
#[derive(Serialize, Deserialize)]
struct Stored(u64, Kind, u64);

#[derive(Serialize, Deserialize)]
enum Kind {
    Pattern(u64),
    Poison(u64),
    Bytes(Vec<u8>),
}

impl Backing {
    /// Creates an empty file, whose name says how it is handed over.
    pub(super) fn create(rung: Rung) -> io::Result<Self> {
        let name = format!("{SHARED_FILE}{}", rung.name());
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        Ok(Self(File::from(file)))
    }

    /// Takes a file of another process.
    pub(super) fn opened(file: OwnedFd) -> Self {
        Self(File::from(file))
    }

    /// Returns another descriptor of the file.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone().map(OwnedFd::from)
    }

    /// Writes the contents of a buffer.
    pub(super) fn store(&mut self, contents: &Contents) -> io::Result<()> {
        let stored = contents.stretches().iter().map(|stretch| {
            let kind = match &stretch.content {
                Content::Pattern(seed) => Kind::Pattern(*seed),
                Content::Poison(value) => Kind::Poison(*value),
                Content::Bytes(bytes) => Kind::Bytes(bytes.to_vec()),
            };
            Stored(stretch.start, kind, stretch.origin)
        });
        let text = serde_json::to_vec(&stored.collect::<Vec<_>>())?;
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(&text)
    }

    /// Reads the contents of a buffer of this size. Empty if nobody has written them.
    pub(super) fn load(&self, bytes: u64) -> io::Result<Option<Contents>> {
        let length = self.0.metadata()?.len().min(MOST);
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        self.0.read_exact_at(&mut text, 0)?;
        if text.is_empty() {
            return Ok(None);
        }
        let stored: Vec<Stored> = serde_json::from_slice(&text)?;
        let stretches = stored.into_iter().map(|Stored(start, kind, origin)| Stretch {
            start,
            content: match kind {
                Kind::Pattern(seed) => Content::Pattern(seed),
                Kind::Poison(value) => Content::Poison(value),
                Kind::Bytes(bytes) => Content::Bytes(Arc::from(bytes)),
            },
            origin,
        });
        Ok(Some(Contents::new(bytes, stretches.collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let mut one = Backing::create(Rung::Descriptor).unwrap();
        let other = Backing::opened(one.descriptor().unwrap());
        assert!(other.load(64).unwrap().is_none(), "nothing was written");
        let mut contents = Contents::new(64, vec![Stretch::whole(Content::Pattern(7))]);
        contents.flip(100);
        one.store(&contents).unwrap();
        let read = other.load(64).unwrap().unwrap();
        assert_eq!(read.check(64, 7.into(), 7), contents.check(64, 7.into(), 7));
        assert_eq!(read.check(64, 7.into(), 7).wrong, 1);
        // A shorter list replaces a longer one.
        one.store(&Contents::new(64, vec![Stretch::whole(Content::Pattern(8))])).unwrap();
        assert_eq!(other.load(64).unwrap().unwrap().pattern(64), Some(8.into()));
    }
}

//! Contents that several processes share: a file without a name has them, and whoever writes or reads such a buffer does
//! so through the file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
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
/// Precedes the number of the GPU in such a name.
const OF_GPU: &str = "-of-";
/// The place of a flag that kernels of another process have written: behind all contents.
const FLAG_AT: u64 = MOST;

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
    /// Creates an empty file, whose name says how it is handed over, and of which GPU it is.
    pub(super) fn create(rung: Rung, gpu: Option<u32>) -> io::Result<Self> {
        let gpu = gpu.map_or_else(String::new, |gpu| format!("{OF_GPU}{gpu}"));
        let name = format!("{SHARED_FILE}{}{gpu}", rung.name());
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

    /// Returns the GPU whose memory it is, by its name.
    pub(crate) fn gpu(&self) -> Option<u32> {
        let name = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let name = std::fs::read_link(name).ok()?;
        let name = name.to_string_lossy().into_owned();
        let (_, gpu) = name.rsplit_once(OF_GPU)?;
        gpu.split(' ').next()?.parse().ok()
    }

    /// Writes a flag, as a kernel of any of the processes does.
    pub(crate) fn put_flag(&self, flag: u32) -> io::Result<()> {
        self.0.write_all_at(&flag.to_le_bytes(), FLAG_AT)
    }

    /// Returns the flag that was written last; none if none was.
    pub(crate) fn flag(&self) -> Option<u32> {
        let mut flag = [0; 4];
        self.0.read_exact_at(&mut flag, FLAG_AT).ok()?;
        Some(u32::from_le_bytes(flag))
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
        // Nothing but zeros lies between the contents and a flag.
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
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
        let mut one = Backing::create(Rung::Descriptor, Some(11)).unwrap();
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
        assert_eq!((other.gpu(), other.flag()), (Some(11), None));
        one.put_flag(70_001).unwrap();
        assert_eq!(other.flag(), Some(70_001));
        assert_eq!(other.load(64).unwrap().unwrap().pattern(64), Some(8.into()));
    }
}

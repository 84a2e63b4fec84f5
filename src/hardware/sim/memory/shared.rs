//! Contents that several processes share: a file without a name has them, and whoever writes or reads such a buffer does
//! so through the file.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::contents::{Content, Contents, Stretch};

/// Words of the contents: 1 if they are a pattern, its seed and its origin.
const WORDS: usize = 3;

/// A file with the contents of a buffer, as far as these are a pattern.
#[derive(Debug)]
pub(crate) struct Backing(File);

impl Backing {
    /// Creates an empty file.
    pub(super) fn create() -> io::Result<Self> {
        let file = memfd_create("peerscope-simulated", MemfdFlags::CLOEXEC)?;
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
    pub(super) fn store(&self, contents: &Contents) -> io::Result<()> {
        let sent = contents.pattern(contents.bytes());
        let words = sent.map_or([0; WORDS], |sent| [1, sent.seed, sent.from * 8]);
        self.0.write_all_at(words.map(u64::to_le_bytes).as_flattened(), 0)
    }

    /// Reads the contents of a buffer of this size; none if nobody has written a pattern.
    pub(super) fn load(&self, bytes: u64) -> Option<Contents> {
        let mut words = [[0; 8]; WORDS];
        self.0.read_exact_at(words.as_flattened_mut(), 0).ok()?;
        let [1, seed, origin] = words.map(u64::from_le_bytes) else { return None };
        let stretch = Stretch { start: 0, content: Content::Pattern(seed), origin };
        Some(Contents::new(bytes, vec![stretch]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let one = Backing::create().unwrap();
        let other = Backing::opened(one.descriptor().unwrap());
        assert!(other.load(64).is_none(), "nothing was written");
        let mut contents = Contents::new(64, vec![Stretch::whole(Content::Pattern(7))]);
        one.store(&contents).unwrap();
        assert_eq!(other.load(64).unwrap().pattern(64), Some(7.into()));
        contents.flip(100);
        one.store(&contents).unwrap();
        assert!(other.load(64).is_none(), "this is no pattern");
    }
}

//! Contents that several processes share: a file without a name has them, and whoever writes or reads such a buffer does
//! so through the file.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::contents::{Content, Contents, Stretch};

/// Precedes the number of the GPU in the names of such files.
const OF_GPU: &str = "-of-";
/// The place of a flag that kernels of another process have written: behind the contents.
const FLAG_AT: u64 = 64;
/// Words of the contents: 1 if they are a pattern, its seed and its origin.
const WORDS: usize = 3;

/// A file with the contents of a buffer, as far as these are a pattern.
#[derive(Debug)]
pub(crate) struct Backing(File);

impl Backing {
    /// Creates an empty file, whose name says of which GPU it is.
    pub(super) fn create(gpu: Option<u32>) -> io::Result<Self> {
        let gpu = gpu.map_or_else(String::new, |gpu| format!("{OF_GPU}{gpu}"));
        let file = memfd_create(format!("peerscope-simulated{gpu}"), MemfdFlags::CLOEXEC)?;
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
        let one = Backing::create(Some(11)).unwrap();
        let other = Backing::opened(one.descriptor().unwrap());
        assert!(other.load(64).is_none(), "nothing was written");
        let mut contents = Contents::new(64, vec![Stretch::whole(Content::Pattern(7))]);
        one.store(&contents).unwrap();
        assert_eq!(other.load(64).unwrap().pattern(64), Some(7.into()));
        assert_eq!((other.gpu(), other.flag()), (Some(11), None));
        one.put_flag(70_001).unwrap();
        assert_eq!(other.flag(), Some(70_001));
        assert!(other.load(64).is_some());
        contents.flip(100);
        one.store(&contents).unwrap();
        assert!(other.load(64).is_none(), "this is no pattern");
    }
}

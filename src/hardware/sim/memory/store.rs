//! The memory of one allocation: its contents, copies that have arrived, and the file that shares it. Parts of a buffer are
//! ranges of its store, so that all see the same bytes.

use std::borrow::Cow;

use super::GARBAGE;
use super::contents::{Content, Contents, Stretch};
use super::damage::{self, Piece};
use super::shared::Backing;
use crate::spec::CopyFault;

/// Bytes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Range {
    const fn end(self) -> u64 {
        self.at.saturating_add(self.bytes)
    }

    const fn contains(self, other: Self) -> bool {
        self.at <= other.at && other.end() <= self.end()
    }

    const fn overlaps(self, other: Self) -> bool {
        self.at < other.end() && other.at < self.end()
    }
}

/// The data that determine the result of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Origin {
    /// The store that the copy read, and the offset in it.
    pub(super) source: (u32, u64),
    pub(super) version: u64,
    /// The bytes that it wrote.
    pub(super) to: Range,
    pub(super) fault: Option<CopyFault>,
}

/// A copy that has arrived.
#[derive(Debug)]
struct Arrival {
    data: Vec<Stretch>,
    to: Range,
    fault: Option<CopyFault>,
}

#[derive(Debug)]
pub(super) struct Store {
    contents: Contents,
    /// Changes with every write.
    version: u64,
    /// The copies that wrote ranges to which nothing else was written since. Repeating one of them changes nothing.
    origins: Vec<Origin>,
    /// Copies that are carried out at the next read, since most are overwritten before. A row of copies with
    /// thousands of wrong words each then costs one.
    due: Vec<Arrival>,
    /// The file that has its contents, if other processes share them.
    backing: Option<Backing>,
}

impl Store {
    pub(super) const fn new(contents: Contents) -> Self {
        Self { contents, version: 0, origins: Vec::new(), due: Vec::new(), backing: None }
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) const fn backing(&self) -> Option<&Backing> {
        self.backing.as_ref()
    }

    /// Lets a file have the contents, which other processes may have written.
    pub(super) fn adopt(&mut self, backing: Backing) {
        self.backing = Some(backing);
    }

    /// Lets a new file have the contents.
    pub(super) fn lend(&mut self, backing: Backing) {
        self.settle();
        self.backing = Some(backing);
        self.publish();
    }

    /// Returns the contents, after all copies that have arrived.
    pub(super) fn settled(&mut self) -> &Contents {
        self.settle();
        &self.contents
    }

    /// Returns true if repeating a copy changes nothing. Another process may have changed what it shares.
    pub(super) fn has(&self, origin: &Origin) -> bool {
        self.backing.is_none() && self.origins.contains(origin)
    }

    /// Writes content from its beginning on, as a kernel does.
    pub(super) fn write(&mut self, to: Range, content: Content, origin: u64, version: u64) {
        self.overwrite(to, to, version);
        self.settle();
        let stretch = Stretch { start: 0, content, origin };
        self.contents.write(to.at, to.bytes, &[stretch]);
        self.publish();
    }

    /// Takes a copy of which `covered` bytes from the beginning of its range on are surely written.
    pub(super) fn arrive(
        &mut self,
        origin: Origin,
        (data, to): (Vec<Stretch>, Range),
        covered: u64,
        version: u64,
    ) {
        let bytes = covered;
        self.overwrite(Range { bytes, ..to }, to, version);
        self.origins.push(origin);
        self.due.push(Arrival { data, to, fault: origin.fault });
        if self.backing.is_some() {
            self.settle();
        }
    }

    /// Drops pending copies that a write hides, and what is known about the copies whose bytes it changes.
    fn overwrite(&mut self, hidden: Range, changed: Range, version: u64) {
        self.version = version;
        self.due.retain(|arrival| !hidden.contains(arrival.to));
        self.origins.retain(|origin| !origin.to.overlaps(changed));
    }

    /// Carries out the pending copies, after reading what other processes have written.
    pub(super) fn settle(&mut self) {
        let shared = self.backing.as_ref().and_then(|backing| backing.load(self.contents.bytes()));
        if let Some(contents) = shared {
            self.contents = contents;
        }
        let written = !self.due.is_empty();
        for Arrival { data, to, fault } in std::mem::take(&mut self.due) {
            let whole = Contents::new(to.bytes, data);
            let garbage = [Stretch::whole(Content::Pattern(GARBAGE))];
            let pieces = damage::pieces(fault, to.bytes);
            self.contents.write_all(pieces.iter().filter_map(|piece| match *piece {
                Piece::Arrives { from, at, bytes } => {
                    Some((to.at + at, bytes, Cow::Owned(whole.read(from, bytes))))
                }
                Piece::Garbage { at, bytes } => {
                    Some((to.at + at, bytes, Cow::Borrowed(&garbage[..])))
                }
                Piece::Flips { .. } => None,
            }));
            for piece in &pieces {
                if let Piece::Flips { bit } = *piece {
                    self.contents.flip(to.at * 8 + bit);
                }
            }
        }
        if written {
            self.publish();
        }
    }

    /// Shows the contents to the processes that share them.
    fn publish(&mut self) {
        if let Some(backing) = &self.backing {
            // Contents that cannot be written are missing on the other side, which its check reports.
            let _ = backing.store(&self.contents);
        }
    }

    /// Returns the number of copies that are still to be carried out.
    #[cfg(test)]
    pub(super) const fn pending(&self) -> usize {
        self.due.len()
    }
}

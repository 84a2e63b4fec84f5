//! The contents of one buffer, bit-exact at any size: a list of stretches, each of which names the content that its
//! bytes belong to.

use std::borrow::Cow;
use std::sync::Arc;

use hardware::pattern::{pattern, poison};
use hardware::{PatternCheck, Sent};

/// The source of the bytes of a stretch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// The pattern of this seed.
    Pattern(u64),
    /// The poison of this value.
    Poison(u64),
    Bytes(Arc<[u8]>),
}

impl Content {
    /// Returns the byte at this offset of the content.
    fn byte(&self, place: u64) -> u8 {
        let of = |word: u64| word.to_le_bytes()[(place % 8) as usize];
        match self {
            Self::Pattern(seed) => of(pattern(*seed, place / 8)),
            Self::Poison(value) => of(poison(*value, place / 8)),
            Self::Bytes(bytes) => {
                usize::try_from(place).ok().and_then(|place| bytes.get(place)).copied().unwrap_or(0)
            }
        }
    }

    /// Copies the bytes from this offset of the content on, 0 beyond its end.
    fn fill(&self, place: u64, into: &mut [u8]) {
        let (words, rest) = into.as_chunks_mut::<8>();
        let mut at = place;
        // A plain loop, because iterator adapters take most of the time in unoptimised builds.
        for word in words {
            *word = self.word(at).to_le_bytes();
            at += 8;
        }
        rest.copy_from_slice(&self.word(at).to_le_bytes()[..rest.len()]);
    }

    /// Returns the 8 bytes from this offset of the content on.
    fn word(&self, place: u64) -> u64 {
        match self {
            Self::Pattern(seed) if place.is_multiple_of(8) => pattern(*seed, place / 8),
            Self::Poison(value) if place.is_multiple_of(8) => poison(*value, place / 8),
            _ => u64::from_le_bytes(std::array::from_fn(|byte| self.byte(place + byte as u64))),
        }
    }
}

/// Bytes from `start` up to the start of the next stretch. They are the bytes of the content from `origin` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) content: Content,
    pub(super) origin: u64,
}

impl Stretch {
    /// Creates a stretch with a content from its beginning on.
    pub(super) const fn whole(content: Content) -> Self {
        Self { start: 0, content, origin: 0 }
    }

    fn byte(&self, at: u64) -> u8 {
        self.content.byte(at - self.start + self.origin)
    }

    fn word(&self, at: u64) -> u64 {
        self.content.word(at - self.start + self.origin)
    }

    /// Returns true if its bytes are at their place in a buffer that begins with this word of the content.
    const fn in_place(&self, from: u64) -> bool {
        self.start.wrapping_add(from.wrapping_mul(8)) == self.origin
    }

    fn goes_on(&self, next: &Self) -> bool {
        self.content == next.content
            && next.start - self.start == next.origin.wrapping_sub(self.origin)
    }
}

/// The contents of a buffer.
#[derive(Debug, Clone)]
pub(super) struct Contents {
    /// In order, the first at 0, none of them empty.
    stretches: Vec<Stretch>,
    bytes: u64,
}

impl Contents {
    /// Creates memory of this size with these contents.
    pub(super) const fn new(bytes: u64, stretches: Vec<Stretch>) -> Self {
        Self { stretches, bytes }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns some bytes, as stretches that begin at 0.
    pub(super) fn read(&self, at: u64, bytes: u64) -> Vec<Stretch> {
        cut(&self.stretches, at, at + bytes)
            .map(|stretch| Stretch { start: stretch.start - at, ..stretch })
            .collect()
    }

    /// Writes the bytes of stretches that begin at 0; bytes beyond the memory are dropped.
    pub(super) fn write(&mut self, at: u64, bytes: u64, from: &[Stretch]) {
        self.write_all([(at, bytes, from.into())]);
    }

    /// Does the same for many writes: offset, length, stretches. Writes in ascending order take one pass over the
    /// memory.
    pub(super) fn write_all<'a>(
        &mut self,
        writes: impl IntoIterator<Item = (u64, u64, Cow<'a, [Stretch]>)>,
    ) {
        let (mut new, mut done) = (Vec::new(), 0);
        for (at, bytes, from) in writes {
            let end = (at + bytes).min(self.bytes);
            if at >= end || from.is_empty() {
                continue;
            }
            if at < done {
                new.extend(cut(&self.stretches, done, self.bytes));
                (self.stretches, done) = (std::mem::take(&mut new), 0);
            }
            new.extend(cut(&self.stretches, done, at));
            new.extend(
                cut(&from, 0, end - at)
                    .map(|stretch| Stretch { start: stretch.start + at, ..stretch }),
            );
            done = end;
        }
        new.extend(cut(&self.stretches, done, self.bytes));
        new.dedup_by(|next, stretch| stretch.goes_on(next));
        self.stretches = new;
    }

    /// Flips one bit.
    pub(super) fn flip(&mut self, bit: u64) {
        let at = bit / 8;
        let flipped = self.byte(at) ^ (1 << (bit % 8));
        self.write(at, 1, &[Stretch::whole(Content::Bytes([flipped].into()))]);
    }

    /// Copies the first bytes, as many as `into` has room for.
    #[allow(clippy::cast_possible_truncation, reason = "places within a buffer that is in memory")]
    pub(super) fn first(&self, into: &mut [u8]) {
        let bytes = self.bytes.min(into.len() as u64);
        let ends = self.stretches.iter().skip(1).map(|next| next.start).chain([self.bytes]);
        for (stretch, end) in
            self.stretches.iter().zip(ends).take_while(|(stretch, _)| stretch.start < bytes)
        {
            stretch
                .content
                .fill(stretch.origin, &mut into[stretch.start as usize..end.min(bytes) as usize]);
        }
    }

    /// Returns the part of a pattern that its first `bytes` bytes are, if they are one.
    pub(super) fn pattern(&self, bytes: u64) -> Option<Sent> {
        let until = self.stretches.get(1).map_or(self.bytes, |next| next.start);
        match self.stretches.first()? {
            Stretch { content: Content::Pattern(seed), origin, .. }
                if bytes <= until && origin.is_multiple_of(8) =>
            {
                Some(Sent { seed: *seed, from: origin / 8, before: origin / 8 })
            }
            _ => None,
        }
    }

    pub(super) fn byte(&self, at: u64) -> u8 {
        let after = self.stretches.partition_point(|stretch| stretch.start <= at);
        self.stretches.get(after.wrapping_sub(1)).map_or(0, |stretch| stretch.byte(at))
    }

    /// Returns the counts of the check kernel over the first `bytes` bytes, whose poison is that of the seed from a word on.
    pub(super) fn check(&self, bytes: u64, sent: Sent, poison_from: u64) -> PatternCheck {
        let words = bytes / 8;
        let found = PatternCheck { words, ..PatternCheck::NONE };
        let mut check = Check { sent, poison_from, found };
        let ends = self.stretches.iter().skip(1).map(|next| next.start).chain([self.bytes]);
        let mut index = 0;
        for (stretch, end) in self.stretches.iter().zip(ends) {
            let end = end.min(words * 8);
            check.stretch(stretch, index..end / 8);
            index = index.max(end / 8);
            // A word that this stretch shares with the next ones.
            if index * 8 < end {
                let bytes = std::array::from_fn(|byte| self.byte(index * 8 + byte as u64));
                check.word(index, u64::from_le_bytes(bytes));
                index += 1;
            }
        }
        check.found
    }
}

/// Returns the stretches between two offsets, the first cut to begin at `from`.
fn cut(stretches: &[Stretch], from: u64, to: u64) -> impl Iterator<Item = Stretch> + '_ {
    let first = stretches.partition_point(|stretch| stretch.start <= from).saturating_sub(1);
    let inside =
        stretches[first..].iter().take_while(move |stretch| from < to && stretch.start < to);
    inside.map(move |stretch| {
        let start = stretch.start.max(from);
        Stretch {
            start,
            origin: stretch.origin + (start - stretch.start),
            content: stretch.content.clone(),
        }
    })
}

/// A running check.
struct Check {
    sent: Sent,
    poison_from: u64,
    found: PatternCheck,
}

impl Check {
    fn word(&mut self, index: u64, word: u64) {
        let Sent { seed, from, before } = self.sent;
        if word != pattern(seed, index.wrapping_add(from)) {
            let poisoned = word == poison(seed, index.wrapping_add(self.poison_from));
            self.wrong(index, 1, poisoned, word == pattern(seed, index.wrapping_add(before)));
        }
    }

    fn wrong(&mut self, index: u64, words: u64, poisoned: bool, stale: bool) {
        self.found.copies = 1;
        self.found.wrong += words;
        self.found.poisoned += if poisoned { words } else { 0 };
        self.found.stale += if stale { words } else { 0 };
        self.found.first_wrong.get_or_insert(index * 8);
    }

    /// Checks whole words of one stretch. Words generated at another offset, or from another number, all differ: no two
    /// words of one seed are alike, and no two of two seeds at one index.
    fn stretch(&mut self, stretch: &Stretch, words: std::ops::Range<u64>) {
        if words.is_empty() {
            return;
        }
        let (first, count) = (words.start, words.end - words.start);
        match stretch.content {
            Content::Pattern(seed)
                if seed == self.sent.seed && stretch.in_place(self.sent.from) => {}
            Content::Pattern(seed) => {
                let stale = seed == self.sent.seed && stretch.in_place(self.sent.before);
                self.wrong(first, count, false, stale);
            }
            Content::Poison(seed) => {
                let poisoned = seed == self.sent.seed && stretch.in_place(self.poison_from);
                self.wrong(first, count, poisoned, false);
            }
            Content::Bytes(_) => words.for_each(|index| self.word(index, stretch.word(index * 8))),
        }
    }
}

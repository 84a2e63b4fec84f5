//! The slices of a buffer that a verification copies, one by one.

/// Copies of a verification, each of which is compared. Four ways of copying a pair make 64: what one copy in 50 loses
/// shows.
const SLICES: u64 = 16;
/// Slices begin with a page.
const PAGE: u64 = 4096;

/// A part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Offset in the buffer, bytes.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

/// Slices of so many bytes together, as far apart as a buffer has room for. The last one may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slices {
    bytes: u64,
    each: u64,
    apart: u64,
}

impl Slices {
    /// Returns slices of `bytes` bytes together, spread over `room` bytes.
    pub(crate) fn of(bytes: u64, room: u64) -> Self {
        let each = bytes.div_ceil(SLICES).next_multiple_of(PAGE);
        let gaps = bytes.div_ceil(each).saturating_sub(1).max(1);
        let apart = room.saturating_sub(each) / gaps / PAGE * PAGE;
        Self { bytes, each, apart: apart.max(each) }
    }

    /// Returns true if there are bytes between them.
    pub(crate) const fn are_apart(self) -> bool {
        self.apart > self.each
    }

    /// Returns the same bytes in as few slices as possible.
    pub(crate) const fn joined(self) -> Self {
        if self.are_apart() {
            return self;
        }
        Self { each: self.bytes, apart: self.bytes, ..self }
    }

    pub(crate) fn each(self) -> impl Iterator<Item = Slice> {
        let number = self.bytes.div_ceil(self.each.max(1));
        (0..number).map(move |number| Slice {
            at: number * self.apart,
            bytes: self.each.min(self.bytes - number * self.each),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::MIB;

    #[test]
    fn slices_cover_a_buffer_or_are_spread_over_it() {
        let all = Slices::of(510 * MIB, 510 * MIB);
        assert_eq!(all.each().count() as u64, SLICES);
        let whole = Slice { at: 0, bytes: 510 * MIB };
        assert_eq!(all.joined().each().collect::<Vec<_>>(), [whole]);
        let some = Slices::of(64 * MIB, 510 * MIB);
        assert_eq!(some.each().count() as u64, SLICES);
        let last = some.joined().each().last().unwrap();
        let end = last.at + last.bytes;
        assert!((509 * MIB..=510 * MIB).contains(&end), "{end}");
    }

    #[test]
    fn every_number_of_bytes_is_copied_once_and_within_the_buffer() {
        for room in [1, 4096, 4104, MIB + 8, 30 * MIB, 66 * MIB + 24] {
            for bytes in [1, 8, 4096, 4104, MIB - 8, MIB + 8, 30 * MIB, room] {
                if bytes > room {
                    continue;
                }
                let slices = Slices::of(bytes, room);
                let all: Vec<Slice> = slices.each().collect();
                assert_eq!(all.iter().map(|slice| slice.bytes).sum::<u64>(), bytes);
                let apart = |two: &[Slice]| two[0].at + two[0].bytes <= two[1].at;
                assert!(all.windows(2).all(apart), "{bytes} of {room}: {all:?}");
                let last = all.last().unwrap();
                assert!(last.at + last.bytes <= room, "{bytes} of {room}: {all:?}");
            }
        }
    }
}

//! The pattern that verification fills memory with, bit by bit as probes/kernels/pattern.cu defines it. For code that
//! simulates those kernels.

/// Factor of the index: the word at an index is the first word of the seed `seed ^ index * FACTOR`.
pub const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Offset in the source of every other copy, bytes. A copy that is lost then leaves the bytes of the copy before, which
/// differ in every word. No page and no line is as long, so that memory that is mapped wrongly is no such copy.
pub const TURN_BYTES: u64 = 4096 + 512;

/// Returns the word at `index`, counted in 8-byte words, of the pattern of a seed. No two indices of one seed share a
/// word, and at one index no two seeds do.
#[inline]
pub const fn pattern(seed: u64, index: u64) -> u64 {
    let z = seed ^ index.wrapping_mul(FACTOR);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the word at `index` of the poison of a value: the pattern of the same number with every bit inverted, so
/// that no byte of it can pass for a byte of that pattern.
#[inline]
pub const fn poison(value: u64, index: u64) -> u64 {
    !pattern(value, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_kernels_have_it_to_be() {
        assert_eq!(pattern(0, 0), 0);
        assert_eq!(pattern(1, 0), 0x5692_161D_100B_05E5);
        assert_eq!(pattern(0, 1), 0xE220_A839_7B1D_CDAF);
        assert_eq!(pattern(42, 12345), 0x05E1_36A1_322B_B773);
        assert_eq!(poison(1, 0), !0x5692_161D_100B_05E5);
        let source = include_str!("../../probes/kernels/pattern.cu");
        for word in ["0x5692161D100B05E5", "0xE220A8397B1DCDAF", "0x05E136A1322BB773"] {
            assert!(source.contains(word), "the kernel's own test values have changed: {word}");
        }
    }
}

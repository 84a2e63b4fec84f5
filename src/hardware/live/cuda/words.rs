//! Memory of the host, word by word, by several processors: one fills 32 MiB in 32 ms, eight in 4.6
//! (docs/dev/facts.md).
//!
//! Stores bypass the caches. Copies by a device slow down if several cores keep dirty lines of the memory: an H200 read
//! 32 MiB that eight threads of a Xeon had filled through their caches at 41 to 54 instead of 55 GB/s.

use std::ops::Range;
use std::thread;

use hardware::pattern::{pattern, poison};
use hardware::{PatternCheck, Sent};

/// Largest number of threads of one pass: the largest number that was measured.
const MOST_THREADS: usize = 8;
/// Least number of words that a thread is worth: 2 MiB, some 0.5 ms of work.
const LEAST_WORDS: usize = 1 << 18;

/// Words of memory that the driver gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    first: *mut u64,
    number: usize,
}

// SAFETY: threads read and write words one by one and by volatile accesses, and each has a range of its own.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Creates the words of memory.
    ///
    /// # Safety
    ///
    /// The memory has this many words, aligned, and stays while this value is used.
    pub(super) const unsafe fn new(first: *mut u64, number: usize) -> Self {
        Self { first, number }
    }

    /// Writes `word(index)` to every word.
    pub(super) fn write(self, word: impl Fn(u64) -> u64 + Sync) {
        self.divided(WRITING_THREADS, |words, range| {
            for index in range {
                // SAFETY: `divided` gives indices of this memory, which nothing else uses now. Devices may read it later,
                // so that no reference to it is made.
                unsafe { store(words.first.add(index), word(index as u64)) };
            }
            written();
        });
    }

    /// Copies the words of other memory on this thread, by the C library.
    pub(super) fn copy_from(self, other: Self) {
        // SAFETY: both have as many words. `copy` also serves memory that overlaps. A device may read either, so that no
        // reference to them is made.
        unsafe { self.first.copy_from(other.first, self.number.min(other.number)) };
    }

    /// Writes the first word of each page, so that the memory has all its pages. It begins with a page.
    pub(super) fn touch(self, words_in_page: usize) {
        self.divided(MOST_THREADS, |words, range| {
            let first = range.start.next_multiple_of(words_in_page);
            for index in (first..range.end).step_by(words_in_page) {
                // SAFETY: `divided` gives indices of this memory, which nothing else uses now.
                unsafe { words.first.add(index).write_volatile(1) };
            }
        });
    }

    /// Compares every word with what was sent.
    pub(super) fn compare(self, sent: Sent) -> PatternCheck {
        let parts = self.divided(MOST_THREADS, |words, range| words.compare_some(range, sent));
        parts.into_iter().fold(PatternCheck::NONE, PatternCheck::and)
    }

    /// Compares these words with what was sent, one after the other. Indices that the memory does not have are left out.
    pub(super) fn compare_some(
        self,
        indices: impl Iterator<Item = usize>,
        Sent { seed, from, before }: Sent,
    ) -> PatternCheck {
        let mut found = PatternCheck::NONE;
        for index in indices.filter(|index| *index < self.number) {
            // SAFETY: the memory has this word. A device may still write it: then the read returns the old or the new
            // word, which is counted as it is.
            let word = unsafe { self.first.add(index).read_volatile() };
            let index = index as u64;
            found.words += 1;
            if word != pattern(seed, index + from) {
                found.wrong += 1;
                found.poisoned += u64::from(word == poison(seed, index));
                found.stale += u64::from(word == pattern(seed, index + before));
                let first = found.first_wrong.unwrap_or(u64::MAX);
                found.first_wrong = Some(first.min(index * 8));
            }
        }
        found
    }

    /// Runs a function on ranges that cover the memory, at the same time, and returns what it returned for each.
    fn divided<T: Send>(self, most: usize, run: impl Fn(Self, Range<usize>) -> T + Sync) -> Vec<T> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.min(most).min(self.number / LEAST_WORDS).max(1);
        let each = self.number.div_ceil(threads);
        let range = |at: usize| at * each..((at + 1) * each).min(self.number);
        thread::scope(|scope| {
            let run = &run;
            // A thread that cannot be had costs time and no words.
            let others: Vec<_> = (1..threads)
                .map(|at| {
                    thread::Builder::new()
                        .spawn_scoped(scope, move || run(self, range(at)))
                        .map_err(|_| at)
                })
                .collect();
            let mut done = vec![run(self, range(0))];
            for other in others {
                done.push(match other {
                    Ok(thread) => match thread.join() {
                        Ok(result) => result,
                        Err(panic) => std::panic::resume_unwind(panic),
                    },
                    Err(at) => run(self, range(at)),
                });
            }
            done
        })
    }
}

/// Threads that write: one where stores cannot bypass the caches.
const WRITING_THREADS: usize = if cfg!(target_arch = "x86_64") { MOST_THREADS } else { 1 };

/// Writes a word past the caches, where the processor can.
///
/// # Safety
///
/// The word is aligned, and nothing else reads or writes it before [`written`] has returned on this thread.
unsafe fn store(word: *mut u64, value: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's word; every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_stream_si64(word.cast(), value.cast_signed());
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's word.
    unsafe {
        word.write_volatile(value);
    }
}

/// Waits until the stores of this thread are visible to all.
fn written() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(memory: &mut [u64]) -> Words {
        // SAFETY: the whole of a slice, which the tests keep.
        unsafe { Words::new(memory.as_mut_ptr(), memory.len()) }
    }

    #[test]
    fn every_word_of_memory_of_odd_sizes_is_written_and_compared() {
        let sizes = [0, 1, 7, LEAST_WORDS - 1, 3 * LEAST_WORDS + 5];
        for size in sizes {
            let mut memory = vec![0; size];
            words(&mut memory).write(|index| pattern(7, index));
            for (index, word) in memory.iter().enumerate() {
                assert_eq!(*word, pattern(7, index as u64), "{index} of {size}");
            }
            let found = words(&mut memory).compare(7.into());
            assert_eq!((found.words, found.wrong), (size as u64, 0));
        }
    }

    #[test]
    fn each_page_is_touched_once_whatever_the_number_of_threads() {
        const PAGE: usize = 512;
        for size in [1, PAGE, 3 * LEAST_WORDS + 5, 4 * LEAST_WORDS + PAGE - 1] {
            let mut memory = vec![0; size];
            words(&mut memory).touch(PAGE);
            for (index, word) in memory.iter().enumerate() {
                assert_eq!(*word == 1, index % PAGE == 0, "{index} of {size}");
            }
        }
    }

    #[test]
    fn wrong_and_poisoned_words_of_all_threads_are_counted_and_the_first_is_named() {
        let mut memory: Vec<u64> =
            (0..4 * LEAST_WORDS as u64).map(|index| pattern(7, index)).collect();
        let last = memory.len() - 1;
        for index in [LEAST_WORDS + 3, last] {
            memory[index] ^= 1;
        }
        memory[2 * LEAST_WORDS] = poison(7, 2 * LEAST_WORDS as u64);
        let found = words(&mut memory).compare(7.into());
        assert_eq!((found.wrong, found.poisoned), (3, 1));
        assert_eq!(found.first_wrong, Some(8 * (LEAST_WORDS as u64 + 3)));
        let found = words(&mut memory).compare_some([last, last + 1].into_iter(), 7.into());
        assert_eq!((found.words, found.wrong), (1, 1));
    }
}

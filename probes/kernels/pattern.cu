// The proof that bytes arrived: fill the source, poison the destination, copy, check.
//
// The destination checks its own memory after a one-way copy. A copy there and back that compares
// equal proves nothing: a machine that mirrored the window into itself passed it.
//
// THE PATTERN. The simulator has it too, so it is defined here to the bit. All arithmetic is on
// unsigned 64-bit words and wraps; index counts words, from 0 at the start of the buffer.
//
//     pattern(seed, index):
//         z = seed ^ (index * 0x9E3779B97F4A7C15)
//         z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
//         z = (z ^ (z >> 27)) * 0x94D049BB133111EB
//         return z ^ (z >> 31)
//
//     poison(value, index) = ~pattern(value, index)
//
//     pattern(0, 0) = 0x0000000000000000    pattern(1, 0)      = 0x5692161D100B05E5
//     pattern(0, 1) = 0xE220A8397B1DCDAF    pattern(42, 12345) = 0x05E136A1322BB773
//
// Every step is invertible. So within one seed no two indices share a word, and at one index no
// two seeds do: data that arrived shifted, or that came from another source, is wrong in every
// word, not in most. (The last three lines are the finaliser of splitmix64.)
//
// Poison is the complement so that even a caller who uses one number as seed and as poison cannot
// take memory that was never written for memory that was written well.

static __device__ __forceinline__ unsigned long long pattern(unsigned long long seed,
                                                             unsigned long long index) {
    unsigned long long z = seed ^ (index * 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

// Writes pattern(seed, index) ^ flip. Two words a store: half the instructions for the same bytes.
static __device__ __forceinline__ void write(unsigned long long* words,
                                             unsigned long long count,
                                             unsigned long long seed,
                                             unsigned long long flip) {
    ulonglong2* pairs = reinterpret_cast<ulonglong2*>(words);
    const unsigned long long thread =
        (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long pair = thread; pair < count / 2; pair += stride) {
        pairs[pair] = make_ulonglong2(pattern(seed, 2 * pair) ^ flip,
                                      pattern(seed, 2 * pair + 1) ^ flip);
    }
    if (thread == 0 && count % 2 != 0) {
        words[count - 1] = pattern(seed, count - 1) ^ flip;
    }
}

/// Writes pattern(seed, index) to `count` words of 8 bytes. `words` is 16-byte aligned.
///
/// Right for any grid and any block of one dimension, as are the two below.
extern "C" __global__ void __launch_bounds__(1024)
peerscope_fill(unsigned long long* words, unsigned long long count, unsigned long long seed) {
    write(words, count, seed, 0);
}

/// Writes poison(value, index) to `count` words of 8 bytes. `words` is 16-byte aligned.
///
/// Poison differs from word to word, so that poison which was itself copied from elsewhere does
/// not pass for memory that was never written.
extern "C" __global__ void __launch_bounds__(1024)
peerscope_poison(unsigned long long* words, unsigned long long count, unsigned long long value) {
    write(words, count, value, ~0ULL);
}

// What one thread found wrong.
struct Faults {
    unsigned long long differing;
    unsigned long long poisoned;
    unsigned long long stale;
    unsigned long long first;
};

// Where in the pattern the words lie.
struct Part {
    unsigned long long seed;
    unsigned long long from;
    unsigned long long before;
    unsigned long long poison;
};

// Compares a word, and returns the one that was expected.
static __device__ __forceinline__ unsigned long long compare(Faults& faults,
                                                             unsigned long long word,
                                                             unsigned long long index,
                                                             const Part& part) {
    const unsigned long long expected = pattern(part.seed, index + part.from);
    if (word != expected) {
        faults.differing += 1;
        // Mixed again only where something is wrong already.
        faults.poisoned += word == ~pattern(part.seed, index + part.poison);
        faults.stale += word == pattern(part.seed, index + part.before);
        faults.first = index < faults.first ? index : faults.first;
    }
    return expected;
}

/// Compares `count` words of 8 bytes with pattern(seed, index + from). `words` is 16-byte aligned.
/// Copies of two parts of one pattern, in turn, differ in every word.
///
///     result[0] += words that differ
///     result[1] += those of them that are poison: never written
///     result[2]  = the smaller of itself and the lowest index of a word that differs
///     result[3] += those of them that equal pattern(seed, index + before): what the copy before sent
///     result[4] += 1 if a word differs, once for each `turn`
///     result[5]  = the last turn that was counted
///
/// The caller sets result to 0, 0, 2^64 - 1, 0, 0, 2^64 - 1; several checks, one after the other, may then
/// add to one result. It lies in this GPU's own memory: atomics to host memory need a platform that routes them.
///
/// With a turn of 0 the poison is that of peerscope_poison. Other turns read memory that another kernel poisoned so, and
/// poison it anew: with ~pattern(seed, index + from), so that no second word has to be mixed.
extern "C" __global__ void __launch_bounds__(1024)
peerscope_check(unsigned long long* words,
                unsigned long long count,
                unsigned long long seed,
                unsigned long long from,
                unsigned long long before,
                unsigned long long turn,
                unsigned long long* result) {
    // Loads that each thread has under way; see copy.cu. Four are enough for a GPU's own memory,
    // which answers sooner than a peer's, and leave registers for the mixing. With eight, checks beside copies both ways hold
    // these at 319 to 379 GB/s on 2 x H200, with four at 388 of 390.
    constexpr unsigned int LOADS = 4;

    ulonglong2* pairs = reinterpret_cast<ulonglong2*>(words);
    const unsigned long long all = count / 2;
    const unsigned long long tile = (unsigned long long)blockDim.x * LOADS;
    const unsigned long long stride = tile * gridDim.x;
    const Part part = {seed, from, before, turn ? from : 0};
    Faults faults = {0, 0, 0, ~0ULL};

    for (unsigned long long start = tile * blockIdx.x; start < all; start += stride) {
        const unsigned long long thread = start + threadIdx.x;
        if (all - start >= tile) {
            // All loads first: the comparison of one word would otherwise hold up the next load. They pass by the cache:
            // what they keep there is what copies need (2 x H200: 271 of 390 GB/s without).
            uint4 held[LOADS];
#pragma unroll
            for (unsigned int i = 0; i < LOADS; ++i) {
                held[i] = __ldcs(reinterpret_cast<const uint4*>(pairs + thread + i * blockDim.x));
            }
#pragma unroll
            for (unsigned int i = 0; i < LOADS; ++i) {
                const unsigned long long pair = thread + i * blockDim.x;
                const uint4 four = held[i];
                const unsigned long long low = compare(faults, ((unsigned long long)four.y << 32) | four.x, 2 * pair, part);
                const unsigned long long high = compare(faults, ((unsigned long long)four.w << 32) | four.z, 2 * pair + 1, part);
                if (turn) {
                    __stcs(reinterpret_cast<uint4*>(pairs + pair),
                           make_uint4((unsigned int)~low, (unsigned int)(~low >> 32), (unsigned int)~high,
                                      (unsigned int)(~high >> 32)));
                }
            }
        } else {
            for (unsigned long long pair = thread; pair < all; pair += blockDim.x) {
                const ulonglong2 held = pairs[pair];
                const unsigned long long low = compare(faults, held.x, 2 * pair, part);
                const unsigned long long high = compare(faults, held.y, 2 * pair + 1, part);
                if (turn) {
                    pairs[pair] = make_ulonglong2(~low, ~high);
                }
            }
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0 && count % 2 != 0) {
        const unsigned long long last = compare(faults, words[count - 1], count - 1, part);
        if (turn) {
            words[count - 1] = ~last;
        }
    }

    // Each thread reports for itself. Clean memory costs no atomic at all, and where memory is
    // faulty a fraction of a millisecond matters less than a reduction with nothing to get wrong.
    if (faults.differing != 0) {
        atomicAdd(&result[0], faults.differing);
        if (faults.poisoned != 0) {
            atomicAdd(&result[1], faults.poisoned);
        }
        if (faults.stale != 0) {
            atomicAdd(&result[3], faults.stale);
        }
        atomicMin(&result[2], faults.first);
        if (atomicExch(&result[5], turn) != turn) {
            atomicAdd(&result[4], 1ULL);
        }
    }
}

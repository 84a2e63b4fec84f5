// Traffic over single NVLinks. Every 256 bytes of a peer's memory go over one link, and neighbours over others. Each list of
// such blocks is served by thread blocks of its own, all lists at once, and has its own time.

#include "clock.cuh"
#include "flags.cuh"

// src/hardware/links.rs has the same.
enum Work { COUNT, STORE, LOAD, CHASE };
enum { LISTS = 36, BLOCKS = 288, BLOCK_BYTES = 256, LANES = 16 };

struct PeerscopeLists {
    unsigned int first[LISTS + 1]; // of each list among the blocks; the last entry is the end of all
    unsigned int repeats[LISTS];
    unsigned int blocks[BLOCKS]; // numbers of blocks within the memory
};

// What 16 lanes store into a block in one turn, 16 bytes each.
static __device__ __forceinline__ uint4 block_line(unsigned int seed, unsigned int block, unsigned int lane, unsigned int turn) {
    const unsigned int word = mixed(seed ^ block, lane) + turn;
    return make_uint4(word, ~word, word ^ seed, word + block);
}

static __device__ __forceinline__ unsigned int differs(uint4 one, uint4 other) {
    return (one.x ^ other.x) | (one.y ^ other.y) | (one.z ^ other.z) | (one.w ^ other.w);
}

/// Serves `lists` lists of blocks of `memory`, list l by the thread blocks l, l + lists, ...:
///
/// - COUNT: one warp loads 128 bytes of each block `repeats` times;
/// - STORE: all groups of 16 threads store a block each and load a word of it back, `repeats` times. Stores to one line that
///   follow each other are merged before the link, which then carries a tenth of them;
/// - LOAD: all groups load a block each, `repeats` times, and compare it with what STORE left in turn `last`;
/// - CHASE: one thread loads a block after the other, `repeats` in all, each when the one before has come.
///
/// Writes three words for each list to `result`, which the caller has set to 0: the complement of its begin in nanoseconds, its
/// end, and the number of 16-byte loads that were wrong.
extern "C" __global__ void __launch_bounds__(512) peerscope_links(unsigned char* memory, unsigned int work, unsigned int lists,
                                                                  PeerscopeLists of, unsigned int seed, unsigned int last,
                                                                  unsigned long long* result) {
    if (lists == 0) {
        return;
    }
    const unsigned int list = blockIdx.x % lists;
    const unsigned int first = of.first[list];
    const unsigned int count = of.first[list + 1] - first;
    const unsigned int repeats = of.repeats[list];
    if (count == 0) {
        return;
    }
    const unsigned int lane = threadIdx.x % LANES;
    const unsigned int group = (blockIdx.x / lists * blockDim.x + threadIdx.x) / LANES;
    unsigned long long begun = 0;
    unsigned int wrong = 0;
    unsigned int sum = 0;
    if (work != CHASE) {
        __syncthreads();
        begun = nanoseconds();
    } else if (threadIdx.x == 0) {
        // The first turn fills the tables of addresses.
        for (unsigned int turn = 0; turn < count + repeats; ++turn) {
            if (turn == count) {
                begun = nanoseconds();
            }
            const unsigned char* at = memory + (unsigned long long)of.blocks[first + turn % count] * BLOCK_BYTES;
            sum += *(const volatile unsigned int*)(at + (sum >> 31) * 4);
        }
    }
    if (work == COUNT && threadIdx.x < 32) {
        for (unsigned int block = 0; block < count; ++block) {
            const unsigned char* at = memory + (unsigned long long)of.blocks[first + block] * BLOCK_BYTES;
            for (unsigned int turn = 0; turn < repeats; ++turn) {
                sum += *(const volatile unsigned int*)(at + threadIdx.x * 4);
            }
        }
    } else if (work == STORE) {
        const unsigned int block = of.blocks[first + group % count];
        unsigned char* at = memory + (unsigned long long)block * BLOCK_BYTES + lane * 16;
        for (unsigned int turn = 0; turn < repeats; ++turn) {
            put_line(at, block_line(seed, block, lane, turn));
            sum += *(const volatile unsigned int*)at;
        }
        __threadfence_system();
    } else if (work == LOAD) {
        const unsigned int block = of.blocks[first + group % count];
        const unsigned char* at = memory + (unsigned long long)block * BLOCK_BYTES + lane * 16;
        const uint4 wanted = block_line(seed, block, lane, last);
        // Four loads under way in each thread.
        for (unsigned int turn = 0; turn < repeats; turn += 4) {
            const uint4 a = get_line(at), b = get_line(at), c = get_line(at), d = get_line(at);
            wrong += (differs(a, wanted) != 0) + (differs(b, wanted) != 0) + (differs(c, wanted) != 0) +
                     (differs(d, wanted) != 0);
        }
    }
    if (work != CHASE) {
        __syncthreads();
    }
    if (wrong) {
        atomicAdd(&result[3 * list + 2], (unsigned long long)wrong);
    }
    if (threadIdx.x == 0) {
        atomicMax(&result[3 * list], ~begun);
        // Never true: it keeps the loads.
        atomicMax(&result[3 * list + 1], nanoseconds() + (sum == 0x7654321u && repeats == 0));
    }
}

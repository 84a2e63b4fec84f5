// All GPUs at once: a barrier of flags, and an all-reduce in one step by loads from all of them.
//
// The all-reduce of inference servers works like this. Each GPU has its part of the sum in its own memory, a barrier says that
// all parts are there, and each GPU loads all parts and adds them up. Nothing but flags orders the loads.
//
// THE BOX of each GPU, 1 MiB, offsets in bytes:
//
//         0  flags: 32 blocks x 2 (odd and even flags) x 128 ranks, 4 bytes each
//     32768  parts: 2 (odd and even flags) x 256 KiB
//    557056  the sum, 256 KiB
//
// Block b of every GPU meets block b of every other one, and no other block. Nothing has to be zeroed: each meeting has a
// `base` of its own, and flags count from it. A rank may be one barrier ahead of another, never two, so that odd and even
// flags have places of their own, and so do the parts behind them.
//
// Each wait ends by itself, by the clock of this GPU. A block that missed a rank notes it and leaves.

#include "clock.cuh"
#include "flags.cuh"

namespace group {

static const unsigned int RANKS = 72;
static const unsigned int THREADS = 512;
static const unsigned int BLOCKS = 32;
static const unsigned int AT_PARTS = 32768;
static const unsigned int PART = 262144;
static const unsigned int AT_SUM = 557056;
// The first rank says so with its flag if a round is the last of its phase.
static const unsigned int LAST = 0x80000000u;

enum Phase { MEET, BARRIER, REDUCE, PHASES = 6 };

// Words of the result, 8 bytes each; the host has set them to 0. src/hardware/group.rs has the same list.
enum Result {
    STATE = 0, // 0 never began, 1 began, 2 ended, 3 missed a rank
    PHASE = 1,
    ROUND = 2,
    WANTED = 3,
    OFFSET = 4, // of the flag of rank 0 in this rank's box
    MISSED = 5, // ranks that were missed, a bit each; two words
    TOOK = 7,
    PICOSECONDS = 8, // of one round of each phase, of the slowest block
    WRONG = 16, // lines of 16 bytes of each phase that were wrong
    WRONG_RANKS = 24, // ranks that had them, a bit each; two words
    LEFT = 26, // blocks that have come to their end
    WORDS = 32
};

struct Boxes {
    unsigned char* of[RANKS];
};

// The word that a rank adds. Its factors are odd, so that an old word and a word of another rank or place differ.
static __device__ __forceinline__ unsigned int word(unsigned int flag, unsigned int rank, unsigned int place) {
    return flag * 0x9e3779b1u + rank * 0x85ebca77u + place * 0xc2b2ae3du;
}

struct Member {
    const Boxes& boxes;
    unsigned int count;
    unsigned int rank;
    unsigned long long until;
    unsigned long long* result;
    // Shared by the block: ranks that were missed, and whether the first rank has said that this round is the last.
    unsigned int* missed;
    unsigned int* last;

    __device__ void note(unsigned int phase, unsigned int round, unsigned int flag) {
        // The first block that misses a rank says so.
        if (atomicCAS(&result[STATE], 1ull, 3ull) == 1ull) {
            result[PHASE] = phase;
            result[ROUND] = round;
            result[WANTED] = flag;
            result[OFFSET] = place(flag);
            result[MISSED] = missed[0] | (unsigned long long)missed[1] << 32;
            result[MISSED + 1] = missed[2];
        }
    }

    static __device__ unsigned int place(unsigned int flag) {
        return blockIdx.x * 1024 + (flag & 1) * 512;
    }

    // Stores a flag to every other rank, and waits for theirs. Returns false if one was missed. Everything that the block
    // stored before is seen by the others afterwards, and everything that it loaded has been loaded.
    __device__ bool barrier(unsigned int flag, bool ends, unsigned long long ns, unsigned int phase, unsigned int round) {
        const unsigned int thread = threadIdx.x;
        if (thread < 3) {
            missed[thread] = 0;
        }
        if (thread == 0) {
            *last = ends;
        }
        __syncthreads();
        bool over = false;
        if (thread < count && thread != rank) {
            const unsigned int said = rank == 0 && ends ? flag ^ LAST : flag;
            put_flag(boxes.of[thread] + place(flag) + rank * 4, said);
            const unsigned char* at = boxes.of[rank] + place(flag) + thread * 4;
            unsigned long long end = nanoseconds() + ns;
            end = end < until ? end : until;
            while (true) {
                // The last look comes after the last look at the clock.
                over = nanoseconds() >= end;
                const unsigned int seen = get_flag(at);
                if (seen == flag) {
                    over = false;
                    break;
                }
                if (thread == 0 && seen == (flag ^ LAST)) {
                    over = false;
                    *last = 1;
                    break;
                }
                if (over) {
                    atomicOr(&missed[thread / 32], 1u << thread % 32);
                    break;
                }
            }
        }
        if (__syncthreads_or(over)) {
            if (thread == 0) {
                note(phase, round, flag);
            }
            return false;
        }
        return true;
    }

    // Adds up one line of 16 bytes of all ranks. Sets the bits of ranks whose line is not what they stored.
    __device__ uint4 sum(unsigned int at, unsigned int flag, unsigned int line, unsigned int* wrong) {
        constexpr unsigned int AT_ONCE = 8;
        uint4 sum = make_uint4(0, 0, 0, 0);
        for (unsigned int first = 0; first < count; first += AT_ONCE) {
            uint4 got[AT_ONCE];
#pragma unroll
            for (unsigned int next = 0; next < AT_ONCE; ++next) {
                // Each rank begins with itself, so that not all load from the same one.
                unsigned int from = rank + first + next;
                from = from >= count ? from - count : from;
                if (first + next < count) {
                    got[next] = get_line(boxes.of[from] + at);
                }
            }
#pragma unroll
            for (unsigned int next = 0; next < AT_ONCE; ++next) {
                unsigned int from = rank + first + next;
                from = from >= count ? from - count : from;
                if (first + next < count) {
                    const uint4 line_of = got[next];
                    const unsigned int place = line * 4;
                    if (line_of.x != word(flag, from, place) || line_of.y != word(flag, from, place + 1) ||
                        line_of.z != word(flag, from, place + 2) || line_of.w != word(flag, from, place + 3)) {
                        wrong[from / 32] |= 1u << from % 32;
                    }
                    sum.x += line_of.x;
                    sum.y += line_of.y;
                    sum.z += line_of.z;
                    sum.w += line_of.w;
                }
            }
        }
        return sum;
    }
};

} // namespace group

/// One rank of a meeting of `count`. Counts, base and limits are those of all ranks. `arrive_ns`, `wait_ns` and `total_ns`
/// limit the wait for the other ranks to begin, every other wait, and the whole; after `phase_ns` the first rank ends a phase
/// before its `rounds` are over.
///
/// With a count of 0 it touches nothing. The boxes are 1 MiB each, that of this rank in this GPU's memory; `result` are WORDS
/// words of this GPU's memory, set to 0. Launch at most BLOCKS blocks of THREADS threads, the same number for each rank.
extern "C" __global__ void __launch_bounds__(512) peerscope_group(group::Boxes boxes,
                                                                 unsigned int count,
                                                                 unsigned int rank,
                                                                 unsigned int rounds,
                                                                 unsigned int base,
                                                                 unsigned long long arrive_ns,
                                                                 unsigned long long wait_ns,
                                                                 unsigned long long phase_ns,
                                                                 unsigned long long total_ns,
                                                                 unsigned long long* result) {
    using namespace group;
    __shared__ unsigned int missed[3];
    __shared__ unsigned int last;
    const unsigned int thread = threadIdx.x;
    if (count == 0 || count > RANKS) {
        return;
    }
    const unsigned long long began = nanoseconds();
    Member member = {boxes, count, rank, began + total_ns, result, missed, &last};
    if (thread == 0) {
        atomicCAS(&result[STATE], 0ull, 1ull);
    }
    unsigned char* mine = boxes.of[rank];
    unsigned int flag = base;
    bool met = true;

    for (unsigned int phase = MEET; phase < PHASES && met; ++phase) {
        // Lines of the phase's parts: 8, 32, 128 and 256 KiB.
        const unsigned int lines = phase < REDUCE ? 0 : phase == REDUCE ? 512 : phase == REDUCE + 1 ? 2048 : phase == REDUCE + 2 ? 8192 : 16384;
        // A line belongs to the same block in every phase: no block stores over what another one still loads.
        const unsigned int busy = phase == MEET ? gridDim.x : phase == BARRIER ? 1 : min(gridDim.x, lines / THREADS);
        if (blockIdx.x >= busy) {
            continue;
        }
        const unsigned int most = phase == MEET ? 1 : rounds;
        const unsigned long long start = nanoseconds();
        unsigned int wrong_lines = 0;
        unsigned int wrong[3] = {0, 0, 0};
        unsigned int round = 0;
        bool ends = false;
        while (met && !ends) {
            ++round;
            ++flag;
            const unsigned int parts = AT_PARTS + (flag & 1) * PART;
            for (unsigned int line = blockIdx.x * THREADS + thread; line < lines; line += busy * THREADS) {
                const unsigned int place = line * 4;
                put_line(mine + parts + line * 16, make_uint4(word(flag, rank, place), word(flag, rank, place + 1),
                                                              word(flag, rank, place + 2), word(flag, rank, place + 3)));
            }
            ends = round >= most;
            if (rank == 0) {
                // One thread decides for the block.
                ends = __syncthreads_or(ends || (thread == 0 && nanoseconds() - start >= phase_ns));
            }
            met = member.barrier(flag, ends, phase == MEET ? arrive_ns : wait_ns, phase, round);
            if (!met) {
                break;
            }
            ends = last != 0;
            for (unsigned int line = blockIdx.x * THREADS + thread; line < lines; line += busy * THREADS) {
                unsigned int of_line[3] = {0, 0, 0};
                put_line(mine + AT_SUM + line * 16, member.sum(parts + line * 16, flag, line, of_line));
                if (of_line[0] | of_line[1] | of_line[2]) {
                    ++wrong_lines;
                    for (unsigned int at = 0; at < 3; ++at) {
                        wrong[at] |= of_line[at];
                    }
                }
            }
            // The next barrier clears the shared word.
            __syncthreads();
        }
        if (wrong_lines) {
            atomicAdd(&result[WRONG + phase], (unsigned long long)wrong_lines);
            atomicOr(&result[WRONG_RANKS], wrong[0] | (unsigned long long)wrong[1] << 32);
            atomicOr(&result[WRONG_RANKS + 1], (unsigned long long)wrong[2]);
        }
        if (met && thread == 0) {
            atomicMax(&result[PICOSECONDS + phase], (nanoseconds() - start) * 1000 / round);
        }
    }

    __syncthreads();
    if (thread == 0) {
        atomicMax(&result[TOOK], nanoseconds() - began);
        if (atomicAdd(&result[LEFT], 1ull) + 1 == gridDim.x) {
            atomicCAS(&result[STATE], 1ull, 2ull);
        }
    }
}

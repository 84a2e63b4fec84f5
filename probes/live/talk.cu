// Live talk: what two kernels see of each other's stores while both run.
//
// A copy and a wait for its stream flush everything, so they prove nothing about a kernel that waits for a flag. Collectives
// wait for flags. Each side has a mailbox in its own GPU's memory; the other side writes to it over the link.
//
// Each wait ends by itself, by the clock of this GPU. A side that missed something notes what, and leaves; it never waits
// for the other one to leave.

#include "clock.cuh"
#include "flags.cuh"
#include "talk.cuh"

// Additions of each thread, to each of the two words.
static const unsigned int ADDITIONS = 64;
// Increments of the first thread by compare and swap, to each of the two words.
static const unsigned int SWAPS = 64;

struct Talk {
    unsigned char* mine;
    unsigned char* theirs;
    unsigned long long* result;
    unsigned long long wait_ns;
    // The moment at which the whole talk ends.
    unsigned long long until;

    __device__ void missed(unsigned int seen, unsigned int wanted, unsigned int offset, bool remote) {
        result[SEEN] = seen;
        result[WANTED] = wanted;
        result[OFFSET] = offset;
        result[REMOTE] = remote;
    }

    __device__ unsigned long long limit(unsigned long long ns) const {
        const unsigned long long end = nanoseconds() + ns;
        return end < until ? end : until;
    }

    // Waits for a flag; the last look comes after the last look at the clock.
    __device__ bool wait(unsigned int offset, bool remote, unsigned int wanted, unsigned long long ns) {
        const unsigned char* at = (remote ? theirs : mine) + offset;
        const unsigned long long end = limit(ns);
        while (true) {
            const bool over = nanoseconds() >= end;
            const unsigned int seen = get_flag(at);
            if (seen == wanted) {
                return true;
            }
            if (over) {
                missed(seen, wanted, offset, remote);
                return false;
            }
        }
    }

    // Push, or pull: a flag there and back.
    __device__ unsigned int flags(unsigned int role, unsigned int rounds, unsigned int base, bool pulled) {
        const unsigned int offset = pulled ? AT_PULL : AT_PUSH;
        unsigned char* to = (pulled ? mine : theirs) + offset;
        for (unsigned int round = 1; round <= rounds; ++round) {
            if (role == 0) {
                put_flag(to, base + round);
            }
            if (!wait(offset, pulled, base + round, wait_ns)) {
                return round;
            }
            if (role != 0) {
                put_flag(to, base + round);
            }
        }
        return 0;
    }
};

/// One side of a talk. `role` is 0 for one side and 1 for the other; `base`, `rounds` and `phases` (one bit each) are those of
/// both. `arrive_ns`, `wait_ns` and `total_ns` limit the wait for the other side, every other wait, and the whole.
///
/// Without phases it does nothing. `mine` is a mailbox in this GPU's memory, `theirs` the one of the other side,
/// `result` WORDS words of this GPU's memory. Launch one block of 32 threads.
extern "C" __global__ void __launch_bounds__(32) peerscope_talk(unsigned char* mine,
                                                                unsigned char* theirs,
                                                                unsigned int role,
                                                                unsigned int rounds,
                                                                unsigned int base,
                                                                unsigned int phases,
                                                                unsigned long long arrive_ns,
                                                                unsigned long long wait_ns,
                                                                unsigned long long total_ns,
                                                                unsigned long long* result) {
    constexpr unsigned int ALL = ~0u;
    const unsigned int thread = threadIdx.x;
    const bool first = thread == 0;
    if (!phases) {
        return;
    }
    const unsigned long long began = nanoseconds();
    Talk talk = {mine, theirs, result, wait_ns, began + total_ns};
    if (first) {
        for (unsigned int word = 0; word < WORDS; ++word) {
            result[word] = 0;
        }
        result[STATE] = 1;
        if (phases >> ATOMICS & 1) {
            // Before the arrival, which the other side awaits before it adds.
            *(volatile unsigned int*)(mine + AT_ADDED) = 0;
            *(volatile unsigned int*)(mine + AT_SWAPPED) = 0;
            __threadfence_system();
        }
    }

    for (unsigned int phase = ARRIVE; phase < LL128_CHANNELS; ++phase) {
        if (!(phases >> phase & 1)) {
            continue;
        }
        const unsigned long long start = nanoseconds();
        // The round that failed; 0 for none.
        unsigned int failed = 0;
        unsigned int wrong = 0;
        unsigned int early = 0;
        if (phase == ARRIVE) {
            if (first) {
                put_flag(theirs + AT_ARRIVE, base);
                failed = !talk.wait(AT_ARRIVE, false, base, arrive_ns);
            }
        } else if (phase == PUSH || phase == PULL) {
            if (first) {
                failed = talk.flags(role, rounds, base, phase == PULL);
            }
        } else if (phase == LL) {
            for (unsigned int round = 1; round <= rounds; ++round) {
                const unsigned int flag = base + round;
                const unsigned int at = AT_LL + ((round % 16) * 32 + thread) * 16;
                put_line(theirs + at, make_uint4(mixed(flag, thread), flag, mixed(thread, flag), flag));
                const unsigned long long end = talk.limit(wait_ns);
                uint4 got;
                bool over = false;
                bool again;
                do {
                    over = nanoseconds() >= end;
                    got = get_line(mine + at);
                    again = got.y != flag || got.w != flag;
                } while (again && !over);
                const unsigned int missing = __ballot_sync(ALL, again);
                if (missing) {
                    if (thread == __ffs(missing) - 1) {
                        talk.missed(got.y != flag ? got.y : got.w, flag, at + (got.y != flag ? 4 : 12), false);
                    }
                    failed = round;
                    break;
                }
                wrong += __popc(__ballot_sync(ALL, got.x != mixed(flag, thread) || got.z != mixed(thread, flag)));
            }
        } else if (phase == LL128) {
            const bool flags = thread % 8 == 7;
            for (unsigned int round = 1; round <= rounds; ++round) {
                const unsigned int flag = base + round;
                const unsigned int at = AT_LL128 + ((round % 16) * 32 + thread) * 16;
                const uint4 line = make_uint4(mixed(flag, thread), mixed(flag + 1, thread),
                                              flags ? flag : mixed(flag + 2, thread), flags ? flag : mixed(flag + 3, thread));
                // A line is one store of eight threads.
                __syncwarp();
                put_line(theirs + at, line);
                const unsigned long long end = talk.limit(wait_ns);
                uint4 got;
                bool again;
                bool over;
                unsigned int missing;
                do {
                    over = __any_sync(ALL, nanoseconds() >= end);
                    got = get_line(mine + at);
                    again = flags && (got.z != flag || got.w != flag);
                    missing = __ballot_sync(ALL, again);
                } while (missing && !over);
                if (missing) {
                    if (thread == __ffs(missing) - 1) {
                        talk.missed(got.z != flag ? got.z : got.w, flag, at + (got.z != flag ? 8 : 12), false);
                    }
                    failed = round;
                    break;
                }
                // A line is stored whole, but the threads' loads are no one access: data may be older than the flag beside it.
                // NCCL loads again when it has all flags, and uses this load alone. The first one is counted apart.
                const unsigned int before = lines_of(__ballot_sync(ALL, differ(got, line)));
                got = get_line(mine + at);
                wrong += lines_of(__ballot_sync(ALL, differ(got, line)));
                early += before;
            }
        } else if (phase == SIMPLE) {
            for (unsigned int round = 1; round <= (rounds + 3) / 4; ++round) {
                const unsigned int flag = base + round;
                const unsigned int half = AT_DATA + (round & 1) * 8192;
                const unsigned int at = round & 1 ? AT_SIMPLE_ODD : AT_SIMPLE;
                for (unsigned int line = thread; line < 512; line += 32) {
                    put_line(theirs + half + line * 16, make_uint4(mixed(flag, line), mixed(line, flag), flag, line));
                }
                __threadfence_system();
                __syncwarp();
                bool seen = true;
                if (first) {
                    put_flag(theirs + at, flag);
                    seen = talk.wait(at, false, flag, wait_ns);
                }
                if (__any_sync(ALL, !seen)) {
                    failed = round;
                    break;
                }
                // What the first thread has acquired, the others see from here on.
                __syncwarp();
                for (unsigned int line = thread; line < 512; line += 32) {
                    const uint4 got = get_line(mine + half + line * 16);
                    wrong += got.x != mixed(flag, line) || got.y != mixed(line, flag) || got.z != flag || got.w != line;
                }
                __syncwarp();
            }
            for (unsigned int step = 16; step > 0; step /= 2) {
                wrong += __shfl_down_sync(ALL, wrong, step);
            }
        } else {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 600
            for (unsigned int added = 0; added < ADDITIONS; ++added) {
                atomicAdd_system((unsigned int*)(theirs + AT_ADDED), 1u);
                atomicAdd_system((unsigned int*)(mine + AT_ADDED), 1u);
            }
            if (first) {
                for (unsigned int swap = 0; swap < 2 * SWAPS; ++swap) {
                    unsigned int* word = (unsigned int*)((swap & 1 ? theirs : mine) + AT_SWAPPED);
                    unsigned int known = *(volatile unsigned int*)word;
                    while (nanoseconds() < talk.until) {
                        const unsigned int before = atomicCAS_system(word, known, known + 1);
                        if (before == known) {
                            break;
                        }
                        known = before;
                    }
                }
            }
            __threadfence_system();
            __syncwarp();
            if (first) {
                put_flag(theirs + AT_ATOMICS, base + 1);
                failed = !talk.wait(AT_ATOMICS, false, base + 1, wait_ns);
                const unsigned int added = get_flag(mine + AT_ADDED);
                const unsigned int swapped = get_flag(mine + AT_SWAPPED);
                result[ADDED] = added;
                result[SWAPPED] = swapped;
                result[HAS_ATOMICS] = 1;
                wrong = !failed && (added != 2 * 32 * ADDITIONS || swapped != 2 * SWAPS);
            }
#endif
        }
        failed = __shfl_sync(ALL, failed, 0);
        if (first) {
            result[PHASE] = phase;
            result[NS + phase] = nanoseconds() - start;
            result[WRONG + phase] = wrong;
            if (phase == LL128) {
                result[EARLY] = early;
            }
        }
        if (failed) {
            if (first) {
                result[ROUND] = failed;
                result[TOOK] = nanoseconds() - began;
                result[STATE] = 3;
            }
            return;
        }
    }
    if (first) {
        result[TOOK] = nanoseconds() - began;
        result[STATE] = 2;
    }
}

/// Follows `hops` pointers through `count` places that are `stride` bytes apart, each load after the one before: the latency
/// of loads. First it writes the pointers, so that the memory may be of this GPU, another one, or the host.
///
///     result[0] = nanoseconds of all hops
///     result[1] = hops that were made; fewer if `limit_ns` passed
///
/// `count` is a power of two, or 0 to do nothing. Launch one block of 32 threads.
extern "C" __global__ void __launch_bounds__(32) peerscope_chase(unsigned char* base,
                                                                 unsigned int count,
                                                                 unsigned int stride,
                                                                 unsigned int hops,
                                                                 unsigned long long limit_ns,
                                                                 unsigned long long* result) {
    const unsigned long long began = nanoseconds();
    if (count == 0) {
        return;
    }
    for (unsigned int place = threadIdx.x; place < count; place += 32) {
        // A full cycle, since the factor is one more than a multiple of four, and the addend is odd. Neighbours are far apart,
        // so that no hop finds its line fetched by the one before.
        const unsigned long long next = (place * 97u + 1) & (count - 1);
        *(volatile unsigned long long*)(base + (unsigned long long)place * stride) =
            (unsigned long long)(base + next * stride);
    }
    __threadfence_system();
    __syncwarp();
    if (threadIdx.x != 0) {
        return;
    }
    const unsigned long long* at = (const unsigned long long*)base;
    unsigned long long start = 0;
    unsigned int made = 0;
    // The first round brings the lines into the near part of the cache and fills the tables of addresses. The second takes the
    // same way and is timed.
    for (unsigned int hop = 0; hop < 2 * hops; ++hop) {
        if (hop == hops) {
            at = (const unsigned long long*)base;
            start = nanoseconds();
        }
        at = (const unsigned long long*)*(const volatile unsigned long long*)at;
        made += hop >= hops;
        // The clock is read rarely: reading it takes time too.
        if (hop % 64 == 63 && nanoseconds() - began >= limit_ns) {
            break;
        }
    }
    result[0] = start ? nanoseconds() - start : 0;
    result[1] = made;
    // Keeps the last load alive.
    result[2] = (unsigned long long)at;
}

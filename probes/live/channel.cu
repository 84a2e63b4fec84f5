// Channels: LL128 and Simple as NCCL has them, at the geometry of its channels. Each block exchanges with the block of its
// number on the other side, both ways at once, one round at a time.
//
// A round's flag is `base + 2 * round`, one more if its sender stops after it: its time is over. Both then stop after that
// round, whoever said so. A side may be a round ahead of the other, never two. docs/dev/method.md, "Live talk", says
// what is as in NCCL.

#include "clock.cuh"
#include "flags.cuh"
#include "talk.cuh"

static const unsigned int WARPS = 8;
static const unsigned int CHANNEL_THREADS = 32 * WARPS;
// Rounds of 16 bytes that a thread has in each half: 16 lines of a warp, or 16 KiB of a block.
static const unsigned int PARTS = 4;
// Bytes of one of the two rounds that a mailbox has room for.
static const unsigned int HALF = 32 * CHANNEL_THREADS * PARTS * 16;

// The data of a place in a round. No word is that of an earlier round.
static __device__ __forceinline__ uint4 data_of(unsigned int flag, unsigned int place) {
    return make_uint4(mixed(flag, place), mixed(place, flag), flag ^ place, ~flag ^ place);
}

struct Channel {
    unsigned char* mine;
    unsigned char* theirs;
    unsigned int base;
    // The last round of a phase.
    unsigned int rounds;
    unsigned long long arrive_ns;
    unsigned long long wait_ns;
    unsigned long long phase_ns;
    unsigned long long* result;

    __device__ unsigned long long limit(unsigned int round) const {
        return nanoseconds() + (round == 1 ? arrive_ns : wait_ns);
    }

    // The first that misses something notes it.
    __device__ void missed(unsigned int phase, unsigned int round, unsigned int seen, unsigned int offset) const {
        if (atomicCAS(result + STATE, 2ull, 3ull) == 2) {
            result[PHASE] = phase;
            result[ROUND] = round;
            result[SEEN] = seen;
            result[WANTED] = base + 2 * round;
            result[OFFSET] = offset;
            result[REMOTE] = 0;
        }
    }

    // The first round is not timed: the other side may begin later.
    __device__ void passed(unsigned int phase, unsigned int rounds, unsigned long long since) const {
        atomicAdd(result + ROUNDS + phase - LL128_CHANNELS, (unsigned long long)rounds);
        atomicMax(result + NS + phase, nanoseconds() - since);
    }

    // LL128 of one warp: 16 lines a round. Returns false if it missed some.
    __device__ bool lines() const {
        constexpr unsigned int ALL = ~0u;
        const unsigned int thread = threadIdx.x % 32;
        const bool flags = thread % 8 == 7;
        const unsigned int own = AT_LINES + (blockIdx.x * WARPS + threadIdx.x / 32) * PARTS * 512 + thread * 16;
        unsigned long long since = 0;
        unsigned long long wrong = 0;
        unsigned long long early = 0;
        for (unsigned int round = 1;; ++round) {
            const bool over = since && nanoseconds() - since >= phase_ns;
            bool stop = __any_sync(ALL, over) || round == rounds;
            const unsigned int flag = base + 2 * round;
            const unsigned int at = own + round % 2 * HALF;
            for (unsigned int part = 0; part < PARTS; ++part) {
                uint4 line = data_of(flag, at + part * 512);
                if (flags) {
                    line.z = line.w = flag + stop;
                }
                // A line is one store of eight threads.
                __syncwarp();
                put_line(theirs + at + part * 512, line);
            }
            const unsigned long long end = limit(round);
            uint4 got[PARTS];
            unsigned int unseen;
            bool late = false;
            for (unsigned int look = 1;; ++look) {
                unseen = PARTS;
                for (unsigned int part = 0; part < PARTS; ++part) {
                    got[part] = get_line(mine + at + part * 512);
                    if (flags && (got[part].z - flag > 1 || got[part].w != got[part].z)) {
                        unseen = part;
                    }
                }
                if (!__any_sync(ALL, unseen < PARTS) || late) {
                    break;
                }
                // The last look comes after the last look at the clock, which is read rarely.
                late = look % 64 == 0 && __any_sync(ALL, nanoseconds() >= end);
            }
            const unsigned int missing = __ballot_sync(ALL, unseen < PARTS);
            if (missing) {
                if (thread == __ffs(missing) - 1) {
                    missed(LL128_CHANNELS, round, got[unseen].w, at + unseen * 512 + 12);
                }
                return false;
            }
            stop |= __any_sync(ALL, flags && got[0].z != flag);
            // As NCCL, which uses what it loads behind all flags.
            for (unsigned int load = 0; load < 2; ++load) {
                for (unsigned int part = 0; part < PARTS; ++part) {
                    if (load) {
                        got[part] = get_line(mine + at + part * 512);
                    }
                    uint4 line = data_of(flag, at + part * 512);
                    if (flags) {
                        line.z = line.w = got[part].z - flag > 1 ? flag : got[part].z;
                    }
                    (load ? wrong : early) += lines_of(__ballot_sync(ALL, differ(got[part], line)));
                }
            }
            if (round == 1) {
                since = nanoseconds();
            }
            if (stop) {
                if (thread == 0) {
                    passed(LL128_CHANNELS, round - 1, since);
                    atomicAdd(result + WRONG + LL128_CHANNELS, wrong);
                    atomicAdd(result + EARLY, early);
                }
                return true;
            }
        }
    }

    // Simple of a block: all threads store, one fences and stores the flag. Pushed into the other side's memory, or pulled
    // from it. Returns false if it missed a flag.
    __device__ bool blocks(unsigned int phase, unsigned int& round) const {
        __shared__ unsigned int fate;
        const bool pulled = phase == SIMPLE_PULL;
        const unsigned int at_flag = AT_CHANNELS + blockIdx.x * 128;
        const unsigned int before = round;
        unsigned long long since = 0;
        unsigned int wrong = 0;
        do {
            ++round;
            const unsigned int flag = base + 2 * round;
            const unsigned int at = AT_BLOCKS + round % 2 * HALF + blockIdx.x * CHANNEL_THREADS * PARTS * 16;
            for (unsigned int part = 0; part < PARTS; ++part) {
                const unsigned int place = threadIdx.x + part * CHANNEL_THREADS;
                *(uint4*)((pulled ? mine : theirs) + at + place * 16) = data_of(flag, at + place * 16);
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                const bool stop = since && nanoseconds() - since >= phase_ns || round - before == rounds;
                fence();
                put_bare(theirs + at_flag, flag + stop);
                const unsigned long long end = limit(round);
                bool late = false;
                unsigned int seen = get_bare(mine + at_flag);
                // Two more: the other side is a round ahead.
                for (unsigned int look = 1; seen - flag > 3 && !late; ++look) {
                    late = look % 64 == 0 && nanoseconds() >= end;
                    seen = get_bare(mine + at_flag);
                }
                fate = seen - flag > 3 ? 2 : stop || seen - flag == 1;
                if (fate == 2) {
                    missed(phase, round, seen, at_flag);
                }
            }
            __syncthreads();
            if (fate == 2) {
                return false;
            }
            for (unsigned int part = 0; part < PARTS; ++part) {
                const unsigned int place = threadIdx.x + part * CHANNEL_THREADS;
                wrong += differ(get_line((pulled ? theirs : mine) + at + place * 16), data_of(flag, at + place * 16));
            }
            if (!since) {
                since = nanoseconds();
            }
        } while (fate == 0);
        if (wrong) {
            atomicAdd(result + WRONG + phase, (unsigned long long)wrong);
        }
        if (threadIdx.x == 0) {
            passed(phase, round - before - 1, since);
        }
        return true;
    }
};

/// One side of channels, after a talk of the same side that heard everything. Each phase takes `phase_ns` and `rounds` rounds at
/// most; `base` is that of both. Flags are up to `base + 4 * rounds + 3`.
///
/// Adds to the words of the talk. Launch as many blocks of 256 threads as the other side, 32 at most, all of which fit on the
/// GPU. Without rounds it does nothing.
extern "C" __global__ void __launch_bounds__(256) peerscope_channel(unsigned char* mine,
                                                                    unsigned char* theirs,
                                                                    unsigned int base,
                                                                    unsigned int rounds,
                                                                    unsigned long long arrive_ns,
                                                                    unsigned long long wait_ns,
                                                                    unsigned long long phase_ns,
                                                                    unsigned long long* result) {
    __shared__ unsigned long long began;
    if (threadIdx.x == 0) {
        began = rounds && result[STATE] == 2 ? nanoseconds() : 0;
    }
    __syncthreads();
    if (!began) {
        return;
    }
    const Channel channel = {mine, theirs, base, rounds, arrive_ns, wait_ns, phase_ns, result};
    unsigned int round = 0;
    if (!__syncthreads_or(!channel.lines()) && channel.blocks(SIMPLE_PUSH, round)) {
        channel.blocks(SIMPLE_PULL, round);
    }
    if (threadIdx.x == 0) {
        atomicMax(result + CHANNELS_TOOK, nanoseconds() - began);
    }
}

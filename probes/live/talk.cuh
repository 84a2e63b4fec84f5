// The mailbox and the result of kernels that talk.
//
// THE MAILBOX, 64 KiB and 2 MiB, offsets in bytes:
//
//         0  arrival
//       128  round of the pushed flag
//       256  round of the pulled flag: its owner writes it, the other side reads it over the link
//       384  flag of the fenced data, even rounds
//       512  additions of both sides
//       640  increments of both sides by compare and swap
//       768  flag of the atomics
//       896  flag of the fenced data, odd rounds
//      4096  LL: 16 rounds x 32 lines of 16 bytes, {data, flag, data, flag}
//     16384  LL128: 16 rounds x 4 lines of 128 bytes, 120 of data and a flag of 8
//     32768  fenced data: 2 rounds x 8 KiB
//     49152  channels: 32 flags of Simple, 128 bytes apart
//     65536  channels, LL128: 2 rounds x 32 blocks x 8 warps x 16 lines of 128 bytes
//   1114112  channels, Simple: 2 rounds x 32 blocks x 16 KiB; what is pulled lies in the mailbox of who stored it
//
// Nothing has to be zeroed: each talk has a `base` of its own, flags are base + round, and what an earlier talk left there
// is the flag of no later one. Where both sides store before they wait, one may be a round ahead of the other, never two,
// and stay there for long: the driver takes turns with the kernels of several processes. So each round has another place
// than the one before.

#pragma once

enum Phase { ARRIVE, PUSH, PULL, LL, LL128, SIMPLE, ATOMICS, LL128_CHANNELS, SIMPLE_PUSH, SIMPLE_PULL, PHASES };

enum Mailbox {
    AT_ARRIVE = 0,
    AT_PUSH = 128,
    AT_PULL = 256,
    AT_SIMPLE = 384,
    AT_SIMPLE_ODD = 896,
    AT_ADDED = 512,
    AT_SWAPPED = 640,
    AT_ATOMICS = 768,
    AT_LL = 4096,
    AT_LL128 = 16384,
    AT_DATA = 32768,
    AT_CHANNELS = 49152,
    AT_LINES = 65536,
    AT_BLOCKS = 1114112
};

// Words of the result, 8 bytes each. src/hardware/talk.rs has the same list.
enum Result {
    STATE = 0, // 0 never began, 1 began, 2 ended, 3 missed something
    PHASE = 1,
    ROUND = 2,
    SEEN = 3,
    WANTED = 4,
    OFFSET = 5, // of the word that was missed, in the mailbox
    REMOTE = 6, // 1 if that mailbox is the other side's
    TOOK = 7, // the talk, without channels
    NS = 8, // of each phase
    WRONG = 24, // lines or words of each phase that were wrong behind their flag
    ADDED = 40,
    SWAPPED = 41,
    HAS_ATOMICS = 42, // 1 if this code has atomics for the whole system
    EARLY = 43, // lines of 128 bytes whose first load behind the flag lacked data
    CHANNELS_TOOK = 44,
    ROUNDS = 45, // of each phase of channels: of all warps (LL128), or of all blocks (Simple)
    WORDS = 64
};

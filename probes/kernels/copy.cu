// The copy by SMs: the second of the two engines that can move data between GPUs.
//
// A pass of the copy engine says nothing about loads and stores that kernels send to a peer, and
// the reverse: they take different ways through the GPU, and each has failed alone.

/// Copies `vectors` units of 16 bytes. Push if `source` is this GPU's memory, pull if
/// `destination` is. Both are 16-byte aligned and do not overlap.
///
/// Right for any grid and any block of one dimension, and for any `vectors`, 0 included.
///
/// No __restrict__: it would let the compiler use non-coherent loads, which may return stale data
/// for memory that a peer writes.
//
// The launch bound keeps blocks of 1024 threads launchable: it caps the kernel at 64 registers.
extern "C" __global__ void __launch_bounds__(1024) peerscope_copy(uint4* destination,
                                                                  const uint4* source,
                                                                  unsigned long long vectors) {
    // Loads that each thread has under way before its first store. One load at a time would leave
    // the link idle for a round trip (1 us and more to a peer) each turn; eight keep 32 registers
    // of data, which still lets four blocks of 256 threads live on an SM.
    constexpr unsigned int LOADS = 8;

    // A block copies whole tiles rather than every n-th vector of the buffer, so that even a copy
    // of a few KiB has all of its loads under way at once, and a block stays within few pages.
    const unsigned long long tile = (unsigned long long)blockDim.x * LOADS;
    const unsigned long long stride = tile * gridDim.x;
    for (unsigned long long start = tile * blockIdx.x; start < vectors; start += stride) {
        const unsigned long long first = start + threadIdx.x;
        uint4 held[LOADS];
#pragma unroll
        for (unsigned int i = 0; i < LOADS; ++i) {
            // Past the end the last vector is loaded once more: a branch around the load would
            // keep the loads from being issued back to back.
            const unsigned long long index = first + i * blockDim.x;
            held[i] = source[index < vectors ? index : vectors - 1];
        }
#pragma unroll
        for (unsigned int i = 0; i < LOADS; ++i) {
            const unsigned long long index = first + i * blockDim.x;
            if (index < vectors) {
                destination[index] = held[i];
            }
        }
    }
}

// Scattered blocks by one kernel: what programs write that move pages of a KV cache.
//
// A warp copies a block: 32 lanes of 16 bytes are 512 bytes a step, so that even a block of 4 KiB keeps its warp for eight
// steps, and thousands of warps keep the link full.

/// Copies `blocks` blocks of `vectors` units of 16 bytes, each to the same place at the destination. `blocks` is a power of
/// two; block number i of the order is (i * factor) mod blocks, with an odd factor: each block once, neighbours far apart.
///
/// Right for any grid and any block of whole warps. No __restrict__: see copy.cu.
extern "C" __global__ void __launch_bounds__(1024)
peerscope_gather(uint4* destination,
                 const uint4* source,
                 unsigned int blocks,
                 unsigned long long vectors,
                 unsigned int factor) {
    constexpr unsigned int LANES = 32;
    // Loads under way in each lane; see copy.cu.
    constexpr unsigned int LOADS = 4;

    const unsigned int lane = threadIdx.x % LANES;
    const unsigned int warp = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const unsigned int warps = gridDim.x * blockDim.x / LANES;
    for (unsigned int number = warp; number < blocks; number += warps) {
        const unsigned long long place = (number * factor) & (blocks - 1);
        const uint4* from = source + place * vectors;
        uint4* to = destination + place * vectors;
        for (unsigned long long start = lane; start < vectors; start += LANES * LOADS) {
            uint4 held[LOADS];
#pragma unroll
            for (unsigned int i = 0; i < LOADS; ++i) {
                const unsigned long long index = start + i * LANES;
                held[i] = from[index < vectors ? index : vectors - 1];
            }
#pragma unroll
            for (unsigned int i = 0; i < LOADS; ++i) {
                const unsigned long long index = start + i * LANES;
                if (index < vectors) {
                    to[index] = held[i];
                }
            }
        }
    }
}

// Kernels that compete with a copy, as those of programs do: for the GPU's memory, or for power and the SMs.

#include "clock.cuh"

// Registers of operands: products that follow each other share few.
constexpr unsigned int HALVES = 16;

// One step of a matrix product on a warp's own registers, of the largest shape that every GPU of the architecture has
// (PTX ISA, "mma": m16n8k16 from sm_80 on, m16n8k8 from sm_75 on). Older GPUs multiply without matrix units.
static __device__ __forceinline__ void multiply(float (&sum)[4], const unsigned int (&halves)[HALVES], unsigned int at) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(halves[at % HALVES]), "r"(halves[(at + 1) % HALVES]), "r"(halves[(at + 2) % HALVES]), "r"(halves[(at + 3) % HALVES]),
                   "r"(halves[(at + 4) % HALVES]), "r"(halves[(at + 5) % HALVES]));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(halves[at % HALVES]), "r"(halves[(at + 1) % HALVES]), "r"(halves[(at + 2) % HALVES]));
#else
    for (unsigned int i = 0; i < 4; ++i) {
        sum[i] = sum[i] * 0.5f + __uint_as_float(halves[(at + i) % HALVES]);
    }
#endif
}

/// Reads `vectors` units of 16 bytes in so many rounds and writes nothing. With none, multiplies matrices in as many rounds,
/// without memory; ends after `limit_ns` if that is sooner and not 0. `rounds` is below 2^32 - 1.
///
/// Right for any grid and any block of one dimension. `memory` is 16-byte aligned.
extern "C" __global__ void __launch_bounds__(256)
peerscope_work(uint4* memory, unsigned long long vectors, unsigned int rounds, unsigned long long limit_ns) {
    // See copy.cu. What is read is only summed.
    constexpr unsigned int LOADS = 8;
    // Products that do not wait for each other.
    constexpr unsigned int PRODUCTS = 8;

    unsigned int sum = 0;
    if (vectors == 0) {
        const unsigned long long start = nanoseconds();
        float sums[PRODUCTS][4] = {};
        // Halves between 0.5 and 1 whose signs and bits differ: products of ones draw half as much power (2 x H200: 327 and 689 W).
        unsigned int halves[HALVES];
#pragma unroll
        for (unsigned int i = 0; i < HALVES; ++i) {
            halves[i] = ((unsigned int)pattern(blockIdx.x, HALVES * threadIdx.x + i) & 0x83FF83FFu) | 0x38003800u;
        }
        for (unsigned int round = 0; round < rounds; ++round) {
#pragma unroll
            for (unsigned int i = 0; i < PRODUCTS; ++i) {
                multiply(sums[i], halves, 6 * i);
            }
            // The clock is read rarely: reading it takes time too.
            if (round % 64 == 63 && limit_ns != 0 && nanoseconds() - start >= limit_ns) {
                break;
            }
        }
#pragma unroll
        for (unsigned int i = 0; i < PRODUCTS; ++i) {
            sum += __float_as_uint(sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3]);
        }
    }
    const unsigned long long tile = (unsigned long long)blockDim.x * LOADS;
    const unsigned long long stride = tile * gridDim.x;
    for (unsigned int round = 0; round < rounds; ++round) {
        for (unsigned long long start = tile * blockIdx.x; start < vectors; start += stride) {
            uint4 held[LOADS];
#pragma unroll
            for (unsigned int i = 0; i < LOADS; ++i) {
                const unsigned long long index = start + threadIdx.x + i * blockDim.x;
                held[i] = memory[index < vectors ? index : vectors - 1];
            }
#pragma unroll
            for (unsigned int i = 0; i < LOADS; ++i) {
                sum += held[i].x ^ held[i].y ^ held[i].z ^ held[i].w;
            }
        }
    }
    // No caller asks for so many rounds. Without a use of the sum the assembler leaves out all work, even what is
    // volatile: such a kernel lasted 3 us.
    if (rounds == ~0u) {
        memory->x = sum;
    }
}

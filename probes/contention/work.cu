// Kernels that compete with a copy, as those of programs do: for the GPU's memory, or for power and the SMs.

// One step of a matrix product on a warp's own registers, of the largest shape that every GPU of the architecture has
// (PTX ISA, "mma": m16n8k16 from sm_80 on, m16n8k8 from sm_75 on). Older GPUs multiply without matrix units.
static __device__ __forceinline__ void multiply(float (&sum)[4], unsigned int value) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(value));
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(value));
#else
    for (unsigned int i = 0; i < 4; ++i) {
        sum[i] = sum[i] * 0.5f + __uint_as_float(value);
    }
#endif
}

/// Reads `vectors` units of 16 bytes in so many rounds and writes nothing. With none, multiplies matrices in as many rounds,
/// without memory. `rounds` is below 2^32 - 1.
///
/// Right for any grid and any block of one dimension. `memory` is 16-byte aligned.
extern "C" __global__ void __launch_bounds__(256)
peerscope_work(uint4* memory, unsigned long long vectors, unsigned int rounds) {
    // See copy.cu. What is read is only summed.
    constexpr unsigned int LOADS = 8;
    // Products that do not wait for each other.
    constexpr unsigned int PRODUCTS = 8;

    unsigned int sum = 0;
    if (vectors == 0) {
        float sums[PRODUCTS][4] = {};
        for (unsigned int round = 0; round < rounds; ++round) {
#pragma unroll
            for (unsigned int i = 0; i < PRODUCTS; ++i) {
                // Ones, as halves.
                multiply(sums[i], 0x3C003C00u);
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

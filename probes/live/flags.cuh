// Flags and lines that one kernel stores and another one, on this GPU or on another, loads while both run.

#pragma once

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
#define PEERSCOPE_ORDERED 1
#else
#define PEERSCOPE_ORDERED 0
#endif

// What this block stored before the flag is seen by whoever has seen the flag.
static __device__ __forceinline__ void put_flag(unsigned char* at, unsigned int value) {
#if PEERSCOPE_ORDERED
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
#else
    __threadfence_system();
    *(volatile unsigned int*)at = value;
#endif
}

static __device__ __forceinline__ unsigned int get_flag(const unsigned char* at) {
    unsigned int value;
#if PEERSCOPE_ORDERED
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
#else
    value = *(const volatile unsigned int*)at;
    __threadfence_system();
#endif
    return value;
}

// One instruction. In PTX it is four stores in an order that is not specified ("Memory Consistency Model", "Vector
// Data-types"); a single one is `b128`. LL and LL128 rely on what GPUs do with it, so both lines have flags.
static __device__ __forceinline__ void put_line(unsigned char* at, uint4 line) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(line.x), "r"(line.y), "r"(line.z),
                 "r"(line.w)
                 : "memory");
}

static __device__ __forceinline__ uint4 get_line(const unsigned char* at) {
    uint4 line;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(line.x), "=r"(line.y), "=r"(line.z), "=r"(line.w)
                 : "l"(at)
                 : "memory");
    return line;
}

// A fence of the whole system for all stores that the thread has seen, those of its block before a barrier too.
static __device__ __forceinline__ void fence() {
#if PEERSCOPE_ORDERED
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
    __threadfence_system();
#endif
}

// A store and a load without order, relaxed at the scope of the system: those of PTX's `volatile`.
static __device__ __forceinline__ void put_bare(unsigned char* at, unsigned int value) {
    *(volatile unsigned int*)at = value;
}

static __device__ __forceinline__ unsigned int get_bare(const unsigned char* at) {
    return *(const volatile unsigned int*)at;
}

static __device__ __forceinline__ unsigned int mixed(unsigned int one, unsigned int other) {
    unsigned int x = (one * 2654435761u) ^ (other * 40503u);
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ (x >> 13);
}

static __device__ __forceinline__ bool differ(const uint4& one, const uint4& other) {
    return one.x != other.x || one.y != other.y || one.z != other.z || one.w != other.w;
}

// The lines of 128 bytes, of four, that a thread has found something in.
static __device__ __forceinline__ unsigned int lines_of(unsigned int threads) {
    unsigned int lines = 0;
    for (unsigned int line = 0; line < 4; ++line) {
        lines += (threads >> 8 * line & 0xff) != 0;
    }
    return lines;
}

// The compute stand-in: keeps SMs busy for a known time without touching memory.
//
// A probe that asks whether a copy overlaps a kernel needs a kernel that competes with the copy
// for nothing but its place in the stream. Arithmetic on a tensor would compete for bandwidth
// too, and would take a different time on every GPU.

// The same clock as in gate.cu, for the same reason. The asm is volatile: this is also what keeps
// the compiler from removing a loop without a result.
static __device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// Every thread waits `duration_ns` nanoseconds, counted from its own first instruction.
///
/// So the kernel lasts that long only if all its blocks fit on the GPU at once; a second wave
/// begins to count when the first one ends. The clock ticks in steps of up to about 1 us on some
/// GPUs; durations below 10 us mean little.
extern "C" __global__ void peerscope_spin(unsigned long long duration_ns) {
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < duration_ns) {
    }
}

// The clock of the gate and of the compute stand-in.

#pragma once

// Nanoseconds of a clock that all SMs of a GPU share. clock64() is no substitute: it counts
// cycles, and the clock rate changes as a GPU wakes up. Volatile, because a second reading must
// not be taken for a repetition of the first, and so that the compiler removes no loop without a
// result.
static __device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

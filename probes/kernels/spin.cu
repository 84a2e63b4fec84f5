// The compute stand-in: keeps SMs busy for a known time without touching memory.
//
// A probe that asks whether a copy overlaps a kernel needs a kernel that competes with the copy
// for nothing but its place in the stream. Arithmetic on a tensor would compete for bandwidth
// too, and would take a different time on every GPU.

#include "clock.cuh"

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

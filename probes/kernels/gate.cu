// The gate: holds a stream shut until the host opens it.
//
// Copies queued behind a gate start when the host says so, not when it got round to launching
// them. Without it the launch overhead is measured together with the copy, and streams that
// should run side by side start one after another.

#include "clock.cuh"

/// Stores `generation` to `*arrived`, then waits until `*flag` reaches `generation`, or `timeout_ns`
/// nanoseconds have passed; in the latter case it stores 1 to `*expired`, which it otherwise leaves
/// alone.
///
/// `flag`, `expired` and `arrived` lie in pinned host memory mapped into this GPU; none may be null.
/// `arrived` is written by this GPU alone: the host opens the gate when it sees that all wait there.
/// Launch one block of one thread.
///
/// Generations are compared by their difference, so one flag serves any number of gates: it only
/// ever counts up, may pass 2^32, and a late gate finds itself already open. The host must stay
/// fewer than 2^31 generations ahead of the oldest gate still waiting.
extern "C" __global__ void peerscope_gate(const volatile unsigned int* flag,
                                          unsigned int generation,
                                          unsigned long long timeout_ns,
                                          unsigned int* expired,
                                          unsigned int* arrived) {
    *(volatile unsigned int*)arrived = generation;
    // The host must see that before the first look at the flag, and not when the kernel ends.
    __threadfence_system();
    const unsigned long long start = nanoseconds();
    // No __nanosleep: every look already takes a round trip over PCIe, and a sleep would add to
    // the moment at which the gate opens. The flag is looked at before the clock, so a gate that
    // is open already never expires, not even with a timeout of 0.
    while ((int)(*flag - generation) < 0) {
        if (nanoseconds() - start >= timeout_ns) {
            // Volatile, so that the host may watch it while later work still runs.
            *(volatile unsigned int*)expired = 1;
            return;
        }
    }
}

#!/usr/bin/env python3
"""What the CUDA driver takes to start in a program that does nothing else: the floor under every check.

Calls cuInit, then retains the primary context of each visible GPU on a thread of its own, and prints one JSON line:
seconds from the program's start to the return of cuInit, from there to the last context, their sum, and the same
since the process was started. CUDA_VISIBLE_DEVICES chooses the GPUs, as for every CUDA program.

--hold SECONDS   keeps the contexts for so long after they are ready ('ready' is printed before)
--nvml           reads as much of NVML beside it as peerscope's facts take: 4 P2P properties of every ordered pair
"""

import argparse
import ctypes
import json
import os
import threading
import time


def age():
    """Seconds since the kernel started this process, exact to a tick."""
    fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def check(call, code):
    if code != 0:
        raise SystemExit(f"{call}: CUDA error {code}")


def read_nvml():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    count, handles = ctypes.c_uint(), []
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        raise SystemExit("NVML does not start")
    for index in range(count.value):
        handle = ctypes.c_void_p()
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        handles.append(handle)
    status = ctypes.c_int()
    for one in handles:
        for other in handles:
            for prop in range(4):
                if one is not other:
                    nvml.nvmlDeviceGetP2PStatus(one, other, prop, ctypes.byref(status))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hold", type=float, default=0)
    parser.add_argument("--nvml", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()
    beside = threading.Thread(target=read_nvml)
    if arguments.nvml:
        beside.start()
    cuda = ctypes.CDLL("libcuda.so.1")
    check("cuInit", cuda.cuInit(0))
    initialised = time.monotonic()
    count = ctypes.c_int()
    check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    codes = [None] * count.value

    def retain(ordinal):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        codes[ordinal] = cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        codes[ordinal] = codes[ordinal] or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)

    threads = [threading.Thread(target=retain, args=(ordinal,)) for ordinal in range(count.value)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ready, since_start = time.monotonic(), age()
    for code in codes:
        check("cuDevicePrimaryCtxRetain", code)
    figures = {
        "gpus": count.value,
        "cuInit": initialised - began,
        "contexts": ready - initialised,
        "ready": ready - began,
        "since_process_start": since_start,
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}), flush=True)
    time.sleep(arguments.hold)


main()

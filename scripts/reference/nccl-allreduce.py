#!/usr/bin/env python3
"""All-reduce by PyTorch's NCCL on all visible GPUs beside peerscope's estimate for the same GPUs.

  scripts/reference/nccl-allreduce.py REPORT.json            bus bandwidth at 512 MiB and 2 GiB, NVLS off
  scripts/reference/nccl-allreduce.py REPORT.json --topo FILE    the same with NCCL_TOPO_FILE=FILE, then without

Prints, for each size, NCCL's bus bandwidth (nccl-tests' definition), the estimate of the report (`measurements.all_reduce`,
ring and tree) and what NCCL reached of it. With --topo also writes NCCL's own dump beside FILE (FILE.dump), for
`peerscope check --against FILE.dump`. Needs two GPUs or more, PyTorch with CUDA, and a report of the same machine by
`peerscope check`. Exit code 0; 1 if NCCL refused the file or was more than 2% slower with it; 3 without GPUs.
"""

import argparse
import json
import os
import subprocess
import sys

SIZES = (512 << 20, 2 << 30)
ROUNDS, WARM = 20, 5
SLOWER = 0.98


def worker(rank, world, port, results):
    """Times all-reduces of each size on one GPU; the first rank reports."""
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    for size in SIZES:
        data = torch.ones(size // 4, dtype=torch.float32, device=f"cuda:{rank}")
        for _ in range(WARM):
            dist.all_reduce(data)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(ROUNDS):
            dist.all_reduce(data)
        end.record()
        torch.cuda.synchronize()
        seconds = start.elapsed_time(end) / 1e3 / ROUNDS
        if rank == 0:
            results.put((size, size / seconds * 2 * (world - 1) / world / 1e9))
    dist.destroy_process_group()


def measure():
    """Runs the workers in this process's environment; prints a line of JSON."""
    import torch
    import torch.multiprocessing as mp

    world = torch.cuda.device_count()
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(worker, (world, 29500 + os.getpid() % 1000, results), nprocs=world)
    print(json.dumps({"gpus": world, "bus": [results.get() for _ in SIZES]}))


def run(**variables):
    """Measures in a new process, whose NCCL reads these variables."""
    env = {**os.environ, "NCCL_NVLS_ENABLE": "0", **variables}
    done = subprocess.run([sys.executable, __file__, "--measure"], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="?")
    parser.add_argument("--topo")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return measure()
    if not args.report:
        parser.error("a report is needed")
    try:
        import torch
    except ImportError:
        print("SKIPPED: there is no PyTorch")
        return 3
    if torch.cuda.device_count() < 2:
        print(f"SKIPPED: {torch.cuda.device_count()} GPUs")
        return 3
    with open(args.report, encoding="utf-8") as file:
        estimates = json.load(file)["measurements"].get("all_reduce", [])
    plain = run()
    if plain is None:
        return 1
    for size, bus in plain["bus"]:
        print(f"{size >> 20} MiB on {plain['gpus']} GPUs: NCCL {bus:.0f} GB/s")
        for one in estimates:
            if one["gpus"] == plain["gpus"]:
                estimate = one["bus_gbps"]
                print(f"  {one['algorithm']}: about {estimate:.0f} GB/s, of which NCCL reached {100 * bus / estimate:.0f}%")
    if not args.topo:
        return 0
    given = run(NCCL_TOPO_FILE=args.topo, NCCL_TOPO_DUMP_FILE=f"{args.topo}.dump")
    if given is None:
        print(f"NCCL failed with {args.topo}")
        return 1
    slower = False
    for (size, bus), (_, with_file) in zip(plain["bus"], given["bus"]):
        print(f"{size >> 20} MiB with {args.topo}: {with_file:.0f} GB/s beside {bus:.0f}")
        slower |= with_file < SLOWER * bus
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())

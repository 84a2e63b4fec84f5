#!/usr/bin/env python3
"""What PyTorch makes of the same machine: the experiments that 'peerscope check' has as probes.

Prints one JSON object with a key for each experiment that was asked for (all of them without arguments):

  host       rate of copies between host and GPU, pinned and pageable, GB/s
  pipeline   batches copied in, worked on by a kernel and copied out, in one stream and in several, microseconds
  calls      time that calls hold the host, microseconds
  loop       launches with a wait for the same GPU in each turn, and with one for another GPU, microseconds per turn
  overlap    share of a kernel that ran beside a copy between two GPUs, in the eight stream placements, per cent

Every figure is a median. --like REPORT takes sizes and numbers from a report of 'peerscope check -o REPORT', so that
both measure the same. Exit code 3 where PyTorch or a GPU is missing.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

MIB = 1 << 20
CALLS = ("launch", "copy", "synchronize-stream", "synchronize-event", "synchronize-device")


def import_torch():
    """PyTorch, where it is there and sees a GPU."""
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed", file=sys.stderr)
        raise SystemExit(3)
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        raise SystemExit(3)
    return torch


class Sizes:
    """Sizes and numbers of the experiments; those of a report where there is one."""

    def __init__(self, report):
        measured = (report or {}).get("measurements") or {}
        host = [cell["bytes"] for cell in measured.get("host", []) if cell.get("allocation") == "reused"]
        self.host = max(host, default=64 * MIB)
        pipeline = next((cell for cell in measured.get("pipeline", []) if cell.get("memory") == "pinned" and cell.get("kernel_us")), {})
        self.batches = pipeline.get("batches", 8)
        self.batch = pipeline.get("bytes", 8 * MIB)
        self.streams = pipeline.get("streams", 3)
        self.kernel_us = pipeline.get("kernel_us") or 0.8 * self.batch / 55e3
        copies = [cell["bytes"] for cell in measured.get("calls", []) if cell.get("bytes")]
        self.call = max(copies, default=8 * MIB)
        loops = measured.get("launch_loop", [])
        self.turns = max((cell["turns"] for cell in loops), default=1000)
        self.loop_us = max((cell["kernel_us"] for cell in loops), default=10.0)
        overlap = [cell["bytes"] for cell in measured.get("overlap", [])]
        self.overlap = max(overlap, default=64 * MIB)


class Bench:
    """The experiments, on one GPU or two."""

    def __init__(self, torch, sizes, samples):
        self.torch, self.sizes, self.samples = torch, sizes, samples
        self.ticks = {}

    def spin(self, gpu, microseconds):
        """Launches a kernel of this length on the current stream of a GPU."""
        torch = self.torch
        if gpu not in self.ticks:
            times = [self.device_us(gpu, lambda: torch.cuda._sleep(10_000_000)) for _ in range(3)]
            self.ticks[gpu] = 10_000_000 / statistics.median(times)
        torch.cuda._sleep(int(microseconds * self.ticks[gpu]))

    def device_us(self, gpu, work):
        """Microseconds between two events around work on the current stream of a GPU."""
        torch = self.torch
        with torch.cuda.device(gpu):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            return 1e3 * start.elapsed_time(end)

    def median(self, sample):
        """The median of samples after one that is not counted."""
        sample()
        return statistics.median(sample() for _ in range(self.samples))

    def bytes_on(self, size, gpu=None, pinned=False):
        if gpu is not None:
            return self.torch.ones(size, dtype=self.torch.uint8, device=f"cuda:{gpu}")
        return self.torch.ones(size, dtype=self.torch.uint8, pin_memory=pinned)

    # host

    def host(self):
        return [self.host_copy(gpu, memory, direction)
                for gpu in range(self.torch.cuda.device_count())
                for memory in ("pinned", "pageable")
                for direction in ("to-device", "to-host", "both-ways")
                if (memory, direction) != ("pageable", "both-ways")]

    def host_copy(self, gpu, memory, direction, copies=4):
        """A row of copies between two events; pageable ones by the host's clock, which they hold."""
        torch, size = self.torch, self.sizes.host
        ours = [self.bytes_on(size, pinned=memory == "pinned") for _ in range(2)]
        theirs = [self.bytes_on(size, gpu) for _ in range(2)]
        up = lambda: theirs[0].copy_(ours[0], non_blocking=True)
        down = lambda: ours[1].copy_(theirs[1], non_blocking=True)
        streams = [torch.cuda.Stream(gpu) for _ in range(2)]

        def row():
            torch.cuda.synchronize(gpu)
            began = time.perf_counter()
            for stream, way, wanted in zip(streams, (up, down), ("to-device", "to-host")):
                if direction in (wanted, "both-ways"):
                    with torch.cuda.stream(stream):
                        for _ in range(copies):
                            way()
            torch.cuda.synchronize(gpu)
            return 1e6 * (time.perf_counter() - began)

        rate = copies * size / self.median(row) / 1e3
        return {"gpu": gpu, "memory": memory, "direction": direction, "bytes": size, "gbps": rate}

    # pipeline

    def pipeline(self):
        return [self.one_pipeline(gpu) for gpu in range(self.torch.cuda.device_count())]

    def one_pipeline(self, gpu):
        torch, sizes = self.torch, self.sizes
        ours = [self.bytes_on(sizes.batch, pinned=True) for _ in range(2)]
        theirs = [self.bytes_on(sizes.batch, gpu) for _ in range(2)]
        all_streams = [torch.cuda.Stream(gpu) for _ in range(sizes.streams)]
        self.spin(gpu, 1)

        def run(streams):
            torch.cuda.synchronize(gpu)
            # The GPU is held until everything is enqueued, as in peerscope: only the GPU is timed.
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.cuda.device(gpu), torch.cuda.stream(streams[0]):
                self.spin(gpu, 3000)
                start.record(streams[0])
            for stream in streams[1:]:
                stream.wait_event(start)
            for batch in range(sizes.batches):
                with torch.cuda.device(gpu), torch.cuda.stream(streams[batch % len(streams)]):
                    theirs[0].copy_(ours[0], non_blocking=True)
                    self.spin(gpu, sizes.kernel_us)
                    ours[1].copy_(theirs[1], non_blocking=True)
            for stream in streams[1:]:
                streams[0].wait_stream(stream)
            end.record(streams[0])
            torch.cuda.synchronize(gpu)
            return 1e3 * start.elapsed_time(end)

        one = self.median(lambda: run(all_streams[:1]))
        several = self.median(lambda: run(all_streams))
        return {"gpu": gpu, "batches": sizes.batches, "bytes": sizes.batch, "streams": sizes.streams,
                "kernel_us": sizes.kernel_us, "one_stream_us": one, "several_streams_us": several,
                "speed_up": one / several}

    # calls

    def calls(self):
        return [cell for gpu in range(self.torch.cuda.device_count()) for cell in self.calls_of(gpu)]

    def calls_of(self, gpu):
        torch, size = self.torch, self.sizes.call
        pinned, pageable = self.bytes_on(size, pinned=True), self.bytes_on(size)
        one, other = self.bytes_on(size, gpu), self.bytes_on(size, gpu)
        stream, event = torch.cuda.Stream(gpu), torch.cuda.Event()
        self.spin(gpu, 1)

        def held(call, before=lambda: None):
            def sample():
                torch.cuda.synchronize(gpu)
                with torch.cuda.device(gpu), torch.cuda.stream(stream):
                    before()
                    began = time.perf_counter()
                    call()
                    took = time.perf_counter() - began
                torch.cuda.synchronize(gpu)
                return 1e6 * took
            return self.median(sample)

        def cell(call, host_blocked_us, **more):
            return {"gpu": gpu, "call": call, **more, "host_blocked_us": host_blocked_us}

        yield cell("launch", held(lambda: self.spin(gpu, 200)), busy=True)
        for host, free in (("non-blocking", True), ("blocking", False)):
            within = lambda: other.copy_(one, non_blocking=free) if free else (other.copy_(one), stream.synchronize())
            yield cell("copy", held(within), memory=None, direction=None, host=host, bytes=size)
            for memory, ours in (("pinned", pinned), ("pageable", pageable)):
                up, down = (lambda: one.copy_(ours, non_blocking=free)), (lambda: ours.copy_(one, non_blocking=free))
                for direction, way in (("to-device", up), ("to-host", down)):
                    yield cell("copy", held(way), memory=memory, direction=direction, host=host, bytes=size)
        work = lambda: (self.spin(gpu, 200), event.record(stream))
        for busy, before in ((True, work), (False, lambda: event.record(stream))):
            yield cell("synchronize-stream", held(stream.synchronize, before), busy=busy)
            yield cell("synchronize-event", held(event.synchronize, before), busy=busy)
            yield cell("synchronize-device", held(lambda: torch.cuda.synchronize(gpu), before), busy=busy)

    # loop

    def loop(self):
        gpus = self.torch.cuda.device_count()
        pairs = [(gpu, waited) for gpu in range(gpus) for waited in dict.fromkeys((gpu, (gpu + 1) % gpus))]
        return [self.one_loop(gpu, waited) for gpu, waited in pairs]

    def one_loop(self, gpu, waited):
        torch, sizes = self.torch, self.sizes
        stream = torch.cuda.Stream(gpu)
        self.spin(gpu, 1)
        host = []

        def sample():
            torch.cuda.synchronize(gpu)
            with torch.cuda.device(gpu), torch.cuda.stream(stream):
                began = time.perf_counter()
                for _ in range(sizes.turns):
                    self.spin(gpu, sizes.loop_us)
                    torch.cuda.synchronize(waited)
                host.append(1e6 * (time.perf_counter() - began) / sizes.turns)
                torch.cuda.synchronize(gpu)
                return 1e6 * (time.perf_counter() - began) / sizes.turns

        turn = self.median(sample)
        return {"gpu": gpu, "synchronized": waited, "turns": sizes.turns, "kernel_us": sizes.loop_us,
                "turn_us": turn, "host_us": statistics.median(host[1:])}

    # overlap

    def overlap(self):
        if self.torch.cuda.device_count() < 2:
            return []
        return [self.one_overlap(*streams, host, on)
                for streams in (("default", "default"), ("default", "side"), ("side", "default"), ("side", "side"))
                for host in ("non-blocking", "blocking")
                for on in ("source", "destination")]

    def one_overlap(self, source, destination, host, on):
        """The kernels of the profiler's trace against its copy: docs/dev/facts.md, "Stream placement and overlap"."""
        # Larger than peerscope's copies: launches are some 0.1 ms apart, which a share of 1 ms does not show.
        torch, size = self.torch, max(self.sizes.overlap, 1 << 30)
        data = self.bytes_on(size, 0)
        gpu = 0 if on == "source" else 1
        side = [torch.cuda.Stream(0), torch.cuda.Stream(1)]
        placed = lambda at, kind: torch.cuda.stream(side[at]) if kind == "side" else contextlib.nullcontext()
        copy_us = self.copy_us(data)
        self.spin(gpu, 1)

        def once():
            # Both GPUs are kept busy while the host enqueues: otherwise the copy may end before the kernel is launched.
            for at in (0, 1):
                with torch.cuda.device(at):
                    for stream in (torch.cuda.default_stream(at), side[at]):
                        with torch.cuda.stream(stream):
                            self.spin(at, 2000)
            with placed(0, source), placed(1, destination):
                data.to("cuda:1", non_blocking=host == "non-blocking")
            with torch.cuda.device(gpu):
                self.spin(gpu, 0.2 * copy_us)
                self.spin(gpu, 0.5 * copy_us)
            for at in (0, 1):
                torch.cuda.synchronize(at)

        once()
        shares = [share for share in (self.profiled(once) for _ in range(3)) if share is not None]
        return {"placement": {"source": source, "destination": destination, "host": host}, "compute_on": on,
                "bytes": size, "overlap_percent": statistics.median(shares) if shares else None}

    def copy_us(self, data):
        torch, streams = self.torch, [self.torch.cuda.Stream(0), self.torch.cuda.Stream(1)]
        there = self.bytes_on(data.numel(), 1)

        def copy():
            with torch.cuda.stream(streams[1]), torch.cuda.stream(streams[0]):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record(streams[0])
                there.copy_(data, non_blocking=True)
                end.record(streams[0])
                end.synchronize()
                return 1e3 * start.elapsed_time(end)

        return self.median(copy)

    def profiled(self, run):
        """Share of the last kernel that ran beside the copy, per cent."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            run()
        copies, kernels = [], []
        for event in trace.events():
            span = (event.time_range.start, event.time_range.end)
            if "Memcpy PtoP" in event.name or "Memcpy DtoD" in event.name:
                copies.append(span)
            elif "spin" in event.name:
                kernels.append(span)
        if not copies or not kernels:
            return None
        (copy_start, copy_end), (start, end) = max(copies, key=lambda span: span[1] - span[0]), max(kernels)
        return 100 * max(0, min(end, copy_end) - max(start, copy_start)) / (end - start)


EXPERIMENTS = ("host", "pipeline", "calls", "loop", "overlap")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--like", metavar="REPORT", help="take sizes and numbers from this report")
    parser.add_argument("--samples", type=int, default=7, help="samples of each figure (7)")
    arguments = parser.parse_args()
    unknown = set(arguments.experiments) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}")
    report = json.load(open(arguments.like)) if arguments.like else None
    torch = import_torch()
    bench = Bench(torch, Sizes(report), arguments.samples)
    found = {"torch": torch.__version__, "gpus": torch.cuda.device_count()}
    for name in arguments.experiments or EXPERIMENTS:
        found[name] = list(getattr(bench, name)())
    print(json.dumps(found))


if __name__ == "__main__":
    main()

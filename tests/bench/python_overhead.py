#!/usr/bin/env python3
"""What a submitted GEMM costs in Python: microseconds of this thread's CPU time.

  python_overhead.py [--rounds N] [--submits N] [--out FILE]

Needs a running concertd (CONCERT_SOCKET) and the package (PYTHONPATH). Ops are collected in batches
and waited for outside of the measured time, so that the figure is the way from Python into the ring
and back. `call` is the C function through ctypes with everything made before; `prepared` is
Queue.submit of a Gemm made before; `made anew` is Queue.gemm with its checks; `with a wait` adds a
ticket to wait for. The least of the rounds is the nearer to an idle machine. --out: the
figures as JSON.
"""

import argparse
import json
import pathlib
import platform
import statistics
import time
from typing import Any, Callable

import concert
from concert import _library


def measure(rounds: int, submits: int, queue: concert.Queue,
            one: Callable[[], Any]) -> list[float]:
    """Microseconds a call, of each round."""
    times = []
    for _ in range(rounds):
        with queue.session.batch():
            start = time.thread_time_ns()
            for _ in range(submits):
                one()
            times.append((time.thread_time_ns() - start) / submits / 1e3)
        queue.last.wait()
    return times


def arguments_of(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--submits", type=int, default=100, help="of a batch")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the figures")
    return parser.parse_args()


def report(arguments: argparse.Namespace, what: str, versions: dict[str, str], gpu: str,
           ways: dict[str, tuple[concert.Queue, Callable[[], Any]]]) -> None:
    """Measures and prints what each way costs."""
    versions = {"Python": platform.python_version(), **versions, "concert": concert.__version__}
    print(f"{', '.join(' '.join(pair) for pair in versions.items())}, {gpu}: us {what}, "
          f"{arguments.rounds} rounds of {arguments.submits}")
    figures = {}
    for name, (queue, one) in ways.items():
        times = measure(arguments.rounds, arguments.submits, queue, one)
        figures[name] = {"median": statistics.median(times), "least": min(times)}
        print(f"{name:24} median {statistics.median(times):6.2f}   least {min(times):6.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps({
            "unit": f"us {what}", "versions": versions, "gpu": gpu, "cpu": cpu_name(),
            "rounds": arguments.rounds, "submits": arguments.submits, "figures": figures},
            indent=2) + "\n")


def cpu_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def main() -> None:
    arguments = arguments_of(__doc__.splitlines()[0])

    with concert.connect(name="python-overhead") as session, session.queue() as queue:
        a = session.zeros((1, 8))
        w = session.zeros((8, 8))
        d = session.zeros((1, 8))
        op = concert.Gemm(a, w, d)
        gate = [queue.gemm(a, w, d)]
        submit = _library.by_address("concert_submit_gemm")

        def call() -> None:
            submit(queue._handle, op._address, None, queue._ticket_address,
                   _library.per_thread.address)

        report(arguments, "a submitted GEMM", {}, session.gpus[0].name, {
            "call": (queue, call),
            "prepared": (queue, lambda: queue.submit(op)),
            "prepared, with a wait": (queue, lambda: queue.submit(op, gate)),
            "made anew": (queue, lambda: queue.gemm(a, w, d)),
        })


if __name__ == "__main__":
    main()

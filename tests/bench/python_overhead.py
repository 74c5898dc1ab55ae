#!/usr/bin/env python3
"""What a submitted GEMM costs in Python: microseconds of this thread's CPU time.

  python_overhead.py [--rounds N] [--submits N]

Needs a running concertd (CONCERT_SOCKET) and the package (PYTHONPATH). Ops are collected in batches
and waited for outside of the measured time, so that the figure is the way from Python into the ring
and back. `call` is the C function through ctypes with everything made before; `prepared` is
Queue.submit of a Gemm made before; `made anew` is Queue.gemm with its checks; `with a wait` adds a
ticket to wait for. The least of the rounds is the nearer to an idle machine.
"""

import argparse
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--submits", type=int, default=100, help="of a batch")
    arguments = parser.parse_args()

    with concert.connect(name="python-overhead") as session, session.queue() as queue:
        a = session.zeros((1, 8))
        w = session.zeros((8, 8))
        d = session.zeros((1, 8))
        op = concert.Gemm(a, w, d)
        gate = [queue.gemm(a, w, d)]
        submit = _library.library().concert_submit_gemm

        def call() -> None:
            submit(queue._handle, op._reference, None, queue._ticket_reference,
                   _library.per_thread.reference)

        ways: dict[str, Callable[[], Any]] = {
            "call": call,
            "prepared": lambda: queue.submit(op),
            "prepared, with a wait": lambda: queue.submit(op, gate),
            "made anew": lambda: queue.gemm(a, w, d),
        }
        print(f"Python {platform.python_version()}, concert {concert.__version__}, "
              f"{session.gpus[0].name}: us a submitted GEMM, {arguments.rounds} rounds of "
              f"{arguments.submits}")
        for name, one in ways.items():
            times = measure(arguments.rounds, arguments.submits, queue, one)
            print(f"{name:24} median {statistics.median(times):6.2f}   least {min(times):6.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What torch.ops.concert.linear costs in Python: microseconds of this thread's CPU time a call.

  torch_overhead.py [--rounds N] [--submits N]

Needs PyTorch, a running concertd on the simulator (CONCERT_SOCKET) and the package (PYTHONPATH). As
python_overhead.py, from which `call` is: operands in the pool's memory, ops collected in batches,
nothing waited for in the measured time. `op` is the op's Python without what PyTorch does around
it, and its way through PyTorch's dispatcher comes with `dispatched`; both write to a result that
was made before. `torch.empty` is what making one would add. Streams of CUDA are not in it.
"""

import argparse
import platform
import statistics
from typing import Any, Callable

import torch
from python_overhead import measure

import concert.torch
from concert import _library
from concert.torch import _context, _linear
from concert.torch._memory import HostMemory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--submits", type=int, default=100, help="of a batch")
    arguments = parser.parse_args()

    with (concert.connect(name="torch-overhead") as session, session.queue() as queue,
          torch.inference_mode()):
        concert.torch.use(session)
        memory = HostMemory(session, 1 << 16).tensor().view(torch.bfloat16)
        x, w, out = memory[:8].view(1, 8), memory[64:128].view(8, 8), memory[128:136].view(1, 8)
        op = concert.Gemm(session.zeros((1, 8)), session.zeros((8, 8)), session.zeros((1, 8)))
        submit = _library.library().concert_submit_gemm

        torch.ops.concert.linear(x, w)
        lane = _context.context().lanes[-1]

        def run(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
                prepared: _linear.Prepared) -> torch.Tensor:
            lane.submit(x, w, bias, out, prepared)
            return out

        lane.run = run

        def call() -> None:
            submit(queue._handle, op._reference, None, queue._ticket_reference,
                   _library.per_thread.reference)

        ways: dict[str, tuple[concert.Queue, Callable[[], Any]]] = {
            "call": (queue, call),
            "op": (lane.queue, lambda: _linear._linear(x, w)),
            "dispatched": (lane.queue, lambda: torch.ops.concert.linear(x, w)),
            "torch.empty": (queue, lambda: torch.empty((1, 8), dtype=torch.bfloat16)),
        }
        print(f"Python {platform.python_version()}, PyTorch {torch.__version__}, concert "
              f"{concert.__version__}, {session.gpus[0].name}: us a call, {arguments.rounds} "
              f"rounds of {arguments.submits}")
        for name, (used, one) in ways.items():
            times = measure(arguments.rounds, arguments.submits, used, one)
            print(f"{name:24} median {statistics.median(times):6.2f}   least {min(times):6.2f}")


if __name__ == "__main__":
    main()

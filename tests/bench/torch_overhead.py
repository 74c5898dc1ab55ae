#!/usr/bin/env python3
"""What torch.ops.concert.linear costs in Python: microseconds of this thread's CPU time a call.

  torch_overhead.py [--rounds N] [--submits N] [--out FILE]

Needs PyTorch, a running concertd (CONCERT_SOCKET) and the package (PYTHONPATH). As
python_overhead.py, from which `call` is: operands in the pool's memory, ops collected in batches,
nothing waited for in the measured time. `op` is the op's Python without what PyTorch does around
it, and its way through PyTorch's dispatcher comes with `dispatched`; both write to a result that
was made before. `torch.empty` is what making one would add. `on a stream`, on GPUs only, is all of
it, with what orders the op on the current CUDA stream.
"""

import torch
from python_overhead import arguments_of, report

import concert.torch
from concert import _library
from concert.torch import _context, _linear
from concert.torch._memory import HostMemory


def pool_memory(session: concert.Session) -> torch.Tensor:
    if session.backend == concert.Backend.SIM:
        return HostMemory(session, 1 << 16).tensor().view(torch.bfloat16)
    with torch.cuda.use_mem_pool(concert.torch.pool()):
        return torch.zeros(1 << 15, dtype=torch.bfloat16, device="cuda")


def main() -> None:
    arguments = arguments_of(__doc__.splitlines()[0])

    with (concert.connect(name="torch-overhead") as session, session.queue() as queue,
          torch.inference_mode()):
        concert.torch.use(session)
        memory = pool_memory(session)
        x, w, out = memory[:8].view(1, 8), memory[64:128].view(8, 8), memory[128:136].view(1, 8)
        op = concert.Gemm(session.zeros((1, 8)), session.zeros((8, 8)), session.zeros((1, 8)))
        submit = _library.by_address("concert_submit_gemm")

        torch.ops.concert.linear(x, w)
        lane = _context.context().lanes[x.get_device()]
        on_stream = lane.run

        def run(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
                prepared: _linear.Prepared) -> torch.Tensor:
            lane.submit(x, w, bias, out, prepared)
            return out

        def op_on_stream() -> None:
            lane.run = on_stream
            torch.ops.concert.linear(x, w)
            lane.run = run

        lane.run = run

        def call() -> None:
            submit(queue._handle, op._address, None, queue._ticket_address,
                   _library.per_thread.address)

        ways = {
            "call": (queue, call),
            "op": (lane.queue, lambda: _linear._linear(x, w)),
            "dispatched": (lane.queue, lambda: torch.ops.concert.linear(x, w)),
            "torch.empty": (queue, lambda: torch.empty((1, 8), dtype=x.dtype, device=x.device)),
        }
        versions, gpu = {"PyTorch": torch.__version__}, session.gpus[0].name
        if not x.is_cuda:
            report(arguments, "a call", versions, gpu, ways)
            return
        ways["on a stream"] = (lane.queue, op_on_stream)
        with torch.cuda.use_mem_pool(concert.torch.pool()):
            torch.cuda.synchronize()
            report(arguments, "a call", versions, gpu, ways)
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()

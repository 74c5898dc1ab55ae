"""concert.torch: linear layers of PyTorch models through concertd.

    import concert.torch

    with torch.inference_mode():
        y = torch.ops.concert.linear(x, w, bias)   # y = x @ w.T + bias

The op hands a GEMM to the session in use: the one given to use(), else one that is opened at the
first call. On CUDA it is ordered by the current stream as any op of PyTorch's, and memory made
inside `torch.cuda.use_mem_pool(concert.torch.pool())` is the daemon's from the start. On the
simulator it takes CPU tensors, which it copies, and returns when the result is there.

For inference: it has no gradients. Threads may call it at the same time; each has a queue of its
own. docs/python.md of the project is the manual.
"""

_OLDEST = (2, 6)  # MemPool over an allocator of one's own

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError("concert.torch needs PyTorch 2.6 or newer and there is none: pip install "
                      "torch") from _error
if tuple(int(_part) for _part in _torch.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(f"concert.torch needs PyTorch 2.6 or newer and this is {_torch.__version__}: "
                      "pip install --upgrade torch")

from ._context import pool, session, use  # noqa: E402
from ._linear import linear  # noqa: E402

__all__ = ["linear", "pool", "session", "use"]

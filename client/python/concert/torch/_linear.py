"""torch.ops.concert.linear: y = x @ w^T + bias, as a GEMM of the session in use.

Defined with torch.library.Library: an op of torch.library.custom_op does the same and takes three
times as long to get here (8 us instead of 2.5).
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _abi
from .._abi import Backend, Dtype
from .._errors import Error, FailedPrecondition, InvalidArgument
from .._ops import Gemm
from .._tensor import Tensor
from .._ticket import Ticket
from . import _context
from ._context import Context
from ._memory import Buffers, HostMemory, Slice

_DTYPES = {torch.bfloat16: Dtype.BF16, torch.float16: Dtype.FP16, torch.float32: Dtype.FP32}
# Slices of a, w, c, d and bias, which lie side by side in the struct.
_SLICES = slice(_abi.concert_gemm.a.offset, _abi.concert_gemm.bias.offset + 16)
_NONE: Slice = bytes(_abi.concert_slice())
_ALIGNMENT = 256  # of operands in staging memory, as allocators of GPUs give it
_PREPARED_MAX = 4096  # GEMMs of a lane; beyond them all are made anew
_PENDING_MAX = 512  # half of the failures that a session remembers


class Prepared:
    """A GEMM of certain shapes, complete but for where its operands are."""

    __slots__ = ("gemm", "struct", "shape", "dtype")

    def __init__(self, gemm: Gemm, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.gemm = gemm
        self.struct = memoryview(gemm._struct).cast("B")
        self.shape = shape
        self.dtype = dtype


class Lane:
    """One thread's way to one GPU."""

    def __init__(self, context: Context, x: torch.Tensor) -> None:
        on_cuda = context.session.backend == Backend.CUDA
        if x.is_cuda != on_cuda:
            raise FailedPrecondition(
                f"x is on {x.device} and the daemon runs on " +
                ("GPUs: move it there with .cuda()" if on_cuda else
                 "simulated GPUs, which take CPU tensors: move it there with .cpu()"))
        gpu = context.session._gpu_of(x.get_device()) if on_cuda else 0
        self.device = x.device
        self.queue = context.session.queue(gpu, context.priority)
        self.buffers = Buffers(context.session, x.device, context.imports)
        self.prepared: dict[Any, Prepared] = {}
        self._staging: torch.Tensor | None = None
        self._pending: list[Ticket] = []  # of ops that only streams have waited for

    def run(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
            prepared: Prepared) -> torch.Tensor:
        out = torch.empty(prepared.shape, dtype=prepared.dtype, device=self.device)
        if self.device.type == "cuda":
            # A default stream is a number, which means that of the device that is current.
            with torch.cuda.device(self.device):
                self._run_on_stream(x, w, bias, out, prepared)
            return out
        ticket = self.submit(x, w, bias, out, prepared)
        if ticket is None:
            self._run_staged(x, w, bias, out)
        else:
            ticket.wait()
        return out

    def submit(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
               out: torch.Tensor, prepared: Prepared,
               waits: tuple[Ticket, ...] = ()) -> Ticket | None:
        """None, and nothing was done, where memory of the CPU is not the pool's."""
        buffers = self.buffers
        if buffers.frees() != buffers.frees_seen:
            buffers.forget()
        find, ask = buffers.known.get, buffers.ask
        at_x = find(x.data_ptr()) or ask("x", x)
        at_w = find(w.data_ptr()) or ask("w", w)
        at_out = find(out.data_ptr()) or ask("the result", out)
        at_bias = _NONE if bias is None else find(bias.data_ptr()) or ask("bias", bias)
        if not (at_x and at_w and at_out and at_bias):
            if self.device.type == "cpu":
                return None
            imported = buffers.imported
            at_x = at_x or imported("x", x)
            at_w = at_w or imported("w", w)
            at_out = at_out or imported("the result", out)
            if at_bias is None:
                assert bias is not None
                at_bias = imported("bias", bias)
        prepared.struct[_SLICES] = b"".join((at_x, at_w, _NONE, at_out, at_bias))
        return self.queue.submit(prepared.gemm, waits)

    def _run_on_stream(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
                       out: torch.Tensor, prepared: Prepared) -> None:
        """After what is on the current stream of the GPU, which is current, and before what comes
        next there."""
        if torch.cuda.is_current_stream_capturing():
            raise FailedPrecondition("the current stream is being captured, and a CUDA graph "
                                     "cannot hold concert::linear; call it outside of the graph")
        self._raise_what_failed()
        stream = torch.cuda.current_stream(self.device).cuda_stream
        # As Queue.after(), which would leave the wait to the next op where this one is refused.
        ready = self.queue.session._signal_on(stream)
        ticket = self.submit(x, w, bias, out, prepared, (ready,))
        assert ticket is not None
        ticket.wait(stream)
        self._pending.append(ticket)

    def _raise_what_failed(self) -> None:
        """The outcome of earlier ops, which streams do not learn."""
        pending = self._pending
        while pending and (len(pending) > _PENDING_MAX or pending[0].done()):
            pending.pop(0).wait()

    def _run_staged(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
                    out: torch.Tensor) -> None:
        """The simulator sees no memory of this process but the pool's."""
        given = [x, w, out] if bias is None else [x, w, out, bias]
        for name, tensor in zip(("x", "w", "the result", "bias"), given):
            if tensor.untyped_storage().nbytes() == 0:
                raise InvalidArgument(f"{name} has shape {tuple(tensor.shape)} and no memory: its "
                                      "storage was freed")
        offsets, end = [], 0
        for tensor in given:
            offsets.append(end)
            end += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        if self._staging is None or self._staging.numel() < end:
            self._staging = HostMemory(self.queue.session, end).tensor()
        staged = [self._staging[at:at + tensor.numel() * tensor.element_size()]
                  .view(tensor.dtype).view(tensor.shape) for at, tensor in zip(offsets, given)]
        for one in (0, 1, 3)[:len(given) - 1]:
            staged[one].copy_(given[one])
        bias = staged[3] if len(staged) == 4 else None
        ticket = self.submit(staged[0], staged[1], bias, staged[2],
                             self.prepare(staged[0], staged[1], bias))
        assert ticket is not None
        ticket.wait()
        out.copy_(staged[2])

    def prepare(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> Prepared:
        """InvalidArgument or FailedPrecondition: these do not go together."""
        shape = _shape_of_result(x, w, bias)
        for name, tensor in (("x", x), ("w", w), ("bias", bias)):
            if tensor is None:
                continue
            if tensor.dtype not in _DTYPES:
                raise InvalidArgument(f"{name} is {tensor.dtype}; concert::linear takes bfloat16, "
                                      "float16 and float32")
            if tensor.dtype != x.dtype:
                raise InvalidArgument(f"{name} is {tensor.dtype} and x is {x.dtype}; they must be "
                                      "the same")
        kind = _DTYPES[x.dtype]
        rows, row_stride = _rows(x)
        gemm = Gemm(Tensor(_ANYWHERE, 0, (rows, x.shape[-1]), (row_stride, x.stride(-1)), kind),
                    Tensor(_ANYWHERE, 0, tuple(w.shape), w.stride(), kind),
                    Tensor(_ANYWHERE, 0, (rows, w.shape[0]), None, kind),
                    bias=None if bias is None else
                    Tensor(_ANYWHERE, 0, tuple(bias.shape), bias.stride(), kind))
        # The pool and the table of imports keep the memory.
        gemm._handles, gemm._home = (), self.queue._home
        return Prepared(gemm, shape, x.dtype)


class _Anywhere:
    """In place of a buffer that is named when the GEMM is submitted."""

    bytes = 2**64

    class _handle:
        value = 1
        home = None


_ANYWHERE: Any = _Anywhere()


def _rows(x: torch.Tensor) -> tuple[int, int]:
    """How many rows x has and their stride, if its leading dimensions are evenly spaced."""
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        raise InvalidArgument(f"x has strides {x.stride()}; elements of a row must lie side by "
                              "side (stride 1): make it contiguous")
    rows, stride = 1, x.shape[-1]
    for size, step in reversed(list(zip(x.shape[:-1], x.stride()[:-1]))):
        if size == 1:
            continue
        if rows > 1 and step != rows * stride:
            raise InvalidArgument(f"x has shape {tuple(x.shape)} and strides {x.stride()}; its rows "
                                  "must be evenly spaced: make it contiguous")
        if rows == 1:
            stride = step
        rows *= size
    if stride < x.shape[-1]:
        raise InvalidArgument(f"x has strides {x.stride()} for shape {tuple(x.shape)}; its rows "
                              "overlap: make it contiguous")
    return rows, stride


def _shape_of_result(x: torch.Tensor, w: torch.Tensor,
                     bias: torch.Tensor | None) -> tuple[int, ...]:
    for name, tensor in (("w", w), ("bias", bias)):
        if tensor is not None and tensor.device != x.device:
            raise InvalidArgument(f"{name} is on {tensor.device} and x is on {x.device}; they must "
                                  "be on the same device")
    if x.dim() < 1 or w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise InvalidArgument(f"x has shape {tuple(x.shape)} and w {tuple(w.shape)}; they must be "
                              "(..., k) and (n, k)")
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != w.shape[0]):
        raise InvalidArgument(f"bias has shape {tuple(bias.shape)}; it must be (n,) = "
                              f"({w.shape[0]},)")
    return (*x.shape[:-1], w.shape[0])


def _linear(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad or
                                    bias is not None and bias.requires_grad):
        raise FailedPrecondition("concert::linear has no gradients: call it under "
                                 "torch.inference_mode() or torch.no_grad()")
    context = _context._current or _context.context()
    try:
        device = x.get_device()
        lane = context.lanes.get(device)
        if lane is None:
            lane = context.lanes[device] = Lane(context, x)
        key: Any = (x.shape, w.shape, x.dtype, w.dtype)
        if bias is not None:
            key = (key, bias.shape, bias.stride(), bias.dtype)
        if not (x.is_contiguous() and w.is_contiguous()):
            key = (key, x.stride(), w.stride())
        prepared = lane.prepared.get(key)
        if prepared is None:
            if 0 in x.shape or 0 in w.shape:  # nothing to compute but zeros and bias
                return torch.nn.functional.linear(x, w, bias)
            if len(lane.prepared) == _PREPARED_MAX:
                lane.prepared.clear()
            prepared = lane.prepared[key] = lane.prepare(x, w, bias)
        return lane.run(x, w, bias, prepared)
    except Error as error:
        _context.forget(context, error)
        raise


def _fake(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return x.new_empty(_shape_of_result(x, w, bias))


_library = torch.library.Library("concert", "DEF")
_library.define("linear(Tensor x, Tensor w, Tensor? bias=None) -> Tensor")
_library.impl("linear", _linear, "CPU")
_library.impl("linear", _linear, "CUDA")
torch.library.register_fake("concert::linear", _fake, lib=_library)

linear = torch.ops.concert.linear

"""Ops, made ready for the ABI once: a server submits the same ones again and again."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from . import _abi
from ._abi import Activation, CollectiveKind, Dtype, Reduction
from ._arguments import kind_of, naming_operands, no_kind
from ._errors import InvalidArgument
from ._handles import Handle, Owner
from ._tensor import Buffer, Tensor

_GEMM = struct.Struct(_abi.PACK_FORMATS["concert_gemm"])
_GEMM_BYTES = ctypes.sizeof(_abi.concert_gemm)


class Op:
    """One op with its operands. May be submitted any number of times, by one thread at a time.

    Keeps the memory of its buffers; submitting it after one is closed is an error.
    """

    __slots__ = ("_struct", "_address", "_handles", "_home")

    _struct: Any
    _address: int  # of _struct
    _handles: tuple[Handle, ...]
    _home: object  # the session of all of them

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            setattr(cls, "__init__", naming_operands(vars(cls)["__init__"]))

    def _set_struct(self, op: Any, handles: list[Handle]) -> None:
        """What the ABI is given, which names the handles."""
        self._struct = op
        self._address = ctypes.addressof(op)
        self._keep(handles)

    def _keep(self, handles: list[Handle]) -> None:
        """The handles that must live and be open whenever the op is submitted."""
        self._handles = tuple(handles)
        self._home = home = handles[0].home
        for handle in handles[1:]:
            # To the daemon a buffer is a number, which another session has, too.
            if handle.home is not home:
                raise InvalidArgument(f"the {handle.what} is of another session than the "
                                      f"{handles[0].what} that comes first")

    def _check(self, home: object) -> None:
        """Says why it cannot be submitted to a queue of the session `home`."""
        for handle in self._handles:
            handle.check()
        if home is not self._home:
            raise InvalidArgument("the op is of another session than the queue; make it of buffers "
                                  "of the queue's session")


class Gemm(Op):
    """d[m,n] = act(alpha * a[m,k] * w[n,k]^T + beta * c[m,n] + bias[n]).

    With residual=True c is added behind the activation: act(alpha * a * w^T + bias) + beta * c.
    With gated=True d is (m, n / 2): act(gate) * up of the halves of the product's rows or, with
    interleaved=True, of its columns by turns; activation is SILU or GELU then, and beta 0.
    With three dimensions the first is the batch; a, w or c with two is used by every member.
    Elements of a row must lie side by side, rows may have gaps. d, c and bias have a's dtype; of
    fp8 they are bf16 or fp16, and a_scales, w_scales (fp32) multiply the product: one number, or m
    and n of them. Other dtypes may have m a_scales. activation: an Activation. allow_tf32: fp32 operands may be rounded to tf32.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, a: Tensor, w: Tensor, d: Tensor, *, c: Tensor | None = None,
                 bias: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0,
                 activation: int = 0, a_scales: Tensor | None = None,
                 w_scales: Tensor | None = None, allow_tf32: bool = False,
                 residual: bool = False, gated: bool = False, interleaved: bool = False) -> None:
        self._set(a, w, d, c, bias, alpha, beta, activation, a_scales, w_scales,
                  gemm_flags(allow_tf32, residual, gated, interleaved))

    def _set(self, a: Tensor, w: Tensor, d: Tensor, c: Tensor | None, bias: Tensor | None,
             alpha: float, beta: float, activation: int, a_scales: Tensor | None,
             w_scales: Tensor | None, flags: int) -> None:
        """What __init__ does; Queue.gemm calls it without the cost of keywords."""
        m, k, lda, batch_a, stride_a, _ = a._matrix or _matrix("a", a)
        n, k_w, ldw, batch_w, stride_w, _ = w._matrix or _matrix("w", w)
        m_d, n_d, ldd, batch, stride_d, _ = d._matrix or _matrix("d", d)
        gated = flags & _abi.GEMM_GATED
        if k != k_w or m != m_d or n != (2 * n_d if gated else n_d):
            wanted = "(m, n / 2), since the product is gated" if gated else "(m, n)"
            raise InvalidArgument(f"a is {a.shape}, w is {w.shape} and d is {d.shape}; they must "
                                  f"be (m, k), (n, k) and {wanted}")
        ldc = stride_c = 0
        if c is not None:
            m_c, n_c, ldc, batch_c, stride_c, _ = _matrix("c", c)
            if m_c != m or n_c != n:
                raise InvalidArgument(f"c is {c.shape}; it must be (m, n) = {(m, n)}")
            stride_c = _batch_stride("c", batch_c, stride_c, batch)
        if batch or batch_a or batch_w:
            stride_a = _batch_stride("a", batch_a, stride_a, batch)
            stride_w = _batch_stride("w", batch_w, stride_w, batch)
        if bias is not None and (bias.shape != (n,) or not bias.contiguous):
            raise InvalidArgument(f"bias has shape {bias.shape} and strides {bias.strides}; it "
                                  f"must be ({n},) without gaps")
        kind = a.dtype
        if not (kind is w.dtype is d.dtype and kind is not Dtype.FP8_E4M3 and c is bias is None):
            _check_dtypes(a, w, d, c, bias)
        if a_scales is not None:
            flags |= _scales("a_scales", a_scales, m, _abi.GEMM_A_SCALES_PER_ROW,
                             of_all=kind is Dtype.FP8_E4M3)
        if w_scales is not None:
            flags |= _scales("w_scales", w_scales, n, _abi.GEMM_W_SCALES_PER_ROW)
        handle_a, handle_w, handle_d = a.buffer._handle, w.buffer._handle, d.buffer._handle
        handles = [handle_a, handle_w, handle_d]
        self._struct = packed = _abi.concert_gemm()
        try:
            # All fields at once: one by one takes twice as long. `_value_` because struct takes
            # plain numbers three times as fast as enums.
            _GEMM.pack_into(
                packed, 0, _GEMM_BYTES, m, n, k, batch, kind._value_, activation, flags,
                handle_a.value or _closed(handle_a), a.offset,
                handle_w.value or _closed(handle_w), w.offset,
                *(_NONE if c is None else _slice(c, handles)),
                handle_d.value or _closed(handle_d), d.offset,
                *(_NONE if bias is None else _slice(bias, handles)), lda, ldw, ldc, ldd,
                stride_a, stride_w, stride_c, stride_d, alpha, beta,
                *(_NONE if a_scales is None else _slice(a_scales, handles)),
                *(_NONE if w_scales is None else _slice(w_scales, handles)), d.dtype._value_)
        except (struct.error, OverflowError) as error:
            if not isinstance(activation, int):
                raise no_kind("activation", activation, Activation) from None
            raise InvalidArgument(
                f"a GEMM of m {m}, n {n}, k {k}, alpha {alpha}, beta {beta}, activation "
                f"{activation}: {error}") from None
        self._address = ctypes.addressof(packed)
        if len(handles) == 3 and handle_a.home is handle_w.home is handle_d.home:
            self._handles, self._home = (handle_a, handle_w, handle_d), handle_a.home
        else:
            self._keep(handles)


def gemm_flags(allow_tf32: bool, residual: bool, gated: bool, interleaved: bool) -> int:
    return ((_abi.GEMM_TF32 if allow_tf32 else 0) | (_abi.GEMM_RESIDUAL if residual else 0) |
            (_abi.GEMM_GATED if gated else 0) |
            (_abi.GEMM_GATE_INTERLEAVED if interleaved else 0))


def _matrix(name: str, tensor: Tensor) -> tuple[int, int, int, int, int, int]:
    """Rows, columns, row stride, batch (0: none), batch stride and dtype: a GEMM's operand but for
    where it is."""
    shape, strides = tensor.shape, tensor.strides
    if len(shape) == 2:
        rows, columns = shape
        batch = batch_stride = 0
    elif len(shape) == 3:
        batch, rows, columns = shape
        if batch == 0:  # which means 1 to the ABI
            raise InvalidArgument(f"{name} has shape {shape}; a batch has at least one member")
        # 0 means "without gaps" to the ABI.
        batch_stride = (strides[0] or _abi.STRIDE_SHARED) if batch > 1 else 0
    else:
        raise InvalidArgument(f"{name} has shape {shape}; it must have 2 dimensions, or 3 with a "
                              "batch")
    if strides[-1] != 1 and columns > 1:
        raise InvalidArgument(f"{name} has strides {strides}; elements of a row must lie side by "
                              "side (stride 1): make it contiguous")
    row_stride = strides[-2] if rows > 1 else 0
    if rows > 1 and row_stride < columns:
        raise InvalidArgument(f"{name} has strides {strides} for shape {shape}; its rows overlap")
    tensor._matrix = rows, columns, row_stride, batch, batch_stride, tensor.dtype._value_
    return tensor._matrix


def _batch_stride(name: str, batch: int, stride: int, batch_of_d: int) -> int:
    if batch == batch_of_d:
        return stride
    if batch == 0:
        return _abi.STRIDE_SHARED
    raise InvalidArgument(f"{name} has a batch of {batch} and d one of {batch_of_d}; they must be "
                          "the same, or the operand has two dimensions")


def _check_dtypes(a: Tensor, w: Tensor, d: Tensor, c: Tensor | None, bias: Tensor | None) -> None:
    if a.dtype != w.dtype:
        raise InvalidArgument(f"a is {a.dtype.name} and w is {w.dtype.name}; they must be the same")
    if a.dtype == Dtype.FP8_E4M3:
        if d.dtype not in (Dtype.BF16, Dtype.FP16):
            raise InvalidArgument(f"d is {d.dtype.name}; of fp8 operands it must be BF16 or FP16")
    elif d.dtype != a.dtype:
        raise InvalidArgument(f"d is {d.dtype.name} and a is {a.dtype.name}; they must be the same")
    for name, tensor in (("c", c), ("bias", bias)):
        if tensor is not None and tensor.dtype != d.dtype:
            raise InvalidArgument(f"{name} is {tensor.dtype.name} and d is {d.dtype.name}; they "
                                  "must be the same")


def _scales(name: str, scales: Tensor, rows: int, flag: int, of_all: bool = True) -> int:
    """The flag where there is a scale for each row. of_all: there may be one for all instead."""
    if scales.dtype != Dtype.FP32 or not scales.contiguous:
        raise InvalidArgument(f"{name} is {scales.dtype.name} with strides {scales.strides}; it "
                              "must be contiguous FP32")
    if scales.size == 1 and of_all:
        return 0
    if scales.shape == (rows,):
        return flag
    wanted = (f"hold one number or ({rows},)" if of_all else
              f"be ({rows},): only fp8 may have one for all rows")
    raise InvalidArgument(f"{name} has shape {scales.shape}; it must {wanted}")


def _slice(tensor: Tensor, handles: list[Handle]) -> tuple[int, int]:
    """Address of the buffer's handle and offset; keeps the handle."""
    handle = tensor.buffer._handle
    handles.append(handle)
    return handle.value or _closed(handle), tensor.offset


_NONE = (0, 0)


def _closed(handle: Handle) -> int:
    raise handle.error()


class Copy(Op):
    """dst = src, byte by byte: two buffers or two contiguous tensors of as many bytes."""

    __slots__ = ()

    def __init__(self, src: Buffer | Tensor, dst: Buffer | Tensor) -> None:
        if src.bytes != dst.bytes:
            raise InvalidArgument(f"src has {src.bytes} bytes and dst {dst.bytes}; they must be "
                                  "the same")
        handles: list[Handle] = []
        op = _abi.concert_copy(struct_size=ctypes.sizeof(_abi.concert_copy), bytes=src.bytes)
        op.src.buffer, op.src.offset = _slice(_dense("src", src), handles)
        op.dst.buffer, op.dst.offset = _slice(_dense("dst", dst), handles)
        self._set_struct(op, handles)


def _dense(name: str, operand: Buffer | Tensor) -> Tensor:
    if isinstance(operand, Buffer):
        # One byte an element: only the range matters.
        return Tensor(operand, 0, (operand.bytes,), None, Dtype.FP8_E4M3)
    if not operand.contiguous:
        raise InvalidArgument(f"{name} has shape {operand.shape} and strides {operand.strides}; "
                              "it must be contiguous")
    return operand


class Communicator(Owner):
    """This rank's place in a group of ranks, from Session.join. Left when closed."""

    def __init__(self, handle: Handle, name: str, rank: int, ranks: int, gpu: int) -> None:
        self._handle = handle
        self.name = name
        self.rank = rank
        self.ranks = ranks
        self.gpu = gpu

    def __repr__(self) -> str:
        return f"Communicator({self.name!r}, rank={self.rank}, ranks={self.ranks}, gpu={self.gpu})"


class Collective(Op):
    """One rank's part of a collective. dst may be src, None means so. Tensors are contiguous.

    Ranks match their collectives by the order in which they submit them.
    """

    __slots__ = ()

    def __init__(self, kind: CollectiveKind, communicator: Communicator,
                 src: Tensor | None = None, dst: Tensor | None = None, *,
                 reduction: Reduction = Reduction.SUM, root: int = 0) -> None:
        kind = kind_of("kind", kind, CollectiveKind)
        op = _abi.concert_collective(struct_size=ctypes.sizeof(_abi.concert_collective), kind=kind,
                                     communicator=communicator._handle.check().value,
                                     reduction=kind_of("reduction", reduction, Reduction))
        handles = [communicator._handle]
        if kind != CollectiveKind.BARRIER:
            if src is None:
                raise InvalidArgument(f"src is None; {kind.name.lower()} needs a tensor")
            dst = src if dst is None else dst
            op.count = _count(kind, communicator.ranks, src, dst)
            op.dtype = src.dtype
            op.src.buffer, op.src.offset = _slice(_dense("src", src), handles)
            op.dst.buffer, op.dst.offset = _slice(_dense("dst", dst), handles)
        if not 0 <= root < max(communicator.ranks, 1):
            raise InvalidArgument(f"root is {root}; it must be below {communicator.ranks}")
        op.root = root
        self._struct = op
        self._address = ctypes.addressof(op)
        self._keep(handles)


def _count(kind: CollectiveKind, ranks: int, src: Tensor, dst: Tensor) -> int:
    """What the ABI calls `count`, after a look at both sizes."""
    if src.dtype != dst.dtype:
        raise InvalidArgument(f"src is {src.dtype.name} and dst is {dst.dtype.name}; they must be "
                              "the same")
    wanted = src.size
    if kind == CollectiveKind.ALL_GATHER:
        wanted = src.size * ranks
    elif kind == CollectiveKind.REDUCE_SCATTER:
        wanted = src.size // ranks
    divides = kind not in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL)
    if dst.size != wanted or not (divides or src.size % ranks == 0):
        raise InvalidArgument(f"{kind.name.lower()} of {ranks} ranks: src has {src.size} elements "
                              f"and dst {dst.size}")
    if kind == CollectiveKind.ALL_TO_ALL:
        return src.size // ranks
    return dst.size if kind == CollectiveKind.REDUCE_SCATTER else src.size

"""Ops whose rows are computed each for itself."""

from __future__ import annotations

import ctypes

from . import _abi
from ._abi import Activation
from ._errors import InvalidArgument
from ._handles import Handle
from ._ops import Op, _matrix, _slice
from ._tensor import Tensor


class RmsNorm(Op):
    """out[r,c] = weight[c] * x[r,c] / sqrt(mean(x[r,:]^2) + epsilon), each row in fp32.

    With a residual, residual = x + residual first, rounded and written back, and that is what is
    normalised. out may be x. cast_first: the normalised row is rounded to the dtype before it is
    multiplied by the weight, as Llama's models do.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, x: Tensor, weight: Tensor, out: Tensor, *, residual: Tensor | None = None,
                 epsilon: float = 1e-6, cast_first: bool = False) -> None:
        rows, columns, x_stride = _rows("x", x)
        handles: list[Handle] = []
        op = _abi.concert_rms_norm(
            struct_size=ctypes.sizeof(_abi.concert_rms_norm), rows=rows, columns=columns,
            dtype=x.dtype, flags=_abi.RMS_NORM_CAST_FIRST if cast_first else 0, epsilon=epsilon,
            x_stride=x_stride, out_stride=_stride_like("out", out, "x", x))
        if weight.shape != (columns,) or not weight.contiguous:
            raise InvalidArgument(f"weight has shape {weight.shape} and strides {weight.strides}; "
                                  f"it must be ({columns},) without gaps")
        _same_dtype("weight", weight, "x", x)
        op.x.buffer, op.x.offset = _slice(x, handles)
        op.weight.buffer, op.weight.offset = _slice(weight, handles)
        op.out.buffer, op.out.offset = _slice(out, handles)
        if residual is not None:
            op.residual_stride = _stride_like("residual", residual, "x", x)
            op.residual.buffer, op.residual.offset = _slice(residual, handles)
        self._struct = op
        self._address = ctypes.addressof(op)
        self._keep(handles)


class GatedActivation(Op):
    """out[r,c] = act(gate[r,c]) * up[r,c], computed in fp32 and rounded once.

    A row of x has twice as many elements as one of out: all of gate and then all of up, or, with
    interleaved, one of each by turns. activation: SILU or GELU.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, x: Tensor, out: Tensor, *, activation: Activation = Activation.SILU,
                 interleaved: bool = False) -> None:
        rows, columns, out_stride = _rows("out", out)
        rows_x, columns_x, x_stride = _rows("x", x)
        if (rows_x, columns_x) != (rows, 2 * columns):
            raise InvalidArgument(f"x is {x.shape} and out is {out.shape}; x must be "
                                  f"{(rows, 2 * columns)}")
        _same_dtype("out", out, "x", x)
        handles: list[Handle] = []
        op = _abi.concert_gated_activation(
            struct_size=ctypes.sizeof(_abi.concert_gated_activation), rows=rows, columns=columns,
            dtype=x.dtype, activation=Activation(activation),
            flags=_abi.GATED_INTERLEAVED if interleaved else 0, x_stride=x_stride,
            out_stride=out_stride)
        op.x.buffer, op.x.offset = _slice(x, handles)
        op.out.buffer, op.out.offset = _slice(out, handles)
        self._struct = op
        self._address = ctypes.addressof(op)
        self._keep(handles)


def _rows(name: str, tensor: Tensor) -> tuple[int, int, int]:
    """Rows, columns and row stride."""
    rows, columns, row_stride, batch, _, _ = _matrix(name, tensor)
    if batch:
        raise InvalidArgument(f"{name} has shape {tensor.shape}; it must have 2 dimensions")
    return rows, columns, row_stride


def _stride_like(name: str, tensor: Tensor, other_name: str, other: Tensor) -> int:
    """The row stride of `tensor`, which has the shape and dtype of `other`."""
    if tensor.shape != other.shape:
        raise InvalidArgument(f"{name} is {tensor.shape} and {other_name} is {other.shape}; they "
                              "must be the same")
    _same_dtype(name, tensor, other_name, other)
    return _rows(name, tensor)[2]


def _same_dtype(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.dtype != other.dtype:
        raise InvalidArgument(f"{name} is {tensor.dtype.name} and {other_name} is "
                              f"{other.dtype.name}; they must be the same")

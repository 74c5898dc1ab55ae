"""Ops whose rows are computed each for itself."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _abi
from ._abi import Activation, Dtype, ElementwiseFunction
from ._arguments import kind_of
from ._errors import InvalidArgument
from ._handles import Handle
from ._ops import Op, _matrix, _slice
from ._tensor import Tensor, _unsigned


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
        handles: list[Handle] = []
        op = _abi.concert_rms_norm(
            struct_size=ctypes.sizeof(_abi.concert_rms_norm), epsilon=epsilon,
            flags=_abi.RMS_NORM_CAST_FIRST if cast_first else 0)
        _set_norm(op, x, weight, out, residual, handles)
        self._set_struct(op, handles)


class LayerNorm(Op):
    """out[r,c] = weight[c] * (x[r,c] - mean) / sqrt(variance + epsilon) + bias[c], rows in fp32.

    With a residual, residual = x + residual first, rounded and written back, and that is what is
    normalised. out may be x.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, x: Tensor, weight: Tensor, out: Tensor, *, bias: Tensor | None = None,
                 residual: Tensor | None = None, epsilon: float = 1e-5) -> None:
        handles: list[Handle] = []
        op = _abi.concert_layer_norm(struct_size=ctypes.sizeof(_abi.concert_layer_norm),
                                     epsilon=epsilon)
        _set_norm(op, x, weight, out, residual, handles)
        if bias is not None:
            _check_vector("bias", bias, x.shape[1], x.dtype)
            op.bias.buffer, op.bias.offset = _slice(bias, handles)
        self._set_struct(op, handles)


def _set_norm(op: Any, x: Tensor, weight: Tensor, out: Tensor, residual: Tensor | None,
              handles: list[Handle]) -> None:
    """What the structs of norms have in common."""
    op.rows, op.columns, op.x_stride = _rows("x", x)
    op.dtype = x.dtype
    op.out_stride = _stride_like("out", out, "x", x)
    _check_vector("weight", weight, x.shape[1], x.dtype)
    op.x.buffer, op.x.offset = _slice(x, handles)
    op.weight.buffer, op.weight.offset = _slice(weight, handles)
    op.out.buffer, op.out.offset = _slice(out, handles)
    if residual is not None:
        op.residual_stride = _stride_like("residual", residual, "x", x)
        op.residual.buffer, op.residual.offset = _slice(residual, handles)


def _check_vector(name: str, tensor: Tensor, elements: int, dtype: Dtype) -> None:
    """That it has so many elements, without gaps, of that dtype."""
    if tensor.shape != (elements,) or not tensor.contiguous:
        raise InvalidArgument(f"{name} has shape {tensor.shape} and strides {tensor.strides}; "
                              f"it must be ({elements},) without gaps")
    _check_dtype(name, tensor, dtype)


def _check_dtype(name: str, tensor: Tensor, dtype: Dtype) -> None:
    if tensor.dtype != dtype:
        raise InvalidArgument(f"{name} is {tensor.dtype.name}; it must be {dtype.name}")


class Elementwise(Op):
    """out = x + y, x * y or, without y, x in out's dtype, in fp32 and rounded once.

    y may be one row for all: of shape (columns,). out may be x or y.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, function: ElementwiseFunction, x: Tensor, y: Tensor | None,
                 out: Tensor) -> None:
        rows, columns, x_stride = _rows("x", x)
        if out.shape != x.shape:
            raise InvalidArgument(f"out is {out.shape} and x is {x.shape}; they must be the same")
        handles: list[Handle] = []
        op = _abi.concert_elementwise(
            struct_size=ctypes.sizeof(_abi.concert_elementwise),
            function=kind_of("function", function, ElementwiseFunction), rows=rows,
            columns=columns, dtype=x.dtype, out_dtype=out.dtype, x_stride=x_stride,
            out_stride=_rows("out", out)[2])
        if y is not None:
            if y.shape == (columns,):
                _check_vector("y", y, columns, x.dtype)
                op.y_stride = _abi.STRIDE_SHARED
            else:
                op.y_stride = _stride_like("y", y, "x", x)
            op.y.buffer, op.y.offset = _slice(y, handles)
        op.x.buffer, op.x.offset = _slice(x, handles)
        op.out.buffer, op.out.offset = _slice(out, handles)
        self._set_struct(op, handles)


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
            dtype=x.dtype, activation=kind_of("activation", activation, Activation),
            flags=_abi.GATED_INTERLEAVED if interleaved else 0, x_stride=x_stride,
            out_stride=out_stride)
        op.x.buffer, op.x.offset = _slice(x, handles)
        op.out.buffer, op.out.offset = _slice(out, handles)
        self._set_struct(op, handles)


class Embedding(Op):
    """out[r,:] = table[ids[r],:]; a row of zeros where the id is below 0.

    ids: INT32 or INT64, read when the op runs; one beyond the table is taken for its last row.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, ids: Tensor, table: Tensor, out: Tensor) -> None:
        rows, columns, out_stride = _rows("out", out)
        vocabulary, columns_of_table, table_stride = _rows("table", table)
        if columns_of_table != columns:
            raise InvalidArgument(f"table is {table.shape} and out is {out.shape}; their rows must "
                                  "have as many elements")
        _same_dtype("out", out, "table", table)
        handles: list[Handle] = []
        op = _abi.concert_embedding(
            struct_size=ctypes.sizeof(_abi.concert_embedding), rows=rows, columns=columns,
            vocabulary=vocabulary, dtype=table.dtype,
            index_dtype=_indices("ids", ids, (rows,)), table_stride=table_stride,
            out_stride=out_stride)
        op.ids.buffer, op.ids.offset = _slice(ids, handles)
        op.table.buffer, op.table.offset = _slice(table, handles)
        op.out.buffer, op.out.offset = _slice(out, handles)
        self._set_struct(op, handles)


class Argmax(Op):
    """indices[r] = where x[r,:] is largest, of equals the first; NaN is larger than everything.

    indices: INT32 or INT64.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, x: Tensor, indices: Tensor) -> None:
        rows, columns, x_stride = _rows("x", x)
        handles: list[Handle] = []
        op = _abi.concert_argmax(
            struct_size=ctypes.sizeof(_abi.concert_argmax), rows=rows, columns=columns,
            dtype=x.dtype, index_dtype=_indices("indices", indices, (rows,)), x_stride=x_stride)
        op.x.buffer, op.x.offset = _slice(x, handles)
        op.indices.buffer, op.indices.offset = _slice(indices, handles)
        self._set_struct(op, handles)


class Advance(Op):
    """counters[r] = min(counters[r] + 1, counter_max), in place: positions or lengths.

    counters and slots: (rows,) in INT32 or INT64. Where there are slots, the counter of a row whose
    slot is below 0 stays as it is.

    InvalidArgument: shapes or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, counters: Tensor, counter_max: int, *, slots: Tensor | None = None) -> None:
        if len(counters.shape) != 1:
            raise InvalidArgument(f"counters has shape {counters.shape}; it must have 1 dimension")
        handles: list[Handle] = []
        op = _abi.concert_advance(
            struct_size=ctypes.sizeof(_abi.concert_advance), rows=counters.shape[0],
            counter_max=_unsigned("counter_max", counter_max, 32),
            counter_dtype=_indices("counters", counters, counters.shape))
        op.counters.buffer, op.counters.offset = _slice(counters, handles)
        if slots is not None:
            op.slot_dtype = _indices("slots", slots, counters.shape)
            op.slots.buffer, op.slots.offset = _slice(slots, handles)
        self._set_struct(op, handles)


class Quantize(Op):
    """scales[r] = max(|x[r,:]|) / 448 and out[r,:] = x[r,:] / scales[r], in fp32, rounded once.

    out: of x's shape, in FP8_E4M3. scales: (rows,) in FP32. A Gemm takes both as a and a_scales, or
    w and w_scales. A row with a NaN or an infinity becomes NaN, scale and all.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, x: Tensor, out: Tensor, scales: Tensor) -> None:
        rows, columns, x_stride = _rows("x", x)
        if out.shape != x.shape:
            raise InvalidArgument(f"out is {out.shape} and x is {x.shape}; they must be the same")
        _check_dtype("out", out, Dtype.FP8_E4M3)
        _check_vector("scales", scales, rows, Dtype.FP32)
        handles: list[Handle] = []
        op = _abi.concert_quantize(
            struct_size=ctypes.sizeof(_abi.concert_quantize), rows=rows, columns=columns,
            dtype=x.dtype, x_stride=x_stride, out_stride=_rows("out", out)[2])
        for field, tensor in (("x", x), ("out", out), ("scales", scales)):
            operand = getattr(op, field)
            operand.buffer, operand.offset = _slice(tensor, handles)
        self._set_struct(op, handles)


class Sample(Op):
    """indices[r] = a column of row r of x, drawn at random by softmax(x[r,:] / temperature).

    From the top_k largest (0: all), and of these from the fewest largest whose probabilities reach
    top_p. temperature 0: what Argmax gives. The same seed, row and steps[r] (without steps 0) draw
    the same of the same x. Each of temperature (FP32), top_k (INT32), top_p (FP32) and seed (INT64)
    may be a tensor of one for each row, which is read when the op runs; a row with a seed of its
    own draws the same wherever in a batch it stands. indices and steps: (rows,) in INT32 or INT64.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, x: Tensor, indices: Tensor, *, temperature: float | Tensor = 1.0,
                 top_k: int | Tensor = 0, top_p: float | Tensor = 1.0, seed: int | Tensor = 0,
                 steps: Tensor | None = None) -> None:
        rows, columns, x_stride = _rows("x", x)
        handles: list[Handle] = []
        op = _abi.concert_sample(
            struct_size=ctypes.sizeof(_abi.concert_sample), rows=rows, columns=columns,
            dtype=x.dtype, index_dtype=_indices("indices", indices, (rows,)), x_stride=x_stride)
        # With how many bits of an integer the struct has of it.
        parameters: tuple[tuple[str, Any, Dtype, int], ...] = (
            ("temperature", temperature, Dtype.FP32, 0), ("top_k", top_k, Dtype.INT32, 32),
            ("top_p", top_p, Dtype.FP32, 0), ("seed", seed, Dtype.INT64, 64))
        for field, value, dtype, bits in parameters:
            if isinstance(value, Tensor):
                _check_vector(field, value, rows, dtype)
                operand = getattr(op, f"{field}s")
                operand.buffer, operand.offset = _slice(value, handles)
            else:
                setattr(op, field, _unsigned(field, value, bits) if bits else value)
        if steps is not None:
            op.step_dtype = _indices("steps", steps, (rows,))
            op.steps.buffer, op.steps.offset = _slice(steps, handles)
        op.x.buffer, op.x.offset = _slice(x, handles)
        op.indices.buffer, op.indices.offset = _slice(indices, handles)
        self._set_struct(op, handles)


class RopeAppend(Op):
    """Rotates q, in place, and k by each row's position, and writes k and v to its slot.

    q: (rows, q_heads * head_dim); k and v: (rows, kv_heads * head_dim); all may be columns of one
    tensor. k_cache and v_cache: (pages, page_size, kv_heads, head_dim), or with heads_first (pages,
    kv_heads, page_size, head_dim). cos_sin: (positions, rotary_dim) in FP32, in each row cosines
    and then sines. positions and slots: INT32 or INT64, read when the op runs; a slot is page *
    page_size + token, below 0 for a row that the cache gets nothing of. interleaved: elements 2i
    and 2i + 1 of a head are rotated together, not i and i + rotary_dim / 2.

    The cache has the dtype of q, k and v or is FP8_E4M3. That gets k / k_scale and v / v_scale,
    rounded once; what is beyond 448 becomes 448. Attention needs the same scales.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, slots: Tensor,
                 cos_sin: Tensor, k_cache: Tensor, v_cache: Tensor, *, heads_first: bool = False,
                 interleaved: bool = False, k_scale: float = 1.0, v_scale: float = 1.0) -> None:
        handles: list[Handle] = []
        op = _abi.concert_rope_append(
            struct_size=ctypes.sizeof(_abi.concert_rope_append), dtype=q.dtype,
            flags=_abi.ROPE_INTERLEAVED if interleaved else 0)
        op.kv_heads, op.head_dim = _set_cache(op.cache, k_cache, v_cache, heads_first, handles)
        op.rows, columns, op.q_stride = _rows("q", q)
        op.q_heads = _heads("q", columns, op.head_dim)
        rows_k, columns_k, op.k_stride = _rows("k", k)
        op.v_stride = _stride_like("v", v, "k", k)
        if (rows_k, columns_k) != (op.rows, op.kv_heads * op.head_dim):
            raise InvalidArgument(f"k is {k.shape}; it must be "
                                  f"{(op.rows, op.kv_heads * op.head_dim)}")
        op.positions_max, op.rotary_dim, _ = _rows("cos_sin", cos_sin)
        if cos_sin.dtype != Dtype.FP32 or not cos_sin.contiguous:
            raise InvalidArgument(f"cos_sin is {cos_sin.dtype.name} with strides "
                                  f"{cos_sin.strides}; it must be contiguous FP32")
        _same_dtype("k", k, "q", q)
        _set_cache_elements(op, k_cache, q, k_scale, v_scale)
        op.position_dtype = _indices("positions", positions, (op.rows,))
        op.slot_dtype = _indices("slots", slots, (op.rows,))
        for field, tensor in (("q", q), ("k", k), ("v", v), ("positions", positions),
                              ("slots", slots), ("cos_sin", cos_sin)):
            operand = getattr(op, field)
            operand.buffer, operand.offset = _slice(tensor, handles)
        self._set_struct(op, handles)


class AttentionDecode(Op):
    """Attention of one token of each sequence over what the cache holds of it.

    q and out: (rows, q_heads * head_dim); k_cache and v_cache as RopeAppend's. lengths: (rows,) in
    INT32. page_table: (rows, pages) in INT32, which page holds tokens i * page_size and the next of
    a sequence; without it sequence r has page r. Both are read when the op runs; a row of length 0
    becomes zeros. length_max: what longer lengths are taken for, by default what a row's pages
    hold; give what the longest has, since the op is expected to cost that much. scale: by default
    1 / sqrt(head_dim). window: only the last so many tokens count; 0: all. soft_cap: scores s are
    soft_cap * tanh(s / soft_cap); 0: s. k_scale and v_scale: what a cache in FP8_E4M3 is times.

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, out: Tensor, *,
                 page_table: Tensor | None = None, length_max: int | None = None,
                 scale: float | None = None, window: int = 0, soft_cap: float = 0,
                 heads_first: bool = False, k_scale: float = 1.0, v_scale: float = 1.0) -> None:
        handles: list[Handle] = []
        op = _abi.concert_attention_decode(
            struct_size=ctypes.sizeof(_abi.concert_attention_decode), dtype=q.dtype, window=window,
            soft_cap=soft_cap, rows=_rows("q", q)[0])
        op.kv_heads, op.head_dim = _set_cache(op.cache, k_cache, v_cache, heads_first, handles)
        _set_attention(op, q, lengths, out, op.rows, page_table, length_max, scale, handles)
        _set_cache_elements(op, k_cache, q, k_scale, v_scale)
        self._set_struct(op, handles)


class AttentionPrefill(Op):
    """Attention of a chunk of new tokens of each sequence over what the cache holds, they included.

    As AttentionDecode, but q and out have a row for each token: rows query_starts[s] to
    query_starts[s + 1] - 1 are the chunk of sequence s, and rows of none stay as they are. Row i of
    a chunk of n attends to the first lengths[s] - n + i + 1 tokens of its sequence. query_starts:
    (sequences + 1,) in INT32, read when the op runs. lengths: (sequences,); page_table:
    (sequences, pages).

    InvalidArgument: shapes, strides or dtypes do not fit. The daemon checks the rest when it runs.
    """

    __slots__ = ()

    def __init__(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, query_starts: Tensor,
                 lengths: Tensor, out: Tensor, *, page_table: Tensor | None = None,
                 length_max: int | None = None, scale: float | None = None, window: int = 0,
                 soft_cap: float = 0, heads_first: bool = False, k_scale: float = 1.0,
                 v_scale: float = 1.0) -> None:
        if len(lengths.shape) != 1:
            raise InvalidArgument(f"lengths has shape {lengths.shape}; it must have 1 dimension")
        handles: list[Handle] = []
        op = _abi.concert_attention_prefill(
            struct_size=ctypes.sizeof(_abi.concert_attention_prefill), dtype=q.dtype, window=window,
            soft_cap=soft_cap, tokens=_rows("q", q)[0], sequences=lengths.shape[0])
        op.kv_heads, op.head_dim = _set_cache(op.cache, k_cache, v_cache, heads_first, handles)
        _set_attention(op, q, lengths, out, op.sequences, page_table, length_max, scale, handles)
        _set_cache_elements(op, k_cache, q, k_scale, v_scale)
        _check_vector("query_starts", query_starts, op.sequences + 1, Dtype.INT32)
        op.query_starts.buffer, op.query_starts.offset = _slice(query_starts, handles)
        self._set_struct(op, handles)


def _set_attention(op: Any, q: Tensor, lengths: Tensor, out: Tensor, sequences: int,
                   page_table: Tensor | None, length_max: int | None, scale: float | None,
                   handles: list[Handle]) -> None:
    """What the structs of attention have in common but for the cache, which is filled in."""
    _, columns, op.q_stride = _rows("q", q)
    op.q_heads = _heads("q", columns, op.head_dim)
    op.out_stride = _stride_like("out", out, "q", q)
    _check_vector("lengths", lengths, sequences, Dtype.INT32)
    pages = 1
    if page_table is not None:
        rows, pages, op.table_stride = _rows("page_table", page_table)
        if rows != sequences:
            raise InvalidArgument(f"page_table is {page_table.shape}; it must have {sequences} "
                                  "rows")
        _check_dtype("page_table", page_table, Dtype.INT32)
        op.table_stride = op.table_stride or pages
        op.page_table.buffer, op.page_table.offset = _slice(page_table, handles)
    op.length_max = pages * op.cache.page_size if length_max is None else length_max
    op.scale = op.head_dim**-0.5 if scale is None else scale
    for field, tensor in (("q", q), ("lengths", lengths), ("out", out)):
        operand = getattr(op, field)
        operand.buffer, operand.offset = _slice(tensor, handles)


def _set_cache(cache: Any, k: Tensor, v: Tensor, heads_first: bool,
               handles: list[Handle]) -> tuple[int, int]:
    """Fills in the struct of a cache. How many heads it has and how long they are."""
    if len(k.shape) != 4 or k.strides[3] != 1:
        raise InvalidArgument(f"k_cache has shape {k.shape} and strides {k.strides}; it must have "
                              "4 dimensions, of which the last has no gaps")
    if v.shape != k.shape or v.strides != k.strides:
        raise InvalidArgument(f"v_cache has shape {v.shape} and strides {v.strides}; they must be "
                              f"those of k_cache, {k.shape} and {k.strides}")
    _same_dtype("v_cache", v, "k_cache", k)
    token, head = (2, 1) if heads_first else (1, 2)
    cache.pages, cache.page_size = k.shape[0], k.shape[token]
    cache.page_stride, cache.token_stride = k.strides[0], k.strides[token]
    cache.head_stride = k.strides[head]
    cache.k.buffer, cache.k.offset = _slice(k, handles)
    cache.v.buffer, cache.v.offset = _slice(v, handles)
    return k.shape[head], k.shape[3]


def _set_cache_elements(op: Any, k_cache: Tensor, q: Tensor, k_scale: float,
                        v_scale: float) -> None:
    if k_cache.dtype not in (q.dtype, Dtype.FP8_E4M3):
        raise InvalidArgument(f"k_cache is {k_cache.dtype.name} and q is {q.dtype.name}; it must "
                              "be the same or FP8_E4M3")
    op.cache_dtype, op.k_scale, op.v_scale = k_cache.dtype, k_scale, v_scale


def _heads(name: str, columns: int, head_dim: int) -> int:
    if head_dim == 0 or columns % head_dim:
        raise InvalidArgument(f"rows of {name} have {columns} elements, which are no heads of "
                              f"{head_dim}")
    return columns // head_dim


def _indices(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Dtype:
    """Their dtype, of numbers without gaps that say where something lies."""
    if tensor.shape != shape or not tensor.contiguous:
        raise InvalidArgument(f"{name} has shape {tensor.shape} and strides {tensor.strides}; it "
                              f"must be {shape} without gaps")
    if tensor.dtype not in (Dtype.INT32, Dtype.INT64):
        raise InvalidArgument(f"{name} is {tensor.dtype.name}; it must be INT32 or INT64")
    return tensor.dtype


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

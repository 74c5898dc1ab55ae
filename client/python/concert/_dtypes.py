"""Element types, and what numpy calls them. numpy is needed only where arrays come in or go out."""

from __future__ import annotations

from typing import Any, Union

from ._abi import Dtype
from ._errors import FailedPrecondition, InvalidArgument

DtypeLike = Union[Dtype, str, Any]

SIZES = {Dtype.BF16: 2, Dtype.FP16: 2, Dtype.FP32: 4, Dtype.FP8_E4M3: 1,
         Dtype.INT32: 4, Dtype.INT64: 8}

# What numpy, ml_dtypes and torch call them.
_NAMES = {
    "bf16": Dtype.BF16, "bfloat16": Dtype.BF16,
    "fp16": Dtype.FP16, "float16": Dtype.FP16,
    "fp32": Dtype.FP32, "float32": Dtype.FP32,
    "fp8": Dtype.FP8_E4M3, "fp8_e4m3": Dtype.FP8_E4M3, "float8_e4m3fn": Dtype.FP8_E4M3,
    "int32": Dtype.INT32, "int64": Dtype.INT64,
}

# Of those that numpy itself has.
_NUMPY_NAMES = {Dtype.FP16: "float16", Dtype.FP32: "float32", Dtype.INT32: "int32",
                Dtype.INT64: "int64"}

# DLPack's code of the kind and the bits.
DLPACK = {Dtype.BF16: (4, 16), Dtype.FP16: (2, 16), Dtype.FP32: (2, 32), Dtype.FP8_E4M3: (10, 8),
          Dtype.INT32: (0, 32), Dtype.INT64: (0, 64)}


def dtype_of(dtype: DtypeLike) -> Dtype:
    """A Dtype from one, its name, or a dtype of numpy, ml_dtypes or torch."""
    if isinstance(dtype, Dtype):
        return dtype
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if name is None:
        name = getattr(dtype, "__name__", None) or str(dtype).removeprefix("torch.")
    if name in _NAMES:
        return _NAMES[name]
    raise InvalidArgument(f"dtype is {name}; it must be one of bf16, fp16, fp32, fp8_e4m3, "
                          "int32 and int64")


def numpy() -> Any:
    """The module numpy, which only arrays need."""
    try:
        import numpy as module
    except ImportError:
        raise FailedPrecondition("numpy is not installed; arrays need it: pip install numpy, or "
                                 "use Buffer.write and Buffer.read with bytes") from None
    return module


def numpy_dtype(dtype: Dtype) -> Any:
    """What views have. bf16 is uint16 and fp8 uint8 unless ml_dtypes is installed."""
    if dtype in _NUMPY_NAMES:
        return numpy().dtype(_NUMPY_NAMES[dtype])
    try:
        import ml_dtypes
    except ImportError:
        return numpy().dtype("uint16" if dtype == Dtype.BF16 else "uint8")
    return numpy().dtype(ml_dtypes.bfloat16 if dtype == Dtype.BF16 else ml_dtypes.float8_e4m3fn)


def to_bf16(array: Any) -> Any:
    """Rounds a float array to bf16, to nearest and ties to even. Returns the bits as uint16."""
    np = numpy()
    floats = np.ascontiguousarray(array, dtype=np.float32)
    bits = floats.view(np.uint32)
    upper = bits >> np.uint32(16)
    rounded = (bits + (upper & np.uint32(1)) + np.uint32(0x7FFF)) >> np.uint32(16)
    # A NaN keeps its upper bits and stays one.
    return np.where(np.isnan(floats), upper | np.uint32(0x40), rounded).astype(np.uint16)


def from_bf16(array: Any) -> Any:
    """float32 numbers from bf16 bits (uint16, or ml_dtypes' bfloat16)."""
    np = numpy()
    bits = np.ascontiguousarray(array).view(np.uint16)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def host_array(array: Any, dtype: Dtype) -> Any:
    """`array` as contiguous numpy elements of `dtype`; refuses what it would have to guess."""
    np = numpy()
    given = np.asarray(array)
    wanted = numpy_dtype(dtype)
    if given.dtype == wanted:
        return np.ascontiguousarray(given)
    bits = np.dtype(f"uint{8 * SIZES[dtype]}")
    if dtype in (Dtype.BF16, Dtype.FP8_E4M3) and given.dtype == bits:
        return np.ascontiguousarray(given)
    if dtype == Dtype.BF16 and given.dtype in (np.float16, np.float32, np.float64):
        return to_bf16(given)
    if dtype in (Dtype.FP16, Dtype.FP32) and given.dtype.kind == "f":
        return np.ascontiguousarray(given, dtype=wanted)
    if dtype in (Dtype.INT32, Dtype.INT64) and np.can_cast(given.dtype, np.int64):
        converted = np.ascontiguousarray(given, dtype=wanted)
        if np.array_equal(converted, given):
            return converted
    raise InvalidArgument(f"an array of {given.dtype} cannot become {dtype.name}; "
                          f"convert it to {wanted} yourself")

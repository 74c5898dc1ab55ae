"""The little that this package asks of CUDA: which ordinal of this process is which GPU.

The daemon numbers GPUs by itself, and CUDA_VISIBLE_DEVICES may hide or permute them here, so the
UUID decides.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from ._errors import FailedPrecondition, InvalidArgument


@lru_cache(maxsize=1)
def uuids() -> tuple[bytes, ...]:
    """UUIDs of the GPUs that this process sees, by ordinal. FailedPrecondition without libcuda."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise FailedPrecondition(f"cannot open libcuda.so.1: {error}") from None
    count = ctypes.c_int()
    _check(cuda, "cuInit", 0)
    _check(cuda, "cuDeviceGetCount", ctypes.byref(count))
    return tuple(_uuid(cuda, ordinal) for ordinal in range(count.value))


def _uuid(cuda: Any, ordinal: int) -> bytes:
    device = ctypes.c_int()
    uuid = (ctypes.c_uint8 * 16)()
    _check(cuda, "cuDeviceGet", ctypes.byref(device), ordinal)
    _check(cuda, "cuDeviceGetUuid", uuid, device)
    return bytes(uuid)


def _check(cuda: Any, name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        raise FailedPrecondition(f"{name} failed with CUDA error {code}")


def ordinal_of(uuid: bytes) -> int:
    """This process's number of a GPU of the daemon's."""
    if uuid not in uuids():
        raise FailedPrecondition(f"this process does not see the GPU with UUID {uuid.hex()}; "
                                 "check CUDA_VISIBLE_DEVICES")
    return uuids().index(uuid)


def uuid_of(ordinal: int) -> bytes:
    """The UUID of this process's CUDA device `ordinal`."""
    if not 0 <= ordinal < len(uuids()):
        raise InvalidArgument(f"CUDA device {ordinal} does not exist here; there are "
                              f"{len(uuids())}")
    return uuids()[ordinal]


def ordinal_of_pointer(pointer: int) -> int:
    """This process's number of the device whose memory it points to."""
    uuids()  # initialises CUDA
    ordinal = ctypes.c_int()
    attribute = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    _check(ctypes.CDLL("libcuda.so.1"), "cuPointerGetAttribute", ctypes.byref(ordinal), attribute,
           ctypes.c_uint64(pointer))
    return ordinal.value


def stream_handle(stream: Any) -> int:
    """The CUstream of a stream of PyTorch, CuPy, Numba, of cuda.core, or the number itself."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        pair = stream.__cuda_stream__
        return int((pair() if callable(pair) else pair)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        value = getattr(value, "value", value)
        if isinstance(value, int):
            return value
    raise InvalidArgument(f"a {type(stream).__name__} is no CUDA stream; give a stream of PyTorch, "
                          "CuPy or Numba, or its address as a number")

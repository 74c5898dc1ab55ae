"""The little that this package asks of CUDA: which ordinal of this process is which GPU, and which
stream is which.

The daemon numbers GPUs by itself, and CUDA_VISIBLE_DEVICES may hide or permute them here, so the
UUID decides.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any, Hashable

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


class _Thread(threading.local):
    """A key for each thread. Their numbers are given out again."""

    def __init__(self) -> None:
        self.key = object()


_thread = _Thread()


def stream_key(handle: int) -> Hashable:
    """What tells a stream from all others of this process.

    Its handle, but for default streams: 0 and 1 are the current context's, 2 is this thread's there.
    """
    if handle > 2:
        return handle
    return handle, _current_context(), _thread.key if handle == 2 else None


def _current_context() -> int:
    """This thread's CUcontext. 0: it has none, which the library says when it uses the stream."""
    get = _context_getter()
    context = ctypes.c_void_p()
    if get is None or get(ctypes.byref(context)):
        return 0
    return context.value or 0


@lru_cache(maxsize=1)
def _context_getter() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent
    except OSError:
        return None

"""Exchange with other array libraries: DLPack and __cuda_array_interface__, both ways.

Only addresses go to and fro. Nobody waits for anybody's ops or streams here: that is what
Ticket.wait(stream) and Queue.after(stream) are for.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _cuda
from ._abi import Backend, Dtype
from ._dtypes import DLPACK, dtype_of
from ._errors import InvalidArgument

if TYPE_CHECKING:
    from ._tensor import Tensor

CPU, CUDA = 1, 2
_DEVICE_NAMES = {CPU: "the host", CUDA: "a CUDA device", 3: "pinned memory of the host",
                 10: "a ROCm device", 13: "managed memory"}
_TYPESTRS = {Dtype.FP16: "<f2", Dtype.FP32: "<f4", Dtype.INT32: "<i4", Dtype.INT64: "<i8"}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("tensor", _DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_NAME = b"dltensor"
_api = ctypes.PyDLL(None)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))

# What exported tensors need, by the address of their struct, until their consumers are done.
_exported: dict[int, Any] = {}
# Capsules, each with its struct, by the struct's address, that nobody was seen to take so far.
_offered: dict[int, tuple[Any, _DLManagedTensor]] = {}


def _delete(address: int) -> None:
    _exported.pop(address, None)
    _offered.pop(address, None)


# Consumers may call it as long as the process lives, hence never freed.
_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_deleter))


def _references(offer: tuple[Any, Any]) -> int:
    return sys.getrefcount(offer[0])


_OURS_ONLY = _references((object(), None))


def sweep() -> None:
    """Lets go of tensors whose consumers refused them: nobody else holds their capsules any more.

    A destructor of the capsule would do that at once, but it would be Python, and run while the
    consumer's exception is on its way: that one would be lost.
    """
    for address, offer in list(_offered.items()):  # which keeps the addresses from being reused
        if not _is_valid(id(offer[0]), _NAME):
            _offered.pop(address, None)  # renamed: it was taken, and the deleter will be called
        elif _references(offer) == _OURS_ONLY:
            _delete(address)


def device_of(tensor: Tensor) -> tuple[int, int]:
    """The tensor's device as DLPack numbers them: this process's CUDA ordinal, not the daemon's."""
    session, gpu = tensor.buffer.session, tensor.buffer.gpu
    if session.backend == Backend.SIM:
        return CPU, 0
    return CUDA, _cuda.ordinal_of(session.gpus[gpu].uuid)


def export(tensor: Tensor, dl_device: Any, copy: bool | None) -> Any:
    """A DLPack capsule of the tensor's memory."""
    device = device_of(tensor)
    if copy or (dl_device is not None and tuple(dl_device) != device):
        raise BufferError("concert shares memory and makes no copies: ask with copy=None and the "
                          f"tensor's own device {device}")
    rank = len(tensor.shape)
    numbers = ctypes.c_int64 * max(rank, 1)
    shape, strides = numbers(*tensor.shape), numbers(*tensor.strides)
    code, bits = DLPACK[tensor.dtype]
    view = tensor.buffer._view()
    managed = _DLManagedTensor()
    managed.tensor = _DLTensor(tensor.buffer.address + tensor.offset, *device, rank, code, bits, 1,
                               shape, strides, 0)
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    # The view keeps the memory mapped, also when the buffer is closed meanwhile.
    return _offer(managed, shape, strides, view)


def _offer(managed: _DLManagedTensor, *needed: Any) -> Any:
    """A capsule for a consumer; keeps what it needs."""
    address = ctypes.addressof(managed)
    capsule = _new(address, _NAME, None)
    _exported[address] = (managed, *needed)
    _offered[address] = (capsule, managed)
    return capsule


def cuda_array_interface(tensor: Tensor) -> dict[str, Any]:
    """Version 3 of the protocol. AttributeError, which means "has none", where there is none."""
    if tensor.buffer.session.backend == Backend.SIM:
        raise AttributeError("a tensor on a simulated GPU has no __cuda_array_interface__; "
                             "use numpy() or DLPack")
    if tensor.dtype not in _TYPESTRS:
        raise AttributeError(f"__cuda_array_interface__ has no {tensor.dtype.name}; use DLPack")
    size = DLPACK[tensor.dtype][1] // 8
    return {
        "shape": tensor.shape,
        "typestr": _TYPESTRS[tensor.dtype],
        "data": (tensor.buffer.address + tensor.offset, False),
        "strides": tuple(stride * size for stride in tensor.strides),
        "version": 3,
    }


@dataclass
class External:
    """Memory of another library: what an import needs to know, and what keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: Dtype
    ordinal: int | None  # of its CUDA device in this process; None: the protocol does not say
    owner: Any


def describe(array: Any) -> External:
    """Reads an array through DLPack, else __cuda_array_interface__.

    InvalidArgument: it speaks neither, or is not in the memory of a CUDA device.
    """
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(array)
    if hasattr(array, "__cuda_array_interface__"):
        return _from_interface(array, array.__cuda_array_interface__)
    raise InvalidArgument(f"a {type(array).__name__} has neither __dlpack__ nor "
                          "__cuda_array_interface__; Session.array copies from the host")


def _from_dlpack(array: Any) -> External:
    kind, ordinal = (int(number) for number in array.__dlpack_device__())
    if kind != CUDA:
        raise InvalidArgument(
            f"the {type(array).__name__} is in {_DEVICE_NAMES.get(kind, f'DLPack device {kind}')}, "
            "and only memory of a CUDA device can be imported; Session.array makes a copy")
    # -1: no stream has to wait, only the address is of interest.
    capsule = array.__dlpack__(stream=-1)
    address = _pointer_of(id(capsule), _NAME)
    tensor = _DLManagedTensor.from_address(address).tensor
    dtypes = [dtype for dtype, kind in DLPACK.items() if kind == (tensor.code, tensor.bits)]
    if not dtypes or tensor.lanes != 1:
        raise InvalidArgument(f"the {type(array).__name__} has DLPack type {tensor.code} with "
                              f"{tensor.bits} bits; it must be bf16, fp16, fp32, fp8_e4m3, "
                              "int32 or int64")
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else None
    # Not taken over: the capsule itself keeps the memory as long as it lives.
    return External((tensor.data or 0) + tensor.byte_offset, tuple(tensor.shape[:tensor.ndim]),
                    strides, dtypes[0], ordinal, (array, capsule))


def _from_interface(array: Any, interface: dict[str, Any]) -> External:
    typestr = interface["typestr"]
    dtypes = [dtype for dtype, name in _TYPESTRS.items() if name == typestr]
    if not dtypes:
        raise InvalidArgument(f"the {type(array).__name__} has typestr {typestr}; it must be "
                              f"one of {', '.join(_TYPESTRS.values())} (other types: DLPack)")
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    size = int(typestr[2:])
    if strides is not None:
        if any(stride % size for stride in strides):
            raise InvalidArgument(f"strides are {strides}; they must be multiples of {size} bytes")
        strides = tuple(stride // size for stride in strides)
    return External(interface["data"][0], shape, strides, dtype_of(dtypes[0]), None, array)

"""Buffers, which are bytes, and tensors, which are views of them with a shape and a dtype."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import TYPE_CHECKING, Any, Sequence

from . import _dlpack
from ._abi import Backend, Dtype
from ._dtypes import SIZES, DtypeLike, dtype_of, host_array, numpy, numpy_dtype
from ._errors import FailedPrecondition, InvalidArgument
from ._handles import Handle, Owner
from ._library import call

if TYPE_CHECKING:
    from ._session import Session


class _View:
    """Held by what shows a buffer's memory to others: keeps it mapped."""

    __slots__ = ("handle", "__weakref__")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle


class Buffer(Owner):
    """A registered range of memory, made by Session.allocate or imported.

    Unregistered when it is closed and no view of it is left; ops already submitted may still use
    it. Imported memory stays its owner's, who is kept alive as long as the buffer, ops made of it
    and programs that use it.
    """

    def __init__(self, session: Session, handle: Handle, bytes: int, gpu: int) -> None:
        self.session = session
        self.bytes = bytes
        self.gpu = gpu
        self._handle = handle
        self._address = 0
        self._shown: weakref.ref[_View] | None = None

    def __repr__(self) -> str:
        return f"Buffer(bytes={self.bytes}, gpu={self.gpu}{', closed' if self.closed else ''})"

    @property
    def address(self) -> int:
        """Where this process sees it: a host pointer on the simulator, else a device pointer.

        Valid until the buffer is closed; numpy() keeps it valid as long as the array.
        """
        handle = self._handle.check()
        if not self._address:
            address = ctypes.c_void_p()
            call("concert_buffer_address", handle, ctypes.byref(address))
            self._address = address.value or 0
        return self._address

    def write(self, data: Any, offset: int = 0) -> None:
        """Copies host memory (bytes, or a contiguous array) into it and blocks until it is done.

        Not ordered with ops: wait for their tickets first.
        """
        view = memoryview(data)
        if not view.c_contiguous:
            raise InvalidArgument(f"data has strides {view.strides}; make it contiguous first")
        # From read-only memory ctypes takes no address, so that bytes go by themselves.
        flat: Any = (view.tobytes() if view.readonly else
                     (ctypes.c_char * view.nbytes).from_buffer(view))
        call("concert_buffer_write", self._handle.check(), _unsigned("offset", offset),
             ctypes.cast(flat, ctypes.c_void_p), view.nbytes)

    def read(self, offset: int = 0, bytes: int | None = None) -> bytearray:
        """Copies a range, by default to the end, to the host. Blocks; not ordered with ops."""
        handle = self._handle.check()
        count = max(self.bytes - offset, 0) if bytes is None else _unsigned("bytes", bytes)
        # Before memory is made for it.
        if offset < 0 or count > self.bytes - offset:
            raise InvalidArgument(f"{count} bytes at offset {offset} do not fit in the buffer of "
                                  f"{self.bytes} bytes")
        data = bytearray(count)
        if count:
            into = (ctypes.c_char * count).from_buffer(data)
            call("concert_buffer_read", handle, offset, ctypes.cast(into, ctypes.c_void_p), count)
        return data

    def close(self) -> None:
        super().close()
        _dlpack.sweep()

    def seal(self) -> None:
        """For weights, once they are written: its bytes never change again, and the daemon keeps
        equal ones of a user on a GPU in memory once, whichever session sealed them.

        It can be any operand that is only read; an op that would write it fails. It has no memory
        in this process any more: addresses of it are gone, and write and read raise
        FailedPrecondition. Imported memory is its owner's again. Wait for the ops that write it
        first. FailedPrecondition: it is sealed already, a program uses it, or there is an array of
        its memory (numpy(), DLPack). ResourceExhausted: there is no room for the copy.
        Unimplemented: an older daemon, or a local session.
        """
        _dlpack.sweep()
        if self._shown is not None and self._shown() is not None:
            raise FailedPrecondition("there are arrays of the buffer's memory, which sealing takes "
                                     "away; let go of them first")
        call("concert_buffer_seal", self._handle.check())
        self._address = 0
        self._handle.owner = None

    def _view(self) -> _View:
        _dlpack.sweep()
        view = None if self._shown is None else self._shown()
        if view is None:
            view = _View(self._handle.check())
            self._shown = weakref.ref(view)
        return view

    def tensor(self, shape: int | Sequence[int], dtype: DtypeLike, offset: int = 0) -> Tensor:
        """A view from `offset` bytes on, rows without gaps."""
        return Tensor(self, offset, _sizes(shape), None, dtype_of(dtype))


class Tensor:
    """A view of a buffer: rows are elements side by side, as in a row-major matrix.

    Plain data: making one registers nothing. `strides` count elements.
    """

    __slots__ = ("buffer", "offset", "shape", "strides", "dtype", "_matrix")

    # As an operand of a GEMM, found out when it first is one; see _ops.
    _matrix: tuple[int, int, int, int, int, int] | None

    def __init__(self, buffer: Buffer, offset: int, shape: tuple[int, ...],
                 strides: tuple[int, ...] | None, dtype: Dtype) -> None:
        if any(size < 0 for size in shape) or offset < 0:
            raise InvalidArgument(f"shape is {shape} at offset {offset}; neither may be negative")
        if strides is None:
            strides = _dense_strides(shape)
        elif len(strides) != len(shape) or any(stride < 0 for stride in strides):
            raise InvalidArgument(f"strides are {strides} for shape {shape}; give each dimension "
                                  "one that is not negative")
        span = 0 if 0 in shape else 1 + sum((size - 1) * stride
                                            for size, stride in zip(shape, strides))
        if offset + span * SIZES[dtype] > buffer.bytes:
            raise InvalidArgument(
                f"shape {shape} of {dtype.name} at offset {offset} needs "
                f"{offset + span * SIZES[dtype]} bytes; the buffer has {buffer.bytes}")
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self._matrix = None

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype.name}, gpu={self.buffer.gpu})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of its elements, without gaps between rows."""
        return self.size * SIZES[self.dtype]

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie without gaps, in the order of its rows."""
        dense = _dense_strides(self.shape)
        return 0 in self.shape or all(size == 1 or stride == wanted for size, stride, wanted
                                      in zip(self.shape, self.strides, dense))

    def __getitem__(self, index: Any) -> Tensor:
        """A view: integers and slices with positive steps, as of a numpy array."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self.shape):
            raise IndexError(f"{len(indices)} indices for shape {self.shape}")
        offset, shape, strides = 0, [], []
        for size, stride, one in zip(self.shape, self.strides, indices):
            if isinstance(one, slice):
                start, stop, step = one.indices(size)
                if step < 1:
                    raise IndexError(f"a step of {step}; it must be positive")
                offset += start * stride if stop > start else 0
                shape.append(max(0, -(-(stop - start) // step)))
                strides.append(stride * step)
            elif -size <= one < size:
                offset += one % size * stride
            else:
                raise IndexError(f"index {one} for a dimension of {size}")
        rest = len(indices)
        return Tensor(self.buffer, self.offset + offset * SIZES[self.dtype],
                      (*shape, *self.shape[rest:]), (*strides, *self.strides[rest:]), self.dtype)

    def reshape(self, *shape: int) -> Tensor:
        """A view of a contiguous tensor with another shape of as many elements."""
        _require_contiguous("the tensor to reshape", self)
        if math.prod(shape) != self.size:
            raise InvalidArgument(f"shape {self.shape} cannot become {shape}: {self.size} "
                                  f"elements, not {math.prod(shape)}")
        return Tensor(self.buffer, self.offset, shape, None, self.dtype)

    def write(self, array: Any) -> None:
        """Copies an array of the same shape into it and blocks until it is done.

        Floats are rounded to fp32, fp16 and bf16. Not ordered with ops: wait for them first.
        """
        elements = host_array(array, self.dtype)
        if elements.shape != self.shape:
            raise InvalidArgument(f"the array has shape {elements.shape} and the tensor "
                                  f"{self.shape}; they must be the same")
        _require_contiguous("the tensor to write", self)
        if elements.size:
            self.buffer.write(elements.view("uint8").reshape(-1) if elements.ndim else
                              elements.reshape(1).view("uint8"), self.offset)

    def read(self) -> Any:
        """A numpy copy of it on any device, with the types of numpy(). Not ordered with ops."""
        _require_contiguous("the tensor to read", self)
        data = self.buffer.read(self.offset, self.bytes)
        return numpy().frombuffer(data, numpy_dtype(self.dtype)).reshape(self.shape)

    def numpy(self) -> Any:
        """A numpy view of the same memory, on the simulator; wait for the ops that write it first.

        bf16 is uint16 (see from_bf16) unless ml_dtypes is installed. The memory lives as long as
        the array, also when the buffer is closed before.
        """
        self._require_host("numpy")
        view = self.buffer._view()
        memory = (ctypes.c_char * self.buffer.bytes).from_address(self.buffer.address)
        memory.owner = view  # type: ignore[attr-defined]
        strides = tuple(stride * SIZES[self.dtype] for stride in self.strides)
        return numpy().ndarray(self.shape, numpy_dtype(self.dtype), memory, self.offset, strides)

    def _require_host(self, what: str) -> None:
        if self.buffer.session.backend != Backend.SIM:
            raise FailedPrecondition(f"{what} needs memory of the host and this tensor is on GPU "
                                     f"{self.buffer.gpu}; use read() for a copy, or DLPack")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return numpy().array(array, dtype) if copy or dtype not in (None, array.dtype) else array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _dlpack.cuda_array_interface(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.device_of(self)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        """See the DLPack protocol. Wait for the ops that write the tensor first: `stream` of the
        consumer is not made to wait; Ticket.wait(stream) does that."""
        return _dlpack.export(self, dl_device, copy)


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    """An int is the size of a single dimension."""
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _require_contiguous(what: str, tensor: Tensor) -> None:
    if not tensor.contiguous:
        raise InvalidArgument(f"{what} has shape {tensor.shape} and strides {tensor.strides}; "
                              "it must be contiguous")


def _unsigned(name: str, value: int, bits: int = 64) -> int:
    """ctypes would cut off what does not fit."""
    if not 0 <= value < 2**bits:
        raise InvalidArgument(f"{name} is {value}; it must be between 0 and {2**bits - 1}")
    return value

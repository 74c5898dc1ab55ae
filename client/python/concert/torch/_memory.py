"""Which buffers of a session tensors lie in."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import torch

from .. import _abi
from .._abi import Backend, Code, Memory
from .._errors import FailedPrecondition, InvalidArgument
from .._library import last_error, library, per_thread
from .._session import Session
from .._tensor import Buffer

Slice = bytes  # a concert_slice, as it lies in structs of the ABI
_KNOWN_MAX = 1 << 16  # addresses; beyond them all are asked for anew


class Buffers:
    """Finds them: memory of the pool by its address, other memory of a GPU by importing it once.

    Of tensors on one device, for one thread.
    """

    def __init__(self, session: Session, device: torch.device, imports: Imports) -> None:
        self._session = session
        self._device = device
        self._imports = imports
        # Addresses in the pool met before: its allocator gives them out again and again. They hold
        # while nothing of the pool is freed; whoever reads them compares the numbers first.
        self.known: dict[int, Slice] = {}
        self.frees = library().concert_pool_frees
        self.frees_seen = -1

    def forget(self) -> None:
        self.frees_seen = self.frees()
        self.known = {}

    def ask(self, name: str, tensor: torch.Tensor) -> Slice | None:
        """None: its memory is not the pool's. FailedPrecondition: it is another session's."""
        if tensor.device != self._device:
            raise InvalidArgument(f"{name} is on {tensor.device} and x is on {self._device}; they "
                                  "must be on the same device")
        pointer = tensor.data_ptr()
        found = _abi.concert_slice()
        code = library().concert_pool_find(self._session._handle.check(), pointer,
                                           ctypes.byref(found), per_thread.reference)
        if code == Code.NOT_FOUND:
            return None
        if code == Code.FAILED_PRECONDITION:
            raise FailedPrecondition(f"the memory of {name} was made in the pool of another "
                                     "session; make it anew in concert.torch.pool()")
        if code:
            raise last_error(code)
        if len(self.known) == _KNOWN_MAX:
            self.known.clear()
        self.known[pointer] = bytes(found)
        return self.known[pointer]

    def imported(self, name: str, tensor: torch.Tensor) -> Slice:
        """Of memory on a GPU that is not the pool's."""
        return self._imports.slice_of(name, tensor)


class Imports:
    """Memory of PyTorch's own allocator, registered with a session. Thread-safe.

    A storage is imported when it is met first and dropped when it dies.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._by_address: dict[int, tuple[weakref.ref[Any], int, Buffer]] = {}

    def slice_of(self, name: str, tensor: torch.Tensor) -> Slice:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        with self._lock:
            known = self._by_address.get(address)
            # A storage that was resized leaves its old address to others.
            if known is None or known[0]() is not storage or known[1] != size:
                known = (weakref.ref(storage), size, self._import(name, tensor, address, size))
                self._by_address[address] = known
                weakref.finalize(storage, self._drop, address, known[2]).atexit = False
        handle = known[2]._handle.check().value
        assert handle is not None
        return bytes(_abi.concert_slice(handle, tensor.data_ptr() - address))

    def _import(self, name: str, tensor: torch.Tensor, address: int, size: int) -> Buffer:
        if not address or not size:
            raise InvalidArgument(f"{name} has shape {tuple(tensor.shape)} and no memory: its "
                                  "storage was freed")
        if self._session.backend != Backend.CUDA:
            raise FailedPrecondition(f"{name} is on {tensor.device} and the daemon runs on "
                                     "simulated GPUs")
        gpu = self._session._gpu_of(tensor.get_device())
        return self._session.import_memory(Memory.CUDA_POINTER, size, gpu=gpu, pointer=address)

    def _drop(self, address: int, buffer: Buffer) -> None:
        # No lock: it may be this thread's, where an allocation above collected garbage.
        known = self._by_address.get(address)
        if known is not None and known[2] is buffer:
            del self._by_address[address]
        buffer.close()


class HostMemory:
    """Memory of the pool on the simulator, freed with the last tensor on it."""

    def __init__(self, session: Session, size: int) -> None:
        address = library().concert_pool_allocate(size, 0, None)
        if address is None:
            session.allocate(size)  # raises what the pool cannot
            raise FailedPrecondition("the pool is another session's than the one in use")
        self._address: int = address
        self.size = size

    def tensor(self) -> torch.Tensor:
        """All of it, as bytes."""
        memory = (ctypes.c_uint8 * self.size).from_address(self._address)
        memory.owner = self  # type: ignore[attr-defined]
        return torch.frombuffer(memory, dtype=torch.uint8)

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            library().concert_pool_free(self._address, self.size, 0, None)

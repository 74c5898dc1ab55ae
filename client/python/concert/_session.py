"""Sessions: connections to the daemon, and what they make."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any, Hashable, Iterator, Sequence

from . import _abi, _dlpack
from ._abi import Backend, Dtype, Fallback, Memory, Priority
from ._arguments import kind_of
from ._cuda import ordinal_of_pointer, stream_handle, stream_key, uuid_of
from ._dtypes import DtypeLike, SIZES, dtype_of, host_array, numpy
from ._errors import FailedPrecondition, InvalidArgument
from ._handles import Handle, Owner
from ._library import call, library
from ._ops import Communicator
from ._program import Program
from ._queue import ProgramQueue, Queue
from ._tensor import Buffer, Tensor, _sizes, _unsigned
from ._ticket import Ticket
from ._waiter import Waiter

_STREAMS = 32  # with a timeline of their own: half of what a session has of them


@dataclass(frozen=True)
class Gpu:
    """A GPU of this node, by the daemon's number."""

    index: int
    name: str
    backend: Backend
    uuid: bytes
    memory_bytes: int
    sm_count: int
    usable: bool  # it was among the session's gpus, so queues can be made on it


class UserTimeline(Owner):
    """A counter that begins at 0 and that this process or a CUDA stream raises; ops wait for it.

    Close it when no submitted op and no stream uses it any more.
    """

    def __init__(self, session: Session, handle: Handle) -> None:
        self.session = session
        self._handle = handle
        self._timeline: int = library().concert_user_timeline_ticket(handle, 0).timeline

    def at(self, value: int) -> Ticket:
        """The moment when it reaches `value`."""
        self._handle.check()
        return Ticket(self.session, self._timeline, _unsigned("value", value))

    def signal(self, value: int, stream: Any = None) -> None:
        """Raises it to `value`, now, or when earlier work of the CUDA stream is done.

        It never goes back; values given with streams must rise.
        """
        handle = self._handle.check()
        if stream is None:
            call("concert_user_timeline_signal", handle, _unsigned("value", value))
        else:
            call("concert_user_timeline_signal_on_stream", handle, _unsigned("value", value),
                 stream_handle(stream))


class Session(Owner):
    """A connection to the daemon, from connect(). Thread-safe; does not survive fork().

    When it is closed, queued ops are cancelled and what runs finishes. When the daemon dies, waits
    raise Unavailable within 100 ms: open a new session and make everything anew.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._home = object()  # what its handles are told apart by from those of other sessions
        self.id: int = library().concert_session_id(handle)
        self.local = bool(library().concert_session_is_local(handle))
        self.gpus = tuple(_gpu(handle, index)
                          for index in range(library().concert_gpu_count(handle)))
        self.backend = self.gpus[0].backend if self.gpus else Backend.SIM
        self._lock = threading.Lock()
        self._waiters: dict[int, Waiter] = {}
        # Of each stream: its timeline and the last value that it was told to signal.
        self._streams: dict[Hashable, tuple[UserTimeline, int]] = {}

    def __repr__(self) -> str:
        return f"Session(id={self.id}, gpus={len(self.gpus)}{', closed' if self.closed else ''})"

    def close(self) -> None:
        super().close()
        _dlpack.sweep()

    def queue(self, gpu: int = 0, priority: Priority = Priority.NORMAL) -> Queue:
        """A new queue. While a higher priority is active, lower ones leave it SMs."""
        priority = kind_of("priority", priority, Priority)
        handle = self._make("queue", "concert_queue_create", "concert_queue_destroy",
                            self._index(gpu), priority)
        return Queue(self, handle, gpu, priority)

    def allocate(self, bytes: int, gpu: int = 0) -> Buffer:
        """Zeroed memory made by the daemon, which every GPU of the node may use in ops."""
        handle = self._make("buffer", "concert_buffer_allocate", "concert_buffer_free",
                            self._index(gpu), _unsigned("bytes", bytes))
        return Buffer(self, handle, bytes, gpu)

    def zeros(self, shape: int | Sequence[int], dtype: DtypeLike = Dtype.BF16,
              gpu: int = 0) -> Tensor:
        """A tensor of zeros in a buffer of its own."""
        kind = dtype_of(dtype)
        sizes = _sizes(shape)
        elements = math.prod(_unsigned("a size in shape", size) for size in sizes)
        return self.allocate(elements * SIZES[kind], gpu).tensor(sizes, kind)

    def array(self, array: Any, dtype: DtypeLike | None = None, gpu: int = 0) -> Tensor:
        """A copy of a host array. `dtype`: its own by default; floats are rounded to others."""
        given = numpy().asarray(array)
        kind = dtype_of(given.dtype if dtype is None else dtype)
        elements = host_array(given, kind)
        tensor = self.zeros(elements.shape, kind, gpu)
        tensor.write(elements)
        return tensor

    def import_array(self, array: Any) -> Tensor:
        """Registers the memory of a CUDA tensor of another library; nothing is copied.

        Through DLPack or __cuda_array_interface__. Only ops on queues of its GPU use it; the array
        is kept alive as import_memory's owner. Before ops read it: Queue.after(stream).
        """
        found = _dlpack.describe(array)
        if self.backend != Backend.CUDA:
            raise FailedPrecondition(
                f"the {type(array).__name__} is on a CUDA device and the daemon runs on simulated "
                "GPUs; copy it to the host and use Session.array")
        if 0 in found.shape:
            raise InvalidArgument(f"the {type(array).__name__} has shape {found.shape}; there is "
                                  "nothing to register")
        gpu = self._gpu_of(ordinal_of_pointer(found.pointer) if found.ordinal is None
                           else found.ordinal)
        view = Tensor(_Unbounded(), 0, found.shape, found.strides,  # type: ignore[arg-type]
                      found.dtype)
        span = 1 + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides))
        buffer = self.import_memory(Memory.CUDA_POINTER, span * SIZES[found.dtype], gpu=gpu,
                                    pointer=found.pointer, owner=found.owner)
        return Tensor(buffer, 0, view.shape, view.strides, view.dtype)

    def import_memory(self, memory: Memory, bytes: int, *, gpu: int = 0, fd: int = -1,
                      pointer: int = 0, offset: int = 0, allocation_bytes: int = 0,
                      ipc_handle: bytes = b"", owner: Any = None) -> Buffer:
        """Registers the client's own memory; see concert_import for what each kind needs.

        It must outlive the buffer and the ops that use it. `owner` is kept alive with the buffer,
        ops made of it and programs that use it, but not for what runs when they are gone. An fd
        stays the caller's.
        """
        if len(ipc_handle) not in (0, 64):
            raise InvalidArgument(f"ipc_handle has {len(ipc_handle)} bytes; it must have 64")
        options = _abi.concert_import(
            struct_size=ctypes.sizeof(_abi.concert_import), memory=memory, gpu=self._index(gpu),
            fd=fd, pointer=_unsigned("pointer", pointer), offset=_unsigned("offset", offset),
            bytes=_unsigned("bytes", bytes),
            allocation_bytes=_unsigned("allocation_bytes", allocation_bytes))
        options.ipc_handle[:len(ipc_handle)] = ipc_handle
        handle = self._make("buffer", "concert_buffer_import", "concert_buffer_free",
                            ctypes.byref(options))
        handle.owner = owner
        return Buffer(self, handle, bytes, gpu)

    def join(self, name: str, rank: int, ranks: int, gpu: int = 0) -> Communicator:
        """Joins a communicator: ranks of one user meet under its name. Returns at once."""
        options = _abi.concert_join(
            struct_size=ctypes.sizeof(_abi.concert_join), name=_text("name", name),
            rank=_unsigned32("rank", rank), ranks=_unsigned32("ranks", ranks),
            gpu=self._index(gpu))
        handle = self._make("communicator", "concert_communicator_join",
                            "concert_communicator_leave", ctypes.byref(options))
        return Communicator(handle, name, rank, ranks, gpu)

    def user_timeline(self) -> UserTimeline:
        """A new counter for ops to wait for. ResourceExhausted beyond 64 of a session."""
        return UserTimeline(self, self._make("user timeline", "concert_user_timeline_create",
                                             "concert_user_timeline_destroy"))

    def ticket(self, timeline: int, value: int) -> Ticket:
        """A ticket from its two numbers, which may come from another process."""
        return Ticket(self, _unsigned("timeline", timeline), _unsigned("value", value))

    @contextlib.contextmanager
    def batch(self, gpu: int = 0) -> Iterator[None]:
        """Ops submitted to any queue of the GPU inside are handed over together at its end."""
        call("concert_batch_begin", self._handle.check(), self._index(gpu))
        try:
            yield
        finally:
            if not self.closed:
                call("concert_batch_end", self._handle.check(), gpu)

    def program(self, gpu: int = 0) -> Program:
        """A new program, to which ops are added by its queue. Unimplemented: an older daemon."""
        queue = ctypes.c_void_p()
        made = ctypes.c_void_p()
        call("concert_program_begin", self._handle.check(), self._index(gpu), ctypes.byref(made),
             ctypes.byref(queue))
        handle = Handle(made.value, "program", library().concert_program_free, home=self._home)
        queue_handle = Handle(queue.value, "queue", library().concert_queue_destroy,
                              home=self._home)
        kept: set[Handle] = set()
        handle.owner = kept
        return Program(self, handle, ProgramQueue(self, queue_handle, gpu, kept))

    def _make(self, what: str, function: str, free: str, *arguments: Any) -> Handle:
        made = ctypes.c_void_p()
        call(function, self._handle.check(), *arguments, ctypes.byref(made))
        return Handle(made.value, what, getattr(library(), free), home=self._home)

    def _index(self, gpu: int) -> int:
        # ctypes would cut a larger number to 32 bits; the library knows the rest.
        return _unsigned32("gpu", gpu)

    def _gpu_of(self, ordinal: int) -> int:
        """The daemon's number of a CUDA device of this process."""
        uuid = uuid_of(ordinal)
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu.index
        raise InvalidArgument(f"CUDA device {ordinal} (UUID {uuid.hex()}) is none of the daemon's "
                              f"{len(self.gpus)} GPUs")

    def _waiter_of(self, timeline: int) -> Waiter:
        with self._lock:
            return self._waiters.setdefault(timeline, Waiter())

    def _signal_on(self, stream: Any) -> Ticket:
        """The moment when a CUDA stream is where it is now.

        A timeline per stream: what one stream signals comes in order, so that values rise. Beyond
        _STREAMS, one takes over the timeline of one whose last signal has come.
        """
        handle = stream_handle(stream)
        key = stream_key(handle)
        with self._lock:
            if key in self._streams:
                timeline, value = self._streams.pop(key)
            else:
                timeline, value = self._idle_stream() or (self.user_timeline(), 0)
            try:
                timeline.signal(value + 1, handle)
                value += 1
            finally:
                self._streams[key] = (timeline, value)  # the last: it was used last
            return timeline.at(value)

    def _idle_stream(self) -> tuple[UserTimeline, int] | None:
        """Takes the timeline of the stream that is idle and was used longest ago."""
        if len(self._streams) < _STREAMS:
            return None
        idle = next((key for key, (timeline, value) in self._streams.items()
                     if timeline.at(value).done()), None)
        return None if idle is None else self._streams.pop(idle)


class _Unbounded:
    """In place of a buffer while it is not known how long it must be."""

    bytes = 2**64


def connect(socket: str | os.PathLike[str] | None = None, *, name: str | None = None,
            gpus: Sequence[int] | None = None, timeout: float | None = None,
            submit_timeout: float | None = None,
            fallback: Fallback = Fallback.ENVIRONMENT) -> Session:
    """Connects to the daemon.

    socket: None: $CONCERT_SOCKET, else /run/concert/concert.sock. name: shown to operators, at most
    63 bytes; None: the program's. gpus: the GPUs that will be used; None: all. timeout: of
    connecting and every later control call, in seconds (30). submit_timeout: how long a submit waits
    while the ring is full, in seconds (1); 0: not at all. fallback: what to do without a daemon.

    Unavailable: no daemon answers, or no libconcert is found. FailedPrecondition: library, package
    or daemon are of different versions.
    """
    options = _abi.concert_connect_options(
        struct_size=ctypes.sizeof(_abi.concert_connect_options),
        fallback=kind_of("fallback", fallback, Fallback),
        socket_path=None if socket is None else _text("socket", os.fspath(socket)),
        client_name=_text("name", _program_name() if name is None else name))
    for gpu in gpus or ():
        if not 0 <= gpu < 64:
            raise InvalidArgument(f"gpus holds {gpu}; GPUs are numbered from 0 to 63")
        options.gpu_mask |= 1 << gpu
    if timeout is not None:
        options.timeout_ns = max(1, int(timeout * 1e9))
    if submit_timeout is not None:
        options.submit_timeout_ns = int(submit_timeout * 1e9) if submit_timeout > 0 else -1
    made = ctypes.c_void_p()
    call("concert_connect", ctypes.byref(options), ctypes.byref(made))
    return Session(Handle(made.value, "session", library().concert_session_close))


def _gpu(session: Handle, index: int) -> Gpu:
    info = _abi.concert_gpu(struct_size=ctypes.sizeof(_abi.concert_gpu))
    call("concert_gpu_info_get", session, index, ctypes.byref(info))
    return Gpu(index, info.name.decode("utf-8", "replace"), Backend(info.backend),
               bytes(info.uuid), info.memory_bytes, info.sm_count, bool(info.has_ring))


def _program_name() -> str:
    """The script's name, which says more than "python3"; cut to what fits."""
    name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return name.encode("utf-8", "replace")[:63].decode("utf-8", "ignore")


def _text(name: str, value: str) -> bytes:
    encoded = value.encode("utf-8")
    if b"\0" in encoded:
        raise InvalidArgument(f"{name} is {value!r}; it must not contain a zero byte")
    return encoded


def _unsigned32(name: str, value: int) -> int:
    if not 0 <= value < 2**32:
        raise InvalidArgument(f"{name} is {value}; it must be between 0 and {2**32 - 1}")
    return value

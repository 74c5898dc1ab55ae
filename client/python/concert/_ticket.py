"""Tickets: the moment when an op is done."""

from __future__ import annotations

import ctypes
import math
import re
import time
from typing import TYPE_CHECKING, Any, Generator

from . import _abi
from ._abi import Code
from ._cuda import stream_handle
from ._errors import DeadlineExceeded, Error
from ._library import call, last_error, library, per_thread

if TYPE_CHECKING:
    from ._session import Session

# A call into the library cannot be interrupted, so that a wait is cut into pieces: Ctrl-C and
# Session.close() in another thread take effect between two of them.
_PIECE_S = 0.1


class Ticket:
    """The moment when an op, or a value of a user timeline, is reached.

    Cheap. `timeline` and `value` are plain numbers that other processes of the same user can make a
    ticket of (Session.ticket) for their ops to wait for.
    """

    __slots__ = ("session", "timeline", "value")

    def __init__(self, session: Session, timeline: int, value: int) -> None:
        self.session = session
        self.timeline = timeline
        self.value = value

    def __repr__(self) -> str:
        return f"Ticket(timeline={self.timeline:#x}, value={self.value})"

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Ticket) and
                (self.timeline, self.value) == (other.timeline, other.value))

    def __hash__(self) -> int:
        return hash((self.timeline, self.value))

    def done(self) -> bool:
        """Whether there is nothing more to wait for; wait() then tells the outcome at once."""
        try:
            return self.poll()
        except Error:
            return True

    def poll(self) -> bool:
        """wait() without waiting: whether the op is done; raises what became of it if it failed."""
        done = ctypes.c_int()
        code = library().concert_poll(self.session._handle.check(), self._abi(), done,
                                      per_thread.reference)
        if code:
            raise last_error(code)
        return bool(done.value)

    def wait(self, stream: Any = None, *, timeout: float | None = None) -> None:
        """Waits until the op is done; raises what became of it if it failed.

        With a CUDA stream (of PyTorch, CuPy or Numba, or its address) the stream's later work
        waits and this thread goes on. Then the stream learns only that the op ended: call wait()
        or poll() before you trust its results. The stream's context must be current, and the
        session stays open until the stream is past the wait. Unimplemented on the simulator.

        `timeout`: in seconds; DeadlineExceeded when they pass, while the op goes on.
        """
        if stream is not None:
            call("concert_wait_on_stream", self.session._handle.check(), self._abi(),
                 stream_handle(stream))
            return
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            piece_s = max(0.0, min(_PIECE_S, end - time.monotonic()))
            code = library().concert_wait(self.session._handle.check(), self._abi(),
                                          int(piece_s * 1e9), per_thread.reference)
            if code == Code.OK:
                return
            error = last_error(code)
            if code != Code.DEADLINE_EXCEEDED:
                raise error
            # The end of the piece, or of the op, whose outcome poll() raises.
            if self.poll():
                return
            if time.monotonic() >= end:
                raise DeadlineExceeded(_with_time(error.message, timeout or 0.0))

    def __await__(self) -> Generator[Any, None, None]:
        """`await ticket`: returns when the op is done, raises what became of it if it failed."""
        if not self.poll():
            from ._waiter import future_of
            yield from future_of(self).__await__()
            self.poll()

    def _abi(self) -> Any:
        return _abi.concert_ticket(self.timeline, self.value)


def _with_time(sentence: str, timeout: float) -> str:
    """The library's sentence about the last piece, with the time that the caller gave."""
    return re.sub(r"within [0-9.]+ ms", f"within {timeout * 1e3:.3f} ms", sentence, count=1)

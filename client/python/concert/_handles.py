"""Who owns a handle of the C ABI, and what becomes of it after close() and after fork()."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Callable

from ._errors import Error, FailedPrecondition, Unavailable


class Handle(ctypes.c_void_p):
    """Frees the C handle when nobody holds this object any more.

    It is what calls are given, so a call that still runs in another thread keeps the handle alive
    while close() lets go of it. `value` is None as soon as the handle may not be used: the library
    answers NULL with an error, and ops look before they are submitted.
    """

    def __init__(self, value: int | None, what: str, free: Callable[[int], None],
                 gone: Error | None = None, home: object = None) -> None:
        super().__init__(value)
        self.what = what
        self.home = home  # of which session it is, without keeping that alive
        self.gone = gone
        self.owner: Any = None  # who is kept alive with it, as the owner of a client's memory
        self._free = free
        self._pointer = value
        _alive.add(self)

    def close(self) -> None:
        """No new call may use it. Freed with the last reference."""
        if self.gone is not None:
            return
        self.gone = (Unavailable("the session is closed; open a new one")
                     if self.what == "session" else
                     FailedPrecondition(f"the {self.what} is closed"))
        self.value = None

    def check(self) -> Handle:
        """Itself, or the exception that says why it is gone."""
        if self.value is None:
            raise self.error()
        return self

    def error(self) -> Error:
        """A fresh exception: one that was raised before would drag its old traceback along."""
        gone = self.gone or FailedPrecondition(f"the {self.what} is closed")
        return type(gone)(gone.message, gone.code)

    def abandon(self) -> None:
        """In a child after fork(): the parent's ring and socket are not ours to touch."""
        self.gone = FailedPrecondition(
            f"this process is a fork() of the one that opened the {self.what}; "
            "a session does not survive fork(): open one in the child")
        self.value = None
        self._pointer = None

    def __del__(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._free(pointer)

    __hash__ = object.__hash__  # by identity, as it compares; ctypes' own have none


_alive: weakref.WeakSet[Handle] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for handle in list(_alive):
        handle.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Owner:
    """What owns one handle: a context manager that lets go of it at its end."""

    _handle: Handle

    def close(self) -> None:
        """Lets go of the handle; once is enough. Ops already submitted still run."""
        handle = self._handle
        handle.close()
        # Drops the reference that keeps the C handle alive. Ops that run may still use the memory.
        self._handle = Handle(None, handle.what, handle._free, handle.gone, handle.home)
        self._handle.owner = handle.owner

    @property
    def closed(self) -> bool:
        """Whether calls on it fail by now."""
        return self._handle.value is None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

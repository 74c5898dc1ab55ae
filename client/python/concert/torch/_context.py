"""The session in use, and what is made of it: its pool, its imports, and a queue per thread."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import torch

from .._abi import Backend, Priority
from .._arguments import kind_of
from .._errors import Error, FailedPrecondition, Unavailable
from .._library import call, library
from .._session import Session, connect
from ._memory import Imports


class Context(threading.local):
    """A session in use. Attributes are shared by threads, all but `lanes`."""

    lanes: dict[int, Any]  # by PyTorch's number of the device, -1 for the CPU; see _linear.Lane

    def __init__(self, session: Session, priority: Priority, own: bool, imports: Imports,
                 pools: list[Any]) -> None:
        # Runs in each thread with the same arguments.
        self.session = session
        self.priority = priority
        self.own = own
        self.pools = pools
        self.imports = imports
        self.lanes = {}


_lock = threading.Lock()
_current: Context | None = None


def use(session: Session | None, *, priority: Priority = Priority.NORMAL) -> None:
    """Ops and the pool use this session from now on, in all threads; it stays yours to close.

    None: a session of concert.torch's own, opened when it is needed, and again after the daemon
    went away.
    """
    global _current
    with _lock:
        _current = None if session is None else _context_of(session, priority, own=False)


def session() -> Session:
    """The session in use; opens one if there is none."""
    return context().session


def pool() -> torch.cuda.MemPool:
    """Memory of the daemon's for `torch.cuda.use_mem_pool`: ops use it without an import.

    The same one while the session is the same. What was made in it stays readable when the session
    ends, but ops of the next one refuse it. FailedPrecondition on the simulator, where tensors are
    the CPU's.
    """
    found = context()
    if found.session.backend != Backend.CUDA:
        raise FailedPrecondition("a pool holds memory of GPUs and the daemon runs on simulated "
                                 "ones; CPU tensors need none")
    with _lock:
        if not found.pools:
            found.pools.append(torch.cuda.MemPool(_allocator().allocator()))
        return found.pools[0]


@lru_cache(maxsize=1)
def _allocator() -> Any:
    """PyTorch does not keep it alive, and frees tensors through it that outlive their pool."""
    return torch.cuda.memory.CUDAPluggableAllocator(
        library()._name, "concert_pool_allocate", "concert_pool_free")


def context() -> Context:
    """The one in use, made at first use."""
    global _current
    found = _current
    if found is None:
        with _lock:
            if _current is None:
                _current = _context_of(connect(), Priority.NORMAL, own=True)
            found = _current
    return found


def forget(failed: Context, error: Error) -> None:
    """After an error: the next op opens a new session if this one was our own and has ended."""
    global _current
    ended = isinstance(error, Unavailable) or failed.session.closed
    with _lock:
        if failed.own and ended and _current is failed:
            _current = None


def _context_of(session: Session, priority: Priority, own: bool) -> Context:
    call("concert_pool_use", session._handle.check())
    return Context(session, kind_of("priority", priority, Priority), own, Imports(session), [])

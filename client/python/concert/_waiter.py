"""`await ticket`: threads that sleep until the next ticket of a timeline is reached.

The ABI has no file descriptor to select on, so a thread per awaited queue sleeps in concert_wait,
for the lowest of the values that are awaited there: values of a timeline are reached in order, so
one sleeper serves any number of tickets and is woken exactly when the next is due. Threads are
daemons, hold no session while they have nothing to wait for, and end when that lasts.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from typing import TYPE_CHECKING

from . import _abi
from ._errors import Error
from ._library import library, per_thread

if TYPE_CHECKING:
    from ._session import Session
    from ._ticket import Ticket

_PIECE_NS = 100_000_000  # how late a closed session is noticed
_IDLE_S = 5.0

_Entry = tuple[int, int, "Ticket", "asyncio.Future[None]"]
_order = itertools.count()  # entries of one value come first in, first out


class Waiter:
    """Serves the awaited tickets of one timeline of one session. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[_Entry] = []
        self._serving: list[int] = []  # values that threads wait for now
        self._coming = 0  # threads that will look for the lowest value: idle or just started

    def add(self, ticket: Ticket, future: asyncio.Future[None]) -> None:
        """Sets `future` in its loop when the ticket is reached or can no longer be."""
        with self._changed:
            heapq.heappush(self._entries, (ticket.value, next(_order), ticket, future))
            if self._coming:
                self._changed.notify()
            # A lower value than all that are waited for is reached before any of them.
            elif not self._serving or ticket.value < min(self._serving):
                self._coming += 1
                threading.Thread(target=self._run, name="concert-waiter", daemon=True).start()

    def _run(self) -> None:
        while (ticket := self._next()) is not None:
            self._sleep(ticket)
            self._set_reached(ticket.value)
            del ticket  # it holds the session

    def _set_reached(self, served: int) -> None:
        with self._changed:
            self._serving.remove(served)
            self._coming += 1
            while self._entries and self._entries[0][2].done():
                _set(heapq.heappop(self._entries)[3])

    def _next(self) -> Ticket | None:
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._entries, _IDLE_S)
            self._coming -= 1
            if not arrived:
                return None
            ticket = self._entries[0][2]
            self._serving.append(ticket.value)
            return ticket

    def _sleep(self, ticket: Ticket) -> None:
        try:
            library().concert_wait(ticket.session._handle.check(),
                                   _abi.concert_ticket(ticket.timeline, ticket.value), _PIECE_NS,
                                   per_thread.reference)
        except Error:
            pass


def _set(future: asyncio.Future[None]) -> None:
    def finish() -> None:
        if not future.done():  # it may have been cancelled
            future.set_result(None)

    try:
        future.get_loop().call_soon_threadsafe(finish)
    except RuntimeError:
        pass  # the loop is closed, so nobody awaits it


def future_of(ticket: Ticket) -> asyncio.Future[None]:
    """A future of the running loop that is set when the ticket is reached."""
    future = asyncio.get_running_loop().create_future()
    session: Session = ticket.session
    session._waiter_of(ticket.timeline).add(ticket, future)
    return future

"""Programs: a whole step, recorded and checked once, run as one op."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, Sequence

from . import _abi
from ._dtypes import DtypeLike, SIZES, dtype_of
from ._errors import InvalidArgument
from ._handles import Handle, Owner
from ._library import call, library
from ._ops import Op, _slice
from ._tensor import Buffer, Tensor, _sizes, _unsigned

if TYPE_CHECKING:
    from ._queue import Queue
    from ._session import Session


class Program(Owner):
    """A whole step as one op, from Session.program(). One thread at a time.

    What is submitted to `queue` becomes part of it, in that order and without waits, until end()
    registers it; then Queue.run runs it. Tensors of the session (weights, caches) are the same in
    every run and must be there until end(), which keeps their memory from then on; those that
    arena() and binding() give exist within runs only.

    Closing it leaves runs that were submitted before as they are.
    """

    def __init__(self, session: Session, handle: Handle, queue: Queue) -> None:
        self.session = session
        self.queue = queue
        self._handle = handle
        self._bindings: list[Tensor] = []

    def __repr__(self) -> str:
        return f"Program(bindings={len(self._bindings)}{', closed' if self.closed else ''})"

    def arena(self, shape: int | Sequence[int], dtype: DtypeLike) -> Tensor:
        """What ops pass to one another. Undefined when a run starts; shares memory with what is
        not in use at the same time."""
        return self._slot("concert_program_arena", shape, dtype)

    def binding(self, shape: int | Sequence[int], dtype: DtypeLike) -> Tensor:
        """What each run brings, as token ids, tables and results: copied in when it starts and, if
        the program writes it, out when it ends. Runs give them in the order of these calls."""
        tensor = self._slot("concert_program_binding", shape, dtype)
        self._bindings.append(tensor)
        return tensor

    def rows(self, *rows: int) -> None:
        """Lets runs have fewer rows than are recorded: each of these numbers, the largest of which
        ops have, is registered by end() as a program of its own. Other ops are the same in all."""
        numbers = sorted(_unsigned("a number of rows", number, 32) for number in rows)
        call("concert_program_rows", self._handle.check(),
             (ctypes.c_uint32 * max(len(numbers), 1))(*numbers), len(numbers))

    def end(self) -> None:
        """Registers it. An Error names the op that is wrong by its place, from 0, and why."""
        call("concert_program_end", self._handle.check())

    def _slot(self, function: str, shape: int | Sequence[int], dtype: DtypeLike) -> Tensor:
        kind = dtype_of(dtype)
        sizes = _sizes(shape)
        count = math.prod(_unsigned("a size in shape", size) for size in sizes) * SIZES[kind]
        made = ctypes.c_void_p()
        call(function, self._handle.check(), count, ctypes.byref(made))
        handle = Handle(made.value, "slot", library().concert_buffer_free, home=self._handle.home)
        return Buffer(self.session, handle, count, self.queue.gpu).tensor(sizes, kind)


class Run(Op):
    """One run of a program with a tensor for each of its bindings, of their shapes and dtypes.

    rows: how many of its rows there are, if it was given numbers of them (Program.rows); 0: all.
    Those behind them up to the next of these numbers are padding, and others are left alone.

    InvalidArgument: too few, too many, or others than the program has.
    """

    __slots__ = ("_bindings",)

    def __init__(self, program: Program, *bindings: Tensor, rows: int = 0) -> None:
        wanted = program._bindings
        if len(bindings) != len(wanted):
            raise InvalidArgument(f"{len(bindings)} bindings are given; the program has "
                                  f"{len(wanted)}")
        handles = [program._handle.check()]
        slices: Any = (_abi.concert_slice * max(len(wanted), 1))()
        for i, (given, slot) in enumerate(zip(bindings, wanted)):
            if given.shape != slot.shape or given.dtype != slot.dtype or not given.contiguous:
                raise InvalidArgument(
                    f"binding {i} has shape {given.shape}, strides {given.strides} and dtype "
                    f"{given.dtype.name}; it must be {slot.shape} of {slot.dtype.name} without "
                    "gaps")
            slices[i].buffer, slices[i].offset = _slice(given, handles)
        self._bindings = slices
        self._set_struct(
            _abi.concert_run(struct_size=ctypes.sizeof(_abi.concert_run),
                             binding_count=len(wanted), program=handles[0],
                             bindings=ctypes.cast(slices, ctypes.POINTER(_abi.concert_slice)),
                             rows=_unsigned("rows", rows, 32)),
            handles)

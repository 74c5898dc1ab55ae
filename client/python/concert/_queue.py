"""Queues: ordered lines of ops on one GPU."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Iterable, Union

from . import _abi
from ._abi import Activation, CollectiveKind, ElementwiseFunction, Priority, Reduction
from ._errors import InvalidArgument
from ._handles import Handle, Owner
from ._library import by_address, last_error, library, per_thread
from ._ops import Collective, Communicator, Copy, Gemm, Op, gemm_flags
from ._program import Program, Run
from ._row_ops import (Advance, Argmax, AttentionDecode, AttentionPrefill, Elementwise, Embedding,
                       GatedActivation, LayerNorm, Quantize, RmsNorm, RopeAppend, Sample)
from ._tensor import Buffer, Tensor
from ._ticket import Ticket

if TYPE_CHECKING:
    from ._session import Session

Wait = Union[Ticket, tuple[int, int]]

# Where a, w and d are in a concert_gemm without c.
_PLACES_AT = _abi.concert_gemm.a.offset
_PLACES = struct.Struct("@PQPQ16xPQ")
_SHAPES_MAX = 1024  # of GEMMs of a queue; beyond them all are made anew


@lru_cache(maxsize=1)
def _submits() -> dict[type[Op], Any]:
    """The library's function for each kind of op."""
    return {
        Gemm: by_address("concert_submit_gemm"),
        Copy: by_address("concert_submit_copy"),
        Collective: by_address("concert_submit_collective"),
        RmsNorm: by_address("concert_submit_rms_norm"),
        GatedActivation: by_address("concert_submit_gated_activation"),
        Embedding: by_address("concert_submit_embedding"),
        Argmax: by_address("concert_submit_argmax"),
        RopeAppend: by_address("concert_submit_rope_append"),
        AttentionDecode: by_address("concert_submit_attention_decode"),
        AttentionPrefill: by_address("concert_submit_attention_prefill"),
        LayerNorm: by_address("concert_submit_layer_norm"),
        Elementwise: by_address("concert_submit_elementwise"),
        Advance: by_address("concert_submit_advance"),
        Quantize: by_address("concert_submit_quantize"),
        Sample: by_address("concert_submit_sample"),
        Run: by_address("concert_submit_run"),
    }


class Queue(Owner):
    """An ordered line of ops, like a CUDA stream. One thread at a time.

    An op begins after the queue's earlier ops; ops of different queues run side by side. `waits`
    of the calls below are up to 4 tickets of any queue, session (of the same user) or user
    timeline, as Ticket or as (timeline, value). `deadline_ns` is a hint, on time.monotonic_ns().

    A submit returns at once. ResourceExhausted: the ring stayed full for the session's
    submit_timeout. Unavailable: the session has ended. A bad op fails when its ticket is waited
    for.
    """

    def __init__(self, session: Session, handle: Handle, gpu: int, priority: Priority) -> None:
        self.session = session
        self.gpu = gpu
        self.priority = priority
        self._handle = handle
        self._submit = _submits()
        # Made once, so that a submit makes nothing but the ticket that it returns.
        self._ticket = _abi.concert_ticket()
        self._ticket_address = ctypes.addressof(self._ticket)
        self._waits = (_abi.concert_ticket * _abi.WAITS_MAX)()
        self._options = _abi.concert_submit_options(
            struct_size=ctypes.sizeof(_abi.concert_submit_options),
            waits=ctypes.cast(self._waits, ctypes.POINTER(_abi.concert_ticket)))
        self._options_address = ctypes.addressof(self._options)
        self._home = handle.home
        self._timeline: int = library().concert_queue_last(handle).timeline
        self._after: list[Ticket] = []  # what the next op waits for, too
        # Structs of earlier calls of gemm(), by all but where operands are, which goes in anew.
        self._submit_gemm = self._submit[Gemm]
        self._shapes: dict[Any, tuple[Any, int]] = {}

    def __repr__(self) -> str:
        return f"Queue(gpu={self.gpu}, priority={self.priority.name})"

    @property
    def last(self) -> Ticket:
        """The moment when everything submitted so far is done."""
        ticket = library().concert_queue_last(self._handle.check())
        return Ticket(self.session, ticket.timeline, ticket.value)

    def submit(self, op: Op, waits: Iterable[Wait] = (), deadline_ns: int = 0) -> Ticket:
        """Hands over an op that was made before; the quickest way to submit it again."""
        if op._home is not self._home or not all(op._handles):
            op._check(self._home)
        return self._hand_over(self._submit[type(op)], op._address, waits, deadline_ns)

    def _hand_over(self, submit: Any, address: int, waits: Iterable[Wait],
                   deadline_ns: int) -> Ticket:
        options = None
        if waits or deadline_ns or self._after:
            options = self._set_options(waits, deadline_ns)
        code = submit(self._handle, address, options, self._ticket_address, per_thread.address)
        if code:
            self._handle.check()
            raise last_error(code)
        if self._after:
            self._after.clear()
        return Ticket(self.session, self._timeline, self._ticket.value)

    def _set_options(self, waits: Iterable[Wait], deadline_ns: int) -> Any:
        waits = tuple(waits)
        if self._after and len(self._after) + len(waits) > _abi.WAITS_MAX:
            self._after = [ticket for ticket in self._after if not ticket.done()]
        tickets = [*self._after, *waits]
        numbers = [number for ticket in tickets for number in
                   (ticket if isinstance(ticket, tuple) else (ticket.timeline, ticket.value))]
        if len(tickets) > _abi.WAITS_MAX:
            after = f", {len(self._after)} of them from after()" if self._after else ""
            raise InvalidArgument(f"waits has {len(tickets)} tickets{after}; an op waits for at "
                                  f"most {_abi.WAITS_MAX}")
        try:
            struct.pack_into(f"={len(numbers)}Q", self._waits, 0, *numbers)
        except struct.error as error:
            raise InvalidArgument(f"waits are {tickets}: {error}") from None
        if not 0 <= deadline_ns < 2**64:
            raise InvalidArgument(f"deadline_ns is {deadline_ns}; it must be a time.monotonic_ns()")
        self._options.deadline_ns = deadline_ns
        self._options.wait_count = len(tickets)
        return self._options_address

    def after(self, stream: Any) -> Ticket:
        """The queue's later ops wait for the work that is on the CUDA stream by now.

        `stream` as in Ticket.wait, whose context must be current; this thread goes on. Returns the
        moment when the stream gets there, for ops of other queues.
        """
        ticket = self.session._signal_on(stream)
        # An op that was refused leaves its tickets; one of the same timeline is covered by this.
        self._after = [one for one in self._after if one.timeline != ticket.timeline]
        self._after.append(ticket)
        return ticket

    def gemm(self, a: Tensor, w: Tensor, d: Tensor, *, c: Tensor | None = None,
             bias: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0,
             activation: int = 0, a_scales: Tensor | None = None,
             w_scales: Tensor | None = None, allow_tf32: bool = False, residual: bool = False,
             gated: bool = False, interleaved: bool = False, waits: Iterable[Wait] = (),
             deadline_ns: int = 0) -> Ticket:
        """Submits a Gemm: d = act(alpha * a * w^T + beta * c + bias)."""
        shape = None
        flags = 0
        if allow_tf32 or residual or gated or interleaved:
            flags = gemm_flags(allow_tf32, residual, gated, interleaved)
        if c is bias is a_scales is w_scales is None:
            known = None
            try:
                shape = (a._matrix, w._matrix, d._matrix, alpha, beta, activation, flags)
                known = self._shapes.get(shape)
            except (AttributeError, TypeError):
                pass  # below it is found out what is wrong
            if known is not None:
                # Kept here until the call returns, whoever closes the buffers.
                at_a, at_w, at_d = a.buffer._handle, w.buffer._handle, d.buffer._handle
                if at_a.home is at_w.home is at_d.home is self._home and at_a and at_w and at_d:
                    _PLACES.pack_into(known[0], _PLACES_AT, at_a.value or 0, a.offset,
                                      at_w.value or 0, w.offset, at_d.value or 0, d.offset)
                    return self._hand_over(self._submit_gemm, known[1], waits, deadline_ns)
        op = Gemm.__new__(Gemm)
        try:
            op._set(a, w, d, c, bias, alpha, beta, activation, a_scales, w_scales, flags)
        except (AttributeError, TypeError, ValueError):
            Gemm(a, w, d, c=c, bias=bias, alpha=alpha, beta=beta, activation=activation,
                 a_scales=a_scales, w_scales=w_scales)  # which names what is no tensor
            raise
        ticket = self.submit(op, waits, deadline_ns)
        if shape is not None:
            if len(self._shapes) == _SHAPES_MAX:
                self._shapes.clear()
            # Found out by now, if they were not.
            shape = (a._matrix, w._matrix, d._matrix, alpha, beta, activation, flags)
            self._shapes[shape] = (memoryview(op._struct).cast("B"), op._address)
        return ticket

    def rms_norm(self, x: Tensor, weight: Tensor, out: Tensor, *, residual: Tensor | None = None,
                 epsilon: float = 1e-6, cast_first: bool = False,
                 waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an RmsNorm: out = weight * normalised(x + residual)."""
        return self.submit(RmsNorm(x, weight, out, residual=residual, epsilon=epsilon,
                                   cast_first=cast_first), waits)

    def layer_norm(self, x: Tensor, weight: Tensor, out: Tensor, *, bias: Tensor | None = None,
                   residual: Tensor | None = None, epsilon: float = 1e-5,
                   waits: Iterable[Wait] = ()) -> Ticket:
        """Submits a LayerNorm: out = weight * normalised(x + residual) + bias."""
        return self.submit(LayerNorm(x, weight, out, bias=bias, residual=residual,
                                     epsilon=epsilon), waits)

    def gated_activation(self, x: Tensor, out: Tensor, *, activation: Activation = Activation.SILU,
                         interleaved: bool = False, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits a GatedActivation: out = act(gate) * up, both from x."""
        return self.submit(GatedActivation(x, out, activation=activation, interleaved=interleaved),
                           waits)

    def add(self, x: Tensor, y: Tensor, out: Tensor, *, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an Elementwise: out = x + y; y may be one row for all."""
        return self.submit(Elementwise(ElementwiseFunction.ADD, x, y, out), waits)

    def multiply(self, x: Tensor, y: Tensor, out: Tensor, *, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an Elementwise: out = x * y; y may be one row for all."""
        return self.submit(Elementwise(ElementwiseFunction.MULTIPLY, x, y, out), waits)

    def cast(self, x: Tensor, out: Tensor, *, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an Elementwise: out = x, in its own dtype and with its own strides."""
        return self.submit(Elementwise(ElementwiseFunction.CAST, x, None, out), waits)

    def embedding(self, ids: Tensor, table: Tensor, out: Tensor, *,
                  waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an Embedding: out[r] = table[ids[r]]."""
        return self.submit(Embedding(ids, table, out), waits)

    def argmax(self, x: Tensor, indices: Tensor, *, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an Argmax: indices[r] = where x[r] is largest."""
        return self.submit(Argmax(x, indices), waits)

    def advance(self, counters: Tensor, counter_max: int, *, slots: Tensor | None = None,
                waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an Advance: counters[r] = min(counters[r] + 1, counter_max)."""
        return self.submit(Advance(counters, counter_max, slots=slots), waits)

    def quantize(self, x: Tensor, out: Tensor, scales: Tensor, *,
                 waits: Iterable[Wait] = ()) -> Ticket:
        """Submits a Quantize: scales[r] = max(|x[r]|) / 448, out[r] = x[r] / scales[r] in fp8."""
        return self.submit(Quantize(x, out, scales), waits)

    def sample(self, x: Tensor, indices: Tensor, *, temperature: float | Tensor = 1.0,
               top_k: int | Tensor = 0, top_p: float | Tensor = 1.0, seed: int | Tensor = 0,
               steps: Tensor | None = None, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits a Sample: indices[r] = drawn by softmax(x[r] / temperature)."""
        return self.submit(Sample(x, indices, temperature=temperature, top_k=top_k, top_p=top_p,
                                  seed=seed, steps=steps), waits)

    def rope_append(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, slots: Tensor,
                    cos_sin: Tensor, k_cache: Tensor, v_cache: Tensor, *,
                    heads_first: bool = False, interleaved: bool = False, k_scale: float = 1.0,
                    v_scale: float = 1.0, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits a RopeAppend: rotates q and k, and writes k and v to the cache."""
        return self.submit(RopeAppend(q, k, v, positions, slots, cos_sin, k_cache, v_cache,
                                      heads_first=heads_first, interleaved=interleaved,
                                      k_scale=k_scale, v_scale=v_scale), waits)

    def attention_decode(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor,
                         out: Tensor, *, page_table: Tensor | None = None,
                         length_max: int | None = None, scale: float | None = None,
                         window: int = 0, soft_cap: float = 0, heads_first: bool = False,
                         k_scale: float = 1.0, v_scale: float = 1.0, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an AttentionDecode: out = softmax(scale * q * K^T) * V of each row."""
        return self.submit(AttentionDecode(q, k_cache, v_cache, lengths, out,
                                           page_table=page_table, length_max=length_max,
                                           scale=scale, window=window, soft_cap=soft_cap,
                                           heads_first=heads_first, k_scale=k_scale,
                                           v_scale=v_scale), waits)

    def attention_prefill(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, query_starts: Tensor,
                          lengths: Tensor, out: Tensor, *, page_table: Tensor | None = None,
                          length_max: int | None = None, scale: float | None = None,
                          window: int = 0, soft_cap: float = 0, heads_first: bool = False,
                          k_scale: float = 1.0, v_scale: float = 1.0, waits: Iterable[Wait] = ()) -> Ticket:
        """Submits an AttentionPrefill: the same of chunks of new tokens, each to those before it."""
        return self.submit(AttentionPrefill(q, k_cache, v_cache, query_starts, lengths, out,
                                            page_table=page_table, length_max=length_max,
                                            scale=scale, window=window, soft_cap=soft_cap,
                                            heads_first=heads_first, k_scale=k_scale,
                                            v_scale=v_scale), waits)

    def copy(self, src: Buffer | Tensor, dst: Buffer | Tensor, *, waits: Iterable[Wait] = (),
             deadline_ns: int = 0) -> Ticket:
        """Submits a Copy of `src` to `dst`."""
        return self.submit(Copy(src, dst), waits, deadline_ns)

    def run(self, program: Program, *bindings: Tensor, rows: int = 0, waits: Iterable[Wait] = (),
            deadline_ns: int = 0) -> Ticket:
        """One run of the program, with a tensor for each of its bindings and, if it has numbers of
        rows (Program.rows), how many there are; 0: all."""
        return self.submit(Run(program, *bindings, rows=rows), waits, deadline_ns)

    def all_reduce(self, communicator: Communicator, src: Tensor, dst: Tensor | None = None, *,
                   reduction: Reduction = Reduction.SUM, waits: Iterable[Wait] = ()) -> Ticket:
        """dst of every rank: the reduction of all ranks' src. In place without dst."""
        return self.submit(Collective(CollectiveKind.ALL_REDUCE, communicator, src, dst,
                                      reduction=reduction), waits)

    def all_gather(self, communicator: Communicator, src: Tensor, dst: Tensor, *,
                   waits: Iterable[Wait] = ()) -> Ticket:
        """dst of every rank: all ranks' src, one after the other."""
        return self.submit(Collective(CollectiveKind.ALL_GATHER, communicator, src, dst), waits)

    def reduce_scatter(self, communicator: Communicator, src: Tensor, dst: Tensor, *,
                       reduction: Reduction = Reduction.SUM, waits: Iterable[Wait] = ()) -> Ticket:
        """dst: this rank's part of the reduction of all ranks' src."""
        return self.submit(Collective(CollectiveKind.REDUCE_SCATTER, communicator, src, dst,
                                      reduction=reduction), waits)

    def all_to_all(self, communicator: Communicator, src: Tensor, dst: Tensor, *,
                   waits: Iterable[Wait] = ()) -> Ticket:
        """Part i of src goes to rank i; part i of dst comes from rank i."""
        return self.submit(Collective(CollectiveKind.ALL_TO_ALL, communicator, src, dst), waits)

    def broadcast(self, communicator: Communicator, src: Tensor, dst: Tensor | None = None, *,
                  root: int = 0, waits: Iterable[Wait] = ()) -> Ticket:
        """dst of every rank: src of the rank `root`. In place without dst."""
        return self.submit(Collective(CollectiveKind.BROADCAST, communicator, src, dst, root=root),
                           waits)

    def barrier(self, communicator: Communicator, *, waits: Iterable[Wait] = ()) -> Ticket:
        """Reached when every rank's is."""
        return self.submit(Collective(CollectiveKind.BARRIER, communicator), waits)


class ProgramQueue(Queue):
    """A program's. Puts handles of imported memory into `kept`, which lives as long as the program:
    their owners are needed by runs, when the ops are gone."""

    def __init__(self, session: Session, handle: Handle, gpu: int, kept: set[Handle]) -> None:
        super().__init__(session, handle, gpu, Priority.NORMAL)
        self._kept = kept

    def submit(self, op: Op, waits: Iterable[Wait] = (), deadline_ns: int = 0) -> Ticket:
        ticket = super().submit(op, waits, deadline_ns)
        self._kept.update(handle for handle in op._handles if handle.owner is not None)
        return ticket

    def gemm(self, a: Tensor, w: Tensor, d: Tensor, *, waits: Iterable[Wait] = (),
             deadline_ns: int = 0, **options: Any) -> Ticket:
        """Submits a Gemm; Queue's makes none where it had the shapes before."""
        return self.submit(Gemm(a, w, d, **options), waits, deadline_ns)

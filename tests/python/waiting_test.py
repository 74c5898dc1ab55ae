"""`await ticket`, and CUDA streams as far as they go without CUDA."""

import asyncio
import ctypes
import subprocess
import threading
import types

import numpy as np
import pytest

import concert
from concert import _cuda, _library


@pytest.fixture
def held(session):
    """Makes copies that wait for values of a timeline: (timeline, submit(queue, value))."""
    timeline = session.user_timeline()
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    return timeline, lambda queue, value: queue.copy(x, y, waits=[timeline.at(value)])


def waiters():
    return [one for one in threading.enumerate() if one.name == "concert-waiter"]


def test_await_gives_the_outcome(session, queue, held):
    timeline, submit = held
    zero = session.allocate(64).tensor((0, 4), "fp32")
    one = session.zeros((4, 4), "fp32")

    async def main():
        ticket = submit(queue, 1)
        asyncio.get_running_loop().call_later(0.01, timeline.signal, 1)
        await ticket
        assert ticket.done()
        await ticket  # again, at once
        with pytest.raises(concert.InvalidArgument, match="m is 0"):
            await queue.gemm(zero, one, zero)

    asyncio.run(main())


def test_many_tickets_need_no_thread_each(session, held):
    timeline, submit = held
    queues = [session.queue() for _ in range(3)]
    before = set(waiters())
    tickets = [submit(queue, step + 1) for step in range(20) for queue in queues]

    async def main():
        # The last first: values that come later are lower.
        tasks = [asyncio.ensure_future(wait(ticket)) for ticket in reversed(tickets[-3:])]
        tasks += [asyncio.ensure_future(wait(ticket)) for ticket in tickets[:-3]]
        await asyncio.sleep(0)  # all of them have begun
        assert len(set(waiters()) - before) <= 2 * len(queues)
        for step in range(20):
            timeline.signal(step + 1)
            # Each step's, and none of a later one.
            await asyncio.gather(*(t for t, ticket in zip(tasks[3:], tickets)
                                   if tickets.index(ticket) // 3 == step))
        await asyncio.gather(*tasks)

    async def wait(ticket):
        await ticket

    asyncio.run(main())


def test_a_lower_value_is_not_held_back_by_a_higher_one(queue, held):
    timeline, submit = held
    low, high = submit(queue, 1), submit(queue, 2)

    async def main():
        later = asyncio.ensure_future(wait(high))
        await asyncio.sleep(0.05)  # its thread sleeps by now, or soon: right either way
        timeline.signal(1)
        await low
        assert not later.done()
        timeline.signal(2)
        await later

    async def wait(ticket):
        await ticket

    asyncio.run(main())


def test_timeout_and_cancel(queue, held):
    timeline, submit = held
    ticket = submit(queue, 1)

    async def main():
        async def wait():
            await ticket

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.01)
        assert not ticket.done()
        timeline.signal(1)
        await ticket

    asyncio.run(main())


def test_a_session_closed_meanwhile_ends_the_await(daemon):
    async def main():
        session = concert.connect(daemon.socket)
        queue, timeline = session.queue(), session.user_timeline()
        x = session.zeros((4,), "fp32")
        ticket = queue.copy(x, session.zeros((4,), "fp32"), waits=[timeline.at(1)])
        asyncio.get_running_loop().call_later(0.01, session.close)
        with pytest.raises(concert.Unavailable, match="the session is closed"):
            await ticket

    asyncio.run(main())


@pytest.mark.sim_only
def test_streams_are_refused_on_the_simulator(session, queue, held):
    timeline, submit = held
    ticket = submit(queue, 1)
    with pytest.raises(concert.Unimplemented, match="simulated GPUs, which have no CUDA streams"):
        ticket.wait(types.SimpleNamespace(cuda_stream=0))
    with pytest.raises(concert.Unimplemented, match="use concert_user_timeline_signal$"):
        queue.after(0)
    timeline.signal(1)
    ticket.wait()
    submit(queue, 1).wait()  # after() has left nothing behind


@pytest.mark.parametrize("stream, handle", [
    (7, 7),
    (types.SimpleNamespace(cuda_stream=8), 8),  # PyTorch
    (types.SimpleNamespace(ptr=9), 9),  # CuPy
    (types.SimpleNamespace(handle=types.SimpleNamespace(value=10)), 10),  # Numba
    (types.SimpleNamespace(__cuda_stream__=lambda: (0, 11)), 11),  # cuda.core
    (types.SimpleNamespace(cuda_stream=0), 0),
])
def test_stream_handles(stream, handle):
    assert _cuda.stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["current", True, object()])
def test_what_is_no_stream(queue, stream):
    with pytest.raises(concert.InvalidArgument, match="is no CUDA stream; give a stream"):
        queue.after(stream)


class Streams:
    """Stands in for CUDA below the library: a stream signals when the test says so."""

    def __init__(self, monkeypatch):
        self.pending = []
        library = _library.library()
        self.real = library.concert_user_timeline_signal
        monkeypatch.setattr(library, "concert_user_timeline_signal_on_stream", self.signal)

    def signal(self, timeline, value, stream, error):
        self.pending.append((stream, timeline, value))
        return 0

    def run(self, stream):
        for one in [one for one in self.pending if one[0] == stream]:
            assert self.real(one[1], one[2], None) == 0
            self.pending.remove(one)


def test_a_queue_waits_for_the_streams_it_is_after(monkeypatch, session, queue):
    streams = Streams(monkeypatch)
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    queue.after(types.SimpleNamespace(cuda_stream=100))
    reached = queue.after(200)
    first, second = queue.copy(x, y), queue.copy(x, y)
    streams.run(200)
    reached.wait()
    assert not first.done() and not second.done()  # 100 has not come so far
    streams.run(100)
    second.wait()
    # What is on the stream later is of no interest to what was submitted, but to what follows.
    queue.after(100)
    third = queue.copy(x, y)
    assert not third.done()
    streams.run(100)
    third.wait()
    queue.copy(x, y).wait()


@pytest.fixture
def contexts(monkeypatch, tmp_path):
    """A libcuda with contexts: set(number) makes one current on all threads, 0 none."""
    source = tmp_path / "cuda.c"
    source.write_text("""
        unsigned long long current;
        int cuCtxGetCurrent(unsigned long long* context) { *context = current; return 0; }
    """)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1"], check=True)
    cuda = ctypes.CDLL(str(tmp_path / "libcuda.so.1"))
    _cuda._context_getter.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(_cuda.ctypes, "CDLL", lambda name: cuda)
        assert _cuda._context_getter()
    current = ctypes.c_ulonglong.in_dll(cuda, "current")
    yield lambda number: setattr(current, "value", number)
    _cuda._context_getter.cache_clear()


def signal_in_a_thread(session, stream):
    told = []
    thread = threading.Thread(target=lambda: told.append(session._signal_on(stream)))
    thread.start()
    thread.join()
    return told[0]


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_each_device_has_default_streams_of_its_own(monkeypatch, session, queue, contexts, stream):
    streams = Streams(monkeypatch)
    contexts(0x1000)
    one = session._signal_on(stream)
    contexts(0x2000)
    other = session._signal_on(stream)
    assert other.timeline != one.timeline
    contexts(0x1000)
    again = session._signal_on(stream)
    assert (again.timeline, again.value) == (one.timeline, one.value + 1)
    streams.run(stream)


def test_threads_share_streams_but_the_one_that_each_has(monkeypatch, session, queue, contexts):
    streams = Streams(monkeypatch)
    contexts(0x1000)
    mine = {stream: session._signal_on(stream).timeline for stream in (0, 1, 2, 100)}
    # One after the other, so that they may have the same number.
    theirs = [{stream: signal_in_a_thread(session, stream).timeline for stream in mine}
              for _ in range(2)]
    for stream in (0, 1, 100):
        assert {mine[stream]} == {one[stream] for one in theirs}
    assert len({mine[2], *(one[2] for one in theirs)}) == 3
    for stream in mine:
        streams.run(stream)


def test_streams_without_end_take_timelines_of_idle_ones(monkeypatch, session, queue):
    streams = Streams(monkeypatch)
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    queue.after(1)  # is busy all the time
    held = queue.copy(x, y)
    for stream in range(2, 200):
        queue.after(stream)
        streams.run(stream)
    assert not held.done()
    mine = [session.user_timeline() for _ in range(32)]  # what streams leave to the user
    streams.run(1)
    held.wait()
    for timeline in mine:
        timeline.close()


def test_busy_streams_share_no_timeline(monkeypatch, session, queue):
    streams = Streams(monkeypatch)
    reached = [queue.session._signal_on(stream) for stream in range(40)]
    assert len({ticket.timeline for ticket in reached}) == 40
    streams.run(39)
    assert [ticket.done() for ticket in reached] == [False] * 39 + [True]
    for stream in range(39):
        streams.run(stream)


def test_after_counts_as_waits(monkeypatch, session, queue):
    streams = Streams(monkeypatch)
    x, y = session.zeros((4,), "fp32"), session.zeros((4,), "fp32")
    queue.after(100)
    gate = session.user_timeline().at(0)
    with pytest.raises(concert.InvalidArgument, match="5 tickets, 1 of them from after"):
        queue.copy(x, y, waits=[gate] * 4)
    streams.run(100)
    queue.copy(x, y, waits=[gate] * 3).wait()


def test_refused_ops_leave_one_wait_for_a_stream(monkeypatch, session, queue):
    streams = Streams(monkeypatch)
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    for _ in range(5):
        queue.after(100)
        with pytest.raises(concert.InvalidArgument):
            queue.copy(x, y, deadline_ns=-1)
    ticket = queue.copy(x, y)
    for _, timeline, value in streams.pending[:-1]:
        assert streams.real(timeline, value, None) == 0
    assert not ticket.done()  # it waits for the last of them
    streams.run(100)
    ticket.wait()


def test_streams_that_have_come_are_no_waits(monkeypatch, session, queue):
    streams = Streams(monkeypatch)
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    for stream in range(100, 106):
        queue.after(stream)
    with pytest.raises(concert.InvalidArgument, match="6 tickets, 6 of them from after"):
        queue.copy(x, y)
    for stream in (100, 102):
        streams.run(stream)
    ticket = queue.copy(x, y)
    assert not ticket.done()
    for stream in (101, 103, 104, 105):
        streams.run(stream)
    ticket.wait()

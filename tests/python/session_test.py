"""Sessions, queues, waits, timelines, collectives and copies; closing, forking and dying."""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import concert
from concert import _queue


def test_connect_without_a_daemon_says_what_to_do(tmp_path):
    with pytest.raises(concert.Unavailable) as caught:
        concert.connect(tmp_path / "none.sock")
    assert caught.value.code == concert.Code.UNAVAILABLE
    assert "start concertd or set CONCERT_FALLBACK=cublas" in caught.value.message


@pytest.mark.parametrize("options, sentence", [
    (dict(name="x" * 64), "client_name is longer than 63 bytes"),
    (dict(name="a\0b"), "must not contain a zero byte"),
    (dict(gpus=[64]), "gpus holds 64"),
    (dict(fallback=7), "fallback is 7; it must be one of Fallback.ENVIRONMENT"),
])
def test_bad_connect_options(daemon, options, sentence):
    with pytest.raises(concert.InvalidArgument, match=sentence):
        concert.connect(daemon.socket, **options)


@pytest.mark.parametrize("major", [9, 0])
def test_a_daemon_of_another_version_is_refused_with_both_versions(daemon, tmp_path, major):
    """A server that answers Hello as a daemon with a newer or older ring ABI would."""
    path = str(tmp_path / "old.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()

        def answer():
            with server.accept()[0] as client:
                magic, kind, _, request, _ = struct.unpack_from("=IHHII", client.recv(4096))
                # The reply's size is that of the daemon's own struct, which the library expects.
                size = reply_bytes()
                reply = struct.pack("=IHHII", magic, kind, size, request, 0)
                reply += struct.pack("=II192s", 0, 0, b"") + struct.pack("=HHI", major, 5, 1)
                client.send(reply.ljust(size, b"\0"))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(concert.FailedPrecondition, match=rf"speaks version {major}.5 of the ring "
                           r"ABI, this libconcert \d.*install matching versions"):
            concert.connect(path)
        thread.join()


def test_an_older_daemon_of_this_version_lacks_what_is_newer(daemon, tmp_path):
    """Between the two stands somebody who lets the daemon say that it speaks 1.0."""
    path = str(tmp_path / "older.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()
        thread = threading.Thread(target=stand_between, args=(server, daemon.socket, as_of_1_0))
        thread.start()
        with concert.connect(path) as session, session.queue() as queue:
            x, y = session.array(np.eye(4, dtype=np.float32)), session.zeros((4, 4), "fp32")
            queue.gemm(x, x, y).wait()
            assert y.read().tolist() == np.eye(4).tolist()
            with pytest.raises(concert.Unimplemented, match="which this daemon does not know; "
                                                            "update concertd"):
                queue.rms_norm(x, session.zeros((4,), "fp32"), y)
        del session, queue, x, y, server  # the last of the connection
        thread.join()


def as_of_1_0(hello_reply):
    """Minor version 0 and its features: CUDA and host memory."""
    minor, features = 16 + 8 + 192 + 2, 16 + 8 + 192 + 8
    changed = bytearray(hello_reply)
    struct.pack_into("=H", changed, minor, 0)
    offered, = struct.unpack_from("=Q", changed, features)
    struct.pack_into("=Q", changed, features, offered & 3)
    return bytes(changed)


def stand_between(server, daemon_socket, change):
    """Passes on all packets of one client and their file descriptors; changes the first reply."""
    with server.accept()[0] as client, \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as upstream:
        upstream.connect(daemon_socket)
        ends = {client: upstream, upstream: client}
        while True:
            for one in select.select(list(ends), [], [])[0]:
                packet, fds, _, _ = socket.recv_fds(one, 1 << 17, 16)
                if not packet:
                    return
                if one is upstream and change:
                    packet, change = change(packet), None
                socket.send_fds(ends[one], [packet], fds)
                for fd in fds:
                    os.close(fd)


def reply_bytes():
    """sizeof(concert_hello_reply), asked of the running daemon."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(os.environ["CONCERT_SOCKET"])
        hello = struct.pack("=HHIQQ64s", 1, 0, 0, 0, 0, b"size")
        client.send(struct.pack("=IHHII", 0x54434E43, 1, 16 + len(hello), 1, 0) + hello)
        return len(client.recv(65536))


@pytest.mark.sim_only
def test_gpus_and_session(session):
    assert [gpu.index for gpu in session.gpus] == [0, 1]
    assert session.gpus[0].backend == concert.Backend.SIM and session.gpus[0].sm_count == 132
    assert session.id > 0 and not session.local
    with pytest.raises(concert.InvalidArgument, match="gpu is 7"):
        session.queue(gpu=7)
    with pytest.raises(concert.InvalidArgument, match="gpu is -1"):
        session.allocate(16, gpu=-1)


def gate_of(session):
    """A timeline that holds ops back until the test lets them go."""
    timeline = session.user_timeline()
    return timeline, timeline.at(1)


def test_ops_wait_for_user_timelines_and_tickets_of_other_queues(session):
    x = session.array(np.eye(8, dtype=np.float32))
    y, z = session.zeros((8, 8), "fp32"), session.zeros((8, 8), "fp32")
    with session.queue() as first, session.queue(priority=concert.Priority.HIGH) as second:
        timeline, gate = gate_of(session)
        up = first.gemm(x, x, y, waits=[gate], deadline_ns=time.monotonic_ns())
        down = second.gemm(y, x, z, waits=[(up.timeline, up.value)])
        assert not up.done() and not down.done() and not up.poll()
        timeline.signal(1)
        down.wait()
        assert up.done() and up.poll()
        np.testing.assert_array_equal(z.read(), np.eye(8, dtype=np.float32))
        assert first.last == up and first.last in {up}


def test_ops_wait_for_tickets_of_another_session(daemon, session, queue):
    with concert.connect(daemon.socket) as other, other.queue() as others_queue:
        timeline, gate = gate_of(other)
        theirs = others_queue.copy(other.zeros(4, "fp32"), other.zeros(4, "fp32"), waits=[gate])
        x = session.zeros((4,), "fp32")
        mine = queue.copy(x, session.zeros((4,), "fp32"), waits=[theirs])
        assert not mine.done()
        timeline.signal(1)
        mine.wait()
        with pytest.raises(concert.InvalidArgument, match="let an op wait for it instead"):
            session.ticket(theirs.timeline, theirs.value).wait()


def test_memory_of_another_session_is_refused(daemon, session, queue):
    """Buffers are numbers to the daemon: the wrong memory would be used without a word."""
    mine = session.zeros((4, 4), "fp32")
    with concert.connect(daemon.socket) as other:
        theirs = other.zeros((4, 4), "fp32")
        group = other.join("theirs", 0, 1)
        for use in (lambda: queue.gemm(mine, theirs, mine), lambda: queue.copy(mine, theirs),
                    lambda: queue.gemm(mine, mine, mine, bias=theirs[0]),
                    lambda: queue.all_reduce(group, mine)):
            with pytest.raises(concert.InvalidArgument, match="is of another session than the"):
                use()
        op = concert.Gemm(theirs, theirs, other.zeros((4, 4), "fp32"))
        for use in (lambda: queue.submit(op), lambda: queue.barrier(group)):
            with pytest.raises(concert.InvalidArgument, match="the op is of another session than "
                                                              "the queue; make it of buffers of"):
                use()


def test_too_many_waits(session, queue):
    x = session.zeros((4,), "fp32")
    with pytest.raises(concert.InvalidArgument, match="waits has 5 tickets; .* at most 4"):
        queue.copy(x, session.zeros((4,), "fp32"), waits=[session.user_timeline().at(0)] * 5)
    with pytest.raises(concert.InvalidArgument, match="waits are"):
        queue.copy(x, session.zeros((4,), "fp32"), waits=[(-1, 0)])
    with pytest.raises(concert.InvalidArgument, match="deadline_ns is -1"):
        queue.copy(x, session.zeros((4,), "fp32"), deadline_ns=-1)


def test_a_wait_ends_with_its_timeout_and_names_it(session, queue):
    timeline, gate = gate_of(session)
    x = session.zeros((4,), "fp32")
    ticket = queue.copy(x, session.zeros((4,), "fp32"), waits=[gate])
    for timeout, sentence in ((0.001, "within 1.000 ms"), (0.25, "within 250.000 ms")):
        with pytest.raises(TimeoutError, match=sentence) as caught:
            ticket.wait(timeout=timeout)
        assert caught.value.code == concert.Code.DEADLINE_EXCEEDED
    timeline.signal(1)
    ticket.wait(timeout=60)


def test_an_op_that_timed_out_tells_so_in_a_wait_without_end(start_daemon):
    daemon = start_daemon("short", "--wait-timeout-ms", "20")
    with concert.connect(daemon.socket) as session, session.queue() as queue:
        _, gate = gate_of(session)
        x = session.zeros((4,), "fp32")
        with pytest.raises(concert.DeadlineExceeded):
            queue.copy(x, session.zeros((4,), "fp32"), waits=[gate]).wait()


def test_a_wait_can_be_interrupted(session, queue):
    timeline, gate = gate_of(session)
    x = session.zeros((4,), "fp32")
    ticket = queue.copy(x, session.zeros((4,), "fp32"), waits=[gate])
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        ticket.wait()
    timeline.signal(1)
    ticket.wait()


def test_queues_share_the_functions_of_the_library(monkeypatch, session, queue):
    monkeypatch.setattr(_queue, "by_address", None)  # the first queue has them
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    with session.queue() as another:
        another.copy(x, y).wait()
    assert y.read().tolist() == [1] * 4


def test_batch(session, queue):
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    with session.batch():
        queue.copy(x, y)
    queue.last.wait()
    assert y.read().tolist() == [1] * 4


def test_copies(session, queue):
    src, dst = session.allocate(64), session.allocate(64)
    src.write(bytes(range(64)))
    queue.copy(src, dst).wait()
    assert dst.read() == bytes(range(64))
    with pytest.raises(concert.InvalidArgument, match="src has 64 bytes and dst 32"):
        queue.copy(src, session.allocate(32))
    matrix = session.zeros((4, 4), "fp32")
    with pytest.raises(concert.InvalidArgument, match="src has shape .* must be contiguous"):
        queue.copy(matrix[:, :2], session.zeros((4, 2), "fp32"))


def test_a_write_has_ended_when_it_returns(session, queue):
    """Small ones too, which CUDA only stages: the buffer may go, and ops may read it, at once."""
    dst = session.zeros((1024,), "fp32")
    for turn in range(300):
        values = np.full(1024, turn, np.float32)
        session.array(values[:16]).buffer.close()
        queue.copy(session.array(values), dst).wait()
        assert (dst.read() == turn).all()


@pytest.mark.sim_only  # two GPUs
def test_collectives_of_two_ranks(daemon):
    with concert.connect(daemon.socket) as one, concert.connect(daemon.socket) as two:
        queues = [one.queue(gpu=0), two.queue(gpu=1)]
        groups = [one.join("tp", 0, 2, gpu=0), two.join("tp", 1, 2, gpu=1)]
        ranks = list(zip((one, two), queues, groups))
        values = [np.arange(4, dtype=np.float32) + 10 * rank for rank in range(2)]

        def run(submit, size):
            """Submits for both ranks, then waits for both: a collective needs all of them."""
            outs = [session.zeros(size, "fp32", gpu=rank)
                    for rank, (session, _, _) in enumerate(ranks)]
            tickets = [submit(queue, group, session.array(values[rank], gpu=rank), outs[rank])
                       for rank, (session, queue, group) in enumerate(ranks)]
            for ticket in tickets:
                ticket.wait(timeout=60)
            return [out.read().tolist() for out in outs]

        total, both = (values[0] + values[1]).tolist(), np.concatenate(values).tolist()
        assert run(lambda q, g, x, y: q.all_reduce(g, x, y), 4) == [total] * 2
        assert run(lambda q, g, x, y: q.all_reduce(g, x, y, reduction=concert.Reduction.MAX),
                   4) == [values[1].tolist()] * 2
        assert run(lambda q, g, x, y: q.all_gather(g, x, y), 8) == [both] * 2
        assert run(lambda q, g, x, y: q.reduce_scatter(g, x, y), 2) == [total[:2], total[2:]]
        assert run(lambda q, g, x, y: q.all_to_all(g, x, y), 4) == [
            [*values[0][:2], *values[1][:2]], [*values[0][2:], *values[1][2:]]]
        assert run(lambda q, g, x, y: q.broadcast(g, x, y, root=1), 4) == [values[1].tolist()] * 2
        assert run(lambda q, g, x, y: q.barrier(g), 1) == [[0], [0]]
        with pytest.raises(concert.InvalidArgument, match="all_gather of 2 ranks: src has 4 "):
            queues[0].all_gather(groups[0], one.zeros((4,), "fp32"), one.zeros((4,), "fp32"))
        with pytest.raises(concert.InvalidArgument, match="root is 2; it must be below 2"):
            queues[0].broadcast(groups[0], one.zeros((4,), "fp32"), root=2)


def test_closed_things_say_so(daemon):
    session = concert.connect(daemon.socket)
    queue, timeline, group = session.queue(), session.user_timeline(), session.join("solo", 0, 1)
    x, y = session.zeros((4,), "fp32"), session.zeros((4,), "fp32")
    ticket = queue.copy(x, y)
    ticket.wait()
    for thing, use, what in (
            (timeline, lambda: timeline.signal(1), "user timeline"),
            (group, lambda: queue.barrier(group), "communicator"),
            (queue, lambda: queue.copy(x, y), "queue"),
            (x.buffer, lambda: x.read(), "buffer")):
        assert not thing.closed
        thing.close()
        thing.close()
        assert thing.closed
        with pytest.raises(concert.FailedPrecondition, match=f"the {what} is closed"):
            use()
    session.close()
    assert ticket.done()  # there is nothing more to wait for
    for use in (ticket.wait, ticket.poll, session.queue, lambda: session.batch().__enter__()):
        with pytest.raises(concert.Unavailable, match="the session is closed; open a new one"):
            use()


def test_an_exception_keeps_no_closed_session_open(daemon):
    session = concert.connect(daemon.socket)
    x = session.zeros((4,), "fp32")
    handle, caught = weakref.ref(session._handle), []
    for use in (lambda: session.allocate(2**50), lambda: session.queue(gpu=99),
                lambda: session.join("", 0, 1), lambda: session.program(gpu=99),
                lambda: session.batch(99).__enter__(), lambda: x.buffer.read(0, 17),
                lambda: session.ticket(1, 1).poll(), lambda: session.ticket(1, 1).wait(),
                lambda: session.ticket(1, 1).wait(1)):
        with pytest.raises(concert.Error) as error:
            use()
        caught.append(error.value)
    session.close()
    assert handle() is None and all(error.__traceback__ for error in caught)


def test_closing_a_session_ends_waits_of_other_threads(daemon):
    session = concert.connect(daemon.socket)
    queue = session.queue()
    _, gate = gate_of(session)
    x, y = session.zeros((4,), "fp32"), session.zeros((4,), "fp32")
    ticket = queue.copy(x, y, waits=[gate])
    caught = []

    def wait():
        try:
            ticket.wait()
        except concert.Unavailable as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    session.close()
    thread.join(60)
    assert len(caught) == 1
    with pytest.raises(concert.Unavailable):
        queue.copy(x, y)


def in_child(function):
    """Runs it in a child of fork() and returns what it returns, a text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, function().encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as file:
        return file.read()


def test_a_forked_child_is_told_and_the_parent_goes_on(session, queue):
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    op = concert.Copy(x, y)
    ticket = queue.submit(op)
    timeline = session.user_timeline()

    def child():
        told = []
        for use in (lambda: queue.submit(op), lambda: queue.copy(x, y), ticket.wait, session.queue,
                    x.read, lambda: timeline.signal(1), lambda: queue.last):
            try:
                use()
            except concert.FailedPrecondition as error:
                told.append(error.message)
        # Freed there, they must leave the parent's alone.
        for thing in (timeline, queue, x.buffer, y.buffer, session):
            thing.close()
        return "\n".join(told)

    told = in_child(child).splitlines()
    assert len(told) == 7
    assert all("this process is a fork() of the one that opened the" in one and
               "open one in the child" in one for one in told)
    ticket.wait()
    queue.submit(op).wait()
    timeline.signal(1)
    assert y.read().tolist() == [1] * 4


@pytest.mark.sim_only  # CUDA survives no fork()
def test_a_child_may_open_its_own_session(daemon, session):
    def child():
        with concert.connect(daemon.socket) as own, own.queue() as queue:
            x, y = own.array(np.full(4, 3, np.float32)), own.zeros((4,), "fp32")
            queue.copy(x, y).wait()
            return str(y.read().tolist())

    assert in_child(child) == "[3.0, 3.0, 3.0, 3.0]"


def test_a_daemon_that_dies_and_the_next_session(start_daemon):
    daemon = start_daemon()
    session = concert.connect(daemon.socket)
    queue = session.queue()
    x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
    queue.copy(x, y).wait()
    _, gate = gate_of(session)
    ticket = queue.copy(x, y, waits=[gate])
    daemon.kill()
    with pytest.raises(concert.Unavailable, match="daemon went away"):
        ticket.wait()
    with pytest.raises(concert.Unavailable):
        while True:  # until the library has noticed; the ring is bounded
            queue.copy(x, y)
    assert y.read().tolist() == [1] * 4  # what was done stays done
    with pytest.raises(concert.Unavailable):
        session.allocate(16)
    session.close()

    with concert.connect(start_daemon().socket) as session, session.queue() as queue:
        x, y = session.array(np.ones(4, np.float32)), session.zeros((4,), "fp32")
        queue.copy(x, y).wait()
        assert y.read().tolist() == [1] * 4


def test_a_full_ring_without_patience(start_daemon):
    daemon = start_daemon("small", "--ring-capacity", "16")
    with concert.connect(daemon.socket, submit_timeout=0) as session, session.queue() as queue:
        timeline, gate = gate_of(session)
        x, y = session.zeros((4,), "fp32"), session.zeros((4,), "fp32")
        op = concert.Copy(x, y)
        queue.submit(op, [gate])
        with pytest.raises(concert.ResourceExhausted):
            for _ in range(100_000):
                queue.submit(op)
        timeline.signal(1)
        queue.last.wait()


def test_user_timelines_run_out_with_a_sentence(session):
    timelines = []
    with pytest.raises(concert.ResourceExhausted, match="user timelines of the session are in use"):
        for _ in range(1000):
            timelines.append(session.user_timeline())
    assert len(timelines) == 64
    timelines[0].close()
    session.user_timeline()


def run_script(script):
    """What a Python of its own prints, and its status."""
    path = os.pathsep.join(sys.path)
    ended = subprocess.run([sys.executable, "-X", "faulthandler", "-c", script], timeout=60,
                           env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def test_without_numpy(daemon):
    """Bytes go in and out all the same; arrays say what they need."""
    assert run_script("""
import struct, sys
sys.modules["numpy"] = None  # as where it is not installed
import concert
with concert.connect() as session, session.queue() as queue:
    x = session.allocate(16)
    x.write(struct.pack("4f", 1, 2, 3, 4))
    x, y = x.tensor((2, 2), "fp32"), session.zeros((2, 2), "fp32")
    queue.gemm(x, x, y).wait()
    print(struct.unpack("4f", y.buffer.read()))
    try:
        session.array([1.0])
    except concert.FailedPrecondition as error:
        print(error.message.split(";")[0])
""") == (0, "(5.0, 11.0, 11.0, 25.0)\nnumpy is not installed\n", "")


@pytest.mark.sim_only  # views of numpy
def test_leaving_with_everything_open_is_clean(daemon):
    """A script that ends while tickets are awaited, views and capsules alive."""
    assert run_script("""
import asyncio, concert, numpy as np
session = concert.connect()
queue, timeline = session.queue(), session.user_timeline()
x, y = session.zeros(4, "fp32"), session.zeros(4, "fp32")
view, array, capsule = x.numpy(), np.from_dlpack(y), y.__dlpack__()
ticket = queue.copy(x, y, waits=[timeline.at(1)])

async def main():
    async def wait():
        await ticket
    try:
        await asyncio.wait_for(wait(), 0.01)
    except asyncio.TimeoutError:
        print("left")

asyncio.run(main())
""") == (0, "left\n", "")


@pytest.mark.sim_only  # views of numpy
def test_threads_that_close_what_others_use(daemon):
    """Buffers, queues and sessions closed under running calls: exceptions, never a crash."""
    session = concert.connect(daemon.socket)
    unexpected = []
    shared = [session.zeros(1024, "fp32") for _ in range(4)]

    def use_and_close(number, step):
        with session.queue() as queue:
            x = shared[(number + step) % 4]
            ticket = queue.copy(x, session.zeros(1024, "fp32"))
            view = x.numpy()
        ticket.wait()
        view[step % 1024] = number  # its memory is there, whoever has closed the buffer
        if step % 16 == number:
            shared[number].buffer.close()
            shared[number] = session.zeros(1024, "fp32")

    def work(number):
        for step in range(100_000):  # until the session is closed
            try:
                use_and_close(number, step)
            except concert.FailedPrecondition:
                pass  # another thread has closed the buffer
            except concert.Unavailable:
                return
            except BaseException as error:
                unexpected.append(error)
                return

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    threads[0].join(0.5)
    session.close()
    for thread in threads:
        thread.join(60)
    assert not unexpected and not any(thread.is_alive() for thread in threads)

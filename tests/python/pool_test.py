"""The pool's C functions, which a framework's allocator calls, through ctypes."""

import ctypes
import os
import threading

import pytest

import concert
from concert import _abi, _library


def use(session):
    _library.call("concert_pool_use", session._handle if session else None)


def allocate(size, device=0):
    return _library.library().concert_pool_allocate(size, device, None)


def free(address):
    _library.library().concert_pool_free(address, 0, 0, None)


def find(session, address):
    found = _abi.concert_slice()
    _library.call("concert_pool_find", session._handle, address, ctypes.byref(found))
    return found.buffer, found.offset


@pytest.fixture
def pool(session):
    use(session)
    yield session
    use(None)


def test_memory_is_a_buffers_and_ops_use_it(pool, queue):
    address = allocate(4096)
    values = (ctypes.c_float * 16).from_address(address)
    assert set(values) == {0.0}
    values[:] = [3.0] * 16
    buffer, offset = find(pool, address + 32)
    assert offset == 32 and _library.library().concert_buffer_bytes(buffer) == 4096

    op = _abi.concert_copy(struct_size=ctypes.sizeof(_abi.concert_copy), bytes=32)
    op.src.buffer = op.dst.buffer = buffer
    op.dst.offset = 2048
    ticket = _abi.concert_ticket()
    _library.call("concert_submit_copy", queue._handle, ctypes.byref(op), None,
                  ctypes.byref(ticket))
    concert.Ticket(pool, ticket.timeline, ticket.value).wait()
    assert list((ctypes.c_float * 8).from_address(address + 2048)) == [3.0] * 8
    free(address)


def test_addresses_are_found_up_to_their_buffers_end(pool):
    first, second = allocate(4096), allocate(8192)
    assert find(pool, first + 4095) == (find(pool, first)[0], 4095)
    assert find(pool, second + 8191)[0] == find(pool, second)[0] != find(pool, first)[0]
    free(first)
    with pytest.raises(concert.NotFound, match="is in no memory of the pool"):
        find(pool, first)
    assert find(pool, second)[1] == 0
    free(second)
    with pytest.raises(concert.NotFound):
        find(pool, 1)


def test_frees_are_counted(pool):
    address = allocate(64)
    before = _library.library().concert_pool_frees()
    free(address)
    free(address)  # nobody's any more
    free(None)
    assert _library.library().concert_pool_frees() == before + 1


def test_what_is_missing_is_said(pool, capfd):
    assert allocate(64, device=1000) is None
    assert "device is 1000; the daemon has" in capfd.readouterr().err
    assert allocate(1 << 60) is None
    assert f"libconcert: no {1 << 60} bytes for the pool: " in capfd.readouterr().err
    use(None)
    assert allocate(64) is None
    assert "no session is open that concert_pool_use was given" in capfd.readouterr().err


def test_memory_of_another_session_is_refused(pool, daemon):
    address = allocate(64)
    with concert.connect(daemon.socket) as other:
        with pytest.raises(concert.FailedPrecondition, match="made with another session"):
            find(other, address)
    free(address)


def test_a_closed_session_gives_no_more_and_its_memory_stays(daemon, capfd):
    session = concert.connect(daemon.socket)
    use(session)
    address = allocate(64)
    session.close()
    assert allocate(64) is None
    assert "session" in capfd.readouterr().err
    ctypes.memset(address, 7, 64)
    assert bytes((ctypes.c_uint8 * 64).from_address(address)) == b"\7" * 64
    free(address)


def test_threads_share_it(pool):
    def work():
        for size in range(1, 50):
            address = allocate(size)
            ctypes.memset(address, size, size)
            assert find(pool, address + size - 1)[1] == size - 1
            free(address)
        done.append(True)

    done = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4


def test_a_child_has_a_pool_of_its_own(pool, daemon):
    address = allocate(64)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with concert.connect(daemon.socket) as session:
                use(session)
                own = allocate(64)
                find(session, own)
                free(own)
                free(address)  # the parent's: left alone
                with pytest.raises(concert.NotFound):
                    find(session, address)
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert find(pool, address)[1] == 0
    free(address)

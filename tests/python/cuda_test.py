"""On a GPU: tensors of PyTorch in concert's ops and back, streams that wait, and the pool.

Results are compared with PyTorch's own. `tests/gpu/run --steps python` runs it.
"""

import gc
import os
import pathlib
import re
import subprocess
import sys
import threading
import types
import weakref

import pytest

import concert

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import concert.torch  # noqa: E402
from concert.torch import _context  # noqa: E402

pytestmark = pytest.mark.cuda_only
ROOT = pathlib.Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "python.md"
CUDA = torch.device("cuda", 0)
EXACT = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.fixture(autouse=True)
def quiet():
    """No stream waits for a session that ends."""
    with torch.inference_mode():
        yield
    torch.cuda.synchronize()
    concert.torch.use(None)


def randn(*shape, dtype=torch.float32, seed=1):
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=CUDA).to(dtype)


def check(y, x, w):
    wanted = x.double() @ w.double().t()
    torch.testing.assert_close(y.double(), wanted, rtol=EXACT[x.dtype], atol=EXACT[x.dtype])


class Held:
    """A stream that goes no further than here until release(); and then fails, for whom it hung."""

    def __init__(self, session, stream):
        self.timeline, self.queue = session.user_timeline(), session.queue()
        self.x, self.y = session.zeros((4,), "fp32"), session.zeros((4,), "fp32")
        # The first call for a stream pins memory, which must not happen behind the held one.
        self.queue.after(stream)
        self.queue.copy(self.x, self.y, waits=[self.timeline.at(1)]).wait(stream)
        self.bound = threading.Timer(30, self.timeline.signal, [1])
        self.bound.start()

    def release(self):
        assert self.bound.is_alive(), "a call waited for the held stream"
        self.bound.cancel()
        self.timeline.signal(1)


# ---- tensors of PyTorch in ops


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_imported_tensors_are_operands(session, queue, dtype):
    x, w = randn(24, 64, dtype=dtype), randn(48, 64, dtype=dtype, seed=2)
    y = randn(24, 48, dtype=dtype)
    operands = [session.import_array(one) for one in (x, w, y)]
    assert [one.shape for one in operands] == [(24, 64), (48, 64), (24, 48)]
    queue.after(torch.cuda.current_stream())
    queue.gemm(*operands).wait(torch.cuda.current_stream())
    check(y, x, w)


def test_views_keep_their_offset_and_strides(session, queue):
    x, w, y = randn(40, 128), randn(32, 64, seed=2), torch.zeros(24, 64, device=CUDA)
    part, into = x[8:32, 64:], y[:, 32:]
    taken = session.import_array(part)
    assert taken.strides == (128, 1)
    queue.after(torch.cuda.current_stream())
    queue.gemm(taken, session.import_array(w), session.import_array(into)).wait(
        torch.cuda.current_stream())
    check(into, part, w)
    assert not y[:, :32].any()


def test_through_the_cuda_array_interface(session, queue):
    x, w, y = randn(8, 64), randn(16, 64, seed=2), randn(8, 16)
    operands = [session.import_array(types.SimpleNamespace(
        __cuda_array_interface__=one.__cuda_array_interface__)) for one in (x, w, y)]
    queue.after(torch.cuda.current_stream())
    queue.gemm(*operands).wait(torch.cuda.current_stream())
    check(y, x, w)


def test_an_imported_tensor_lives_as_long_as_its_buffer(session):
    x = randn(8, 64)
    alive = weakref.ref(x)
    tensor = session.import_array(x)
    del x
    gc.collect()
    assert alive() is not None
    tensor.buffer.close()
    del tensor
    gc.collect()
    assert alive() is None


def test_what_is_no_memory_of_a_gpu(session):
    for array, sentence in (
            (torch.zeros(4), "in the host, and only memory of a CUDA device can be imported"),
            (torch.zeros(4, dtype=torch.int16, device=CUDA), "DLPack type 0 with 16 bits"),
            (torch.zeros(0, 4, device=CUDA), "there is nothing to register")):
        with pytest.raises(concert.InvalidArgument, match=sentence):
            session.import_array(array)


# ---- concert's tensors in PyTorch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dlpack_shares_the_daemons_memory(session, dtype):
    tensor = session.zeros((6, 8), dtype)
    shared = torch.from_dlpack(tensor)
    assert shared.device == CUDA and shared.dtype == dtype and shared.shape == (6, 8)
    assert shared.data_ptr() == tensor.buffer.address
    shared.copy_(randn(6, 8))
    torch.cuda.synchronize()
    assert bytes(tensor.buffer.read()) == shared.cpu().view(torch.uint8).numpy().tobytes()
    part = torch.from_dlpack(tensor[1:5, 2:6])
    assert torch.equal(part, shared[1:5, 2:6])


def test_dlpack_memory_outlives_its_buffer(session):
    tensor = session.zeros((6, 8), "fp32")
    shared = torch.from_dlpack(tensor)
    shared.fill_(3)
    tensor.buffer.close()
    del tensor
    gc.collect()
    assert shared.sum().item() == 3 * 48


def test_the_cuda_array_interface_shares_it_too(session):
    tensor = session.zeros((6, 8), "fp32")[1:, 2:]
    shared = torch.as_tensor(tensor, device=CUDA)
    assert shared.data_ptr() == tensor.buffer.address + tensor.offset
    assert shared.stride() == (8, 1)
    shared.fill_(2)
    torch.cuda.synchronize()
    whole = torch.frombuffer(tensor.buffer.read(), dtype=torch.float32).view(6, 8)
    assert whole[1:, 2:].eq(2).all() and whole.sum() == 2 * 30


# ---- streams


def test_a_stream_waits_for_an_op(session, queue):
    x, y = torch.ones(64, device=CUDA), torch.zeros(64, device=CUDA)
    seen, stream = torch.zeros(64, device=CUDA), torch.cuda.Stream()
    source, target = session.import_array(x), session.import_array(y)
    torch.cuda.synchronize()
    timeline = session.user_timeline()
    ticket = queue.copy(source, target, waits=[timeline.at(1)])
    ticket.wait(stream)
    with torch.cuda.stream(stream):
        seen.copy_(y)
        event = stream.record_event()
    # This thread came here, and neither the op nor the stream is done.
    assert not ticket.done() and not event.query()
    timeline.signal(1)
    event.synchronize()
    ticket.wait()
    assert seen.eq(1).all()


def test_an_op_waits_for_a_stream(session, queue):
    x, y = torch.ones(64, device=CUDA), torch.zeros(64, device=CUDA)
    source, target = session.import_array(x), session.import_array(y)
    stream = torch.cuda.Stream()
    x.fill_(1)  # loads the kernel, which a held stream might keep from being loaded
    torch.cuda.synchronize()
    held = Held(session, stream)
    with torch.cuda.stream(stream):
        x.fill_(2)
    queue.after(stream)
    ticket = queue.copy(source, target)
    assert not ticket.done()
    held.release()
    ticket.wait()
    assert y.eq(2).all()


def test_a_stream_signals_a_timeline_in_its_order(session, queue):
    stream = torch.cuda.Stream()
    x = session.array(torch.ones(4).numpy())
    y = session.zeros((4,), "fp32")
    held = Held(session, stream)
    timeline = session.user_timeline()
    timeline.signal(5, stream)
    ticket = queue.copy(x, y, waits=[timeline.at(5)])
    assert not ticket.done()
    held.release()
    ticket.wait()
    assert y.read().tolist() == [1] * 4


def test_ops_and_kernels_take_turns_on_one_stream(session, queue):
    """A chain through both: each step reads what the one before wrote."""
    x, w, y = randn(16, 64), randn(64, 64, seed=2) / 8, torch.empty(16, 64, device=CUDA)
    wanted, stream = x.double(), torch.cuda.Stream()
    torch.cuda.synchronize()
    operands = [session.import_array(one) for one in (x, w, y)]
    with torch.cuda.stream(stream):
        for _ in range(10):
            queue.after(stream)
            queue.gemm(*operands).wait(stream)
            x.copy_(y.tanh())
    for _ in range(10):
        wanted = (wanted @ w.double().t()).tanh()
    stream.synchronize()
    torch.testing.assert_close(x.double(), wanted, rtol=1e-4, atol=1e-4)


# ---- concert.torch


def test_linear_keeps_the_order_of_its_stream(session):
    concert.torch.use(session)
    w, stream = randn(64, 64, seed=2) / 8, torch.cuda.Stream()
    x, wanted = randn(16, 64), randn(16, 64).double()
    torch.ops.concert.linear(x, w)  # a lane, and kernels that are loaded
    x.tanh()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        held = Held(session, stream)
        y = x
        for _ in range(10):
            y = torch.ops.concert.linear(y, w).tanh()
        event = stream.record_event()
    assert not event.query()  # this thread went on
    held.release()
    for _ in range(10):
        wanted = (wanted @ w.double().t()).tanh()
    stream.synchronize()
    torch.testing.assert_close(y.double(), wanted, rtol=1e-4, atol=1e-4)


def test_linear_on_a_device_that_is_not_current(session):
    """Its default stream, which has the number of the current device's."""
    if torch.cuda.device_count() < 2 or len(session.gpus) < 2:
        pytest.skip("needs two GPUs")
    concert.torch.use(session)
    x, w = randn(16, 64).to("cuda:1"), (randn(64, 64, seed=2) / 8).to("cuda:1")
    y, wanted = x, x.double()
    for _ in range(10):
        y = torch.ops.concert.linear(y, w).tanh()
        wanted = (wanted @ w.double().t()).tanh()
    assert torch.cuda.current_device() == 0
    torch.cuda.synchronize(1)
    torch.testing.assert_close(y.double(), wanted, rtol=1e-4, atol=1e-4)


def test_a_failure_that_the_stream_did_not_learn_is_raised_later(session):
    concert.torch.use(session)
    x, w = randn(4, 64), randn(32, 64)
    out = torch.ops.concert.linear(x, w)
    lane = _context.context().lanes[0]
    prepared = lane.prepare(x, w, None)
    prepared.gemm._struct.m = 1 << 30
    lane._run_on_stream(x, w, None, out, prepared)
    torch.cuda.synchronize()  # the stream goes on all the same
    with pytest.raises(concert.InvalidArgument, match="m is 1073741824"):
        torch.ops.concert.linear(x, w)
    check(torch.ops.concert.linear(x, w), x, w)


def test_a_cuda_graph_is_refused(session):
    concert.torch.use(session)
    x, w = randn(4, 64), randn(32, 64)
    check(torch.ops.concert.linear(x, w), x, w)
    with pytest.raises(concert.FailedPrecondition, match="a CUDA graph cannot hold"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.ops.concert.linear(x, w)
    check(torch.ops.concert.linear(x, w), x, w)


def test_nothing_of_the_pool_is_imported(session):
    concert.torch.use(session)
    assert concert.torch.pool() is concert.torch.pool()
    with torch.cuda.use_mem_pool(concert.torch.pool()):
        x, w, bias = randn(24, 64), randn(48, 64, seed=2), randn(48, seed=3)
        for _ in range(3):
            y = torch.ops.concert.linear(x, w, bias)
    assert not _context.context().imports._by_address
    torch.testing.assert_close(y, torch.nn.functional.linear(x, w, bias), rtol=1e-5, atol=1e-5)
    # Results outside of the pool are imported, and let go with their last tensor.
    other = torch.ops.concert.linear(x, w)
    check(other, x, w)
    assert len(_context.context().imports._by_address) == 1
    torch.cuda.synchronize()
    del other
    gc.collect()
    assert not _context.context().imports._by_address


def test_memory_of_the_pool_outlives_session_and_pool(daemon):
    told = subprocess.run([sys.executable, "-X", "faulthandler", "-c", """
import gc, concert.torch, torch
with concert.connect() as session:
    concert.torch.use(session)
    with torch.cuda.use_mem_pool(concert.torch.pool()):
        x = torch.full((1024, 1024), 3.0, device="cuda")
    torch.cuda.synchronize()
concert.torch.use(None)
gc.collect()
print(x.sum().item() == 3 << 20)
del x
torch.cuda.empty_cache()
print("freed")
"""], env={**os.environ, "PYTHONPATH": str(ROOT / "client" / "python")}, capture_output=True,
                          text=True, timeout=120)
    assert (told.returncode, told.stdout) == (0, "True\nfreed\n"), told.stderr


# ---- the manual


def blocks_for_gpus():
    return re.findall(r"^```py\n(.*?)^```$", MANUAL.read_text(), re.DOTALL | re.MULTILINE)


def test_the_manuals_exchange(session, queue):
    torch_x, weights = randn(64, 512, dtype=torch.bfloat16), randn(14336, 512, seed=2).bfloat16()
    names = dict(session=session, queue=queue, torch=torch, torch_x=torch_x,
                 w=session.import_array(weights))
    exec(blocks_for_gpus()[0], names)
    check(names["torch_y"], torch_x, weights)
    names["ticket"].wait()


def test_the_manuals_pool(session):
    concert.torch.use(session)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.SiLU(), torch.nn.Linear(256, 8))
    x = torch.ones(3, 64)
    wanted = model(x)
    for layer in (model[0], model[2]):
        layer.forward = types.MethodType(
            lambda self, x: torch.ops.concert.linear(x, self.weight, self.bias), layer)
    names = dict(torch=torch, concert=concert, model=model, x=x.cuda())
    exec(blocks_for_gpus()[1], names)
    torch.testing.assert_close(names["y"].cpu(), wanted, rtol=1e-4, atol=1e-4)

"""concert.torch with a real PyTorch: its CPU tensors on the simulator, CUDA tensors on a GPU.

`tests/run --torch` brings PyTorch; on a GPU `tests/gpu/run --steps python` runs it.
"""

import contextlib
import gc
import os
import pathlib
import re
import subprocess
import sys
import threading
import types

import pytest

import concert

torch = pytest.importorskip("torch", reason="PyTorch is not installed; see tests/run --torch")

import concert.torch  # noqa: E402
from concert.torch import _context, _memory  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
linear = torch.ops.concert.linear
ON_CUDA = os.environ.get("CONCERT_TEST_DEVICE") == "cuda"
DEVICE = torch.device("cuda", 0) if ON_CUDA else torch.device("cpu")


@pytest.fixture(autouse=True)
def in_use(daemon):
    """A session of concert.torch's own with the shared daemon, gone after the test."""
    with torch.inference_mode():
        yield
    if ON_CUDA:
        torch.cuda.synchronize()  # streams are past their waits before the session closes
    if _context._current is not None and _context._current.own:
        _context._current.session.close()
    concert.torch.use(None)


def operands(*shape, n=32, dtype=torch.float32, bias=True):
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(size, generator=generator).to(dtype).to(DEVICE)
            for size in (shape, (n, shape[-1]), (n,))]
    return made if bias else made[:2]


def randn(*shape):
    return torch.randn(shape, device=DEVICE)


def check(x, w, bias=None):
    y = linear(x, w, bias)
    wanted = torch.nn.functional.linear(x.double(), w.double(),
                                        None if bias is None else bias.double())
    assert y.dtype == x.dtype and y.shape == wanted.shape
    exact = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[x.dtype]
    torch.testing.assert_close(y.double(), wanted, rtol=exact, atol=exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(64,), (1, 64), (7, 64), (3, 5, 64), (2, 3, 5, 64)])
def test_it_is_a_linear_layer(shape, bias, dtype):
    check(*operands(*shape, dtype=dtype, bias=bias))


def test_same_shapes_again_with_other_tensors():
    for seed in range(3):
        x, w, bias = operands(4, 64)
        check(x + seed, w - seed, bias)
        check(x, w)


@pytest.mark.parametrize("shape, n", [((0, 64), 32), ((4, 64), 0), ((4, 0), 32)])
def test_nothing_to_multiply(shape, n):
    check(*operands(*shape, n=n))


def test_rows_may_have_gaps():
    x, w, bias = operands(6, 64)
    check(x[:, :48], w[:, 16:], bias)
    check(x[::2], w[::2], bias[:16])
    x, w, bias = operands(2, 3, 64)
    check(x[:, :, :48], w[:, :48], bias)
    check(x[:, 1:2], w, bias)
    check(x[1:], w, bias)


@pytest.mark.parametrize("arguments", [
    operands(4, 64), operands(4, 64, bias=False), operands(2, 3, 64),
    operands(4, 64, dtype=torch.bfloat16)])
def test_opcheck(arguments):
    with torch.inference_mode(False):
        torch.library.opcheck(linear.default, [one.clone() for one in arguments])


def test_torch_compile_takes_it_whole():
    compiled = torch.compile(lambda x, w, bias: linear(torch.relu(x), w, bias).neg(),
                             backend="aot_eager", fullgraph=True)
    for rows in (2, 3, 5):
        x, w, bias = operands(rows, 64)
        wanted = -torch.nn.functional.linear(torch.relu(x), w, bias)
        torch.testing.assert_close(compiled(x, w, bias), wanted)


def test_threads_have_queues_of_their_own():
    def work(rows):
        with torch.inference_mode():
            for _ in range(20):
                check(*operands(rows, 64))
        done.append(rows)

    done = []
    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [1, 2, 3, 4]


# ---- what is refused


X, W, BIAS = operands(4, 64)


@pytest.mark.parametrize("arguments, sentence", [
    ((X.double(), W.double()), "x is torch.float64; concert::linear takes bfloat16, float16 and "
                               "float32"),
    ((X, W.half()), "w is torch.float16 and x is torch.float32; they must be the same"),
    ((X, W, BIAS.bfloat16()), "bias is torch.bfloat16 and x is torch.float32; they must be the "
                              "same"),
    ((X, W[:, :32]), "x has shape (4, 64) and w (32, 32); they must be (..., k) and (n, k)"),
    ((X, W[0]), "x has shape (4, 64) and w (64,); they must be (..., k) and (n, k)"),
    ((X, W, BIAS[:31]), "bias has shape (31,); it must be (n,) = (32,)"),
    ((X, randn(64, 32).t()), "w has strides (1, 32); elements of a row must lie side by side "
                                   "(stride 1): make it contiguous"),
    ((randn(64, 4).t(), W), "x has strides (1, 4); elements of a row must lie side by side "
                                  "(stride 1): make it contiguous"),
    ((X[:1].expand(4, 64), W), "x has strides (0, 1) for shape (4, 64); its rows overlap: make it "
                               "contiguous"),
    ((randn(3, 4, 64)[:, :2], W), "x has shape (3, 2, 64) and strides (256, 64, 1); its rows "
                                        "must be evenly spaced: make it contiguous"),
    ((X, W, randn(64)[::2]), "bias has shape (32,) and strides (2,); it must be (32,) "
                                   "without gaps"),
    ((X, W.to("meta")), f"w is on meta and x is on {DEVICE}; they must be on the "
                        "same device"),
])
def test_what_does_not_go_together(arguments, sentence):
    with pytest.raises(concert.InvalidArgument) as caught:
        linear(*arguments)
    assert caught.value.message == sentence


def test_gradients():
    with torch.inference_mode(False):
        x, w = randn(4, 64), torch.nn.Parameter(randn(32, 64))
        with pytest.raises(concert.FailedPrecondition, match="concert::linear has no gradients: "
                                                             "call it under torch.inference_mode"):
            linear(x, w)
        with torch.no_grad():
            check(x, w)


def test_a_freed_storage():
    x, w, _ = operands(4, 64)
    w.untyped_storage().resize_(0)
    with pytest.raises(concert.InvalidArgument) as caught:
        linear(x, w)
    assert caught.value.message == "w has shape (32, 64) and no memory: its storage was freed"


def test_tensors_of_another_device_than_the_daemons(session, monkeypatch):
    if not ON_CUDA:
        monkeypatch.setattr(session, "backend", concert.Backend.CUDA)
    concert.torch.use(session)
    with pytest.raises(concert.FailedPrecondition, match=r"x is on cpu and the daemon runs on GPUs: "
                                                         r"move it there with .cuda\(\)"):
        linear(*[one.cpu() for one in operands(4, 64)])


# ---- sessions


def test_a_session_of_ones_own(session, daemon):
    concert.torch.use(session, priority=concert.Priority.HIGH)
    assert concert.torch.session() is session
    check(*operands(4, 64))
    session.close()
    for _ in range(2):
        with pytest.raises(concert.Unavailable):
            linear(*operands(4, 64))
    with concert.connect(daemon.socket) as other:
        concert.torch.use(other)
        check(*operands(4, 64))


@pytest.mark.parametrize("rows", [4, 400])  # fewer and more than memory was made for
def test_a_daemon_that_died_and_came_back(start_daemon, monkeypatch, rows):
    daemon = start_daemon()
    monkeypatch.setenv("CONCERT_SOCKET", daemon.socket)
    check(*operands(4, 64))
    first = concert.torch.session()
    daemon.kill()
    if ON_CUDA:  # an op that is submitted before the library notices holds its stream for ever
        with pytest.raises(concert.Unavailable):
            first.allocate(64)
    with pytest.raises(concert.Unavailable, match="session has ended|cannot send to the daemon"):
        linear(*operands(rows, 64))
    with pytest.raises(concert.Unavailable, match="no daemon at"):
        linear(*operands(rows, 64))
    start_daemon()
    check(*operands(4, 64))
    assert concert.torch.session() is not first


@pytest.mark.sim_only  # CUDA does not survive fork()
def test_a_child_of_fork_opens_a_session_of_its_own():
    wanted = linear(X, W)
    child = os.fork()
    if child == 0:
        # Only what needs none of PyTorch's threads, which stay with the parent.
        status = 1
        try:
            with pytest.raises(concert.FailedPrecondition, match="fork"):
                linear(X, W)
            assert torch.equal(linear(X, W), wanted)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    check(*operands(4, 64))


# ---- memory


def submit(x, w, out):
    """As run() does it where everything is the pool's."""
    if ON_CUDA:
        torch.cuda.synchronize()  # this op follows no stream
    lane = lane_in_use()
    ticket = lane.submit(x, w, None, out, lane.prepare(x, w, None))
    if ticket is not None:
        ticket.wait()
    return ticket is not None


def lane_in_use():
    return _context.context().lanes[X.get_device()]


def in_pool(*shape):
    if ON_CUDA:
        with torch.cuda.use_mem_pool(concert.torch.pool()):
            return torch.empty(shape, device=DEVICE)
    memory = _memory.HostMemory(concert.torch.session(), 4 * torch.Size(shape).numel())
    return memory.tensor().view(torch.float32).view(shape)


def test_memory_of_the_pool_is_used_where_it_lies():
    check(*operands(4, 64))  # opens the session
    x, w, out = in_pool(4, 64), in_pool(32, 64), in_pool(4, 32)
    x.copy_(X)
    w.copy_(W)
    assert submit(x, w, out)
    torch.testing.assert_close(out, X @ W.t())
    assert submit(x[1:3], w, out[2:])
    torch.testing.assert_close(out[2:], X[1:3] @ W.t())
    # Other memory the simulator does not see, and a GPU imports it.
    assert submit(x, W, out) == ON_CUDA


def test_freed_memory_of_the_pool_is_forgotten():
    check(*operands(4, 64))
    w, out = in_pool(32, 64), in_pool(4, 32)
    w.copy_(W)
    for value in range(1, 4):
        x = in_pool(4, 64)  # where the last one was, as likely as not
        x.fill_(value)
        assert submit(x, w, out)
        torch.testing.assert_close(out, x @ W.t())
        del x
    assert len(lane_in_use().buffers.known) <= 3


def test_memory_of_another_sessions_pool(daemon):
    check(*operands(4, 64))
    w = in_pool(32, 64)
    with concert.connect(daemon.socket) as other:
        concert.torch.use(other)
        with pytest.raises(concert.FailedPrecondition) as caught:
            linear(X, w)
    assert caught.value.message == ("the memory of w was made in the pool of another session; make "
                                    "it anew in concert.torch.pool()")


@pytest.mark.sim_only
def test_a_pool_is_for_gpus():
    with pytest.raises(concert.FailedPrecondition, match="a pool holds memory of GPUs"):
        concert.torch.pool()


class CudaSession:
    """What Imports need of a session with GPUs."""

    backend = concert.Backend.CUDA

    def __init__(self):
        self.imported = []

    def _gpu_of(self, ordinal):
        return 0

    def import_memory(self, memory, size, *, gpu, pointer):
        assert memory == concert.Memory.CUDA_POINTER and gpu == 0
        handle = concert._handles.Handle(len(self.imported) + 1, "buffer", lambda value: None)
        buffer = concert.Buffer(self, handle, size, gpu)
        self.imported.append((pointer, size, buffer))
        return buffer


def test_a_storage_is_imported_once_and_dropped_when_it_dies():
    session = CudaSession()
    imports = _memory.Imports(session)
    x = torch.zeros(8, 64)

    def where(tensor):
        found = concert._abi.concert_slice.from_buffer_copy(imports.slice_of("x", tensor))
        return found.buffer, found.offset

    assert where(x) == (1, 0) and where(x[2:]) == (1, 2 * 64 * 4) and where(x.t()) == (1, 0)
    assert session.imported[0][:2] == (x.data_ptr(), 8 * 64 * 4)
    other = torch.zeros(8, 64)
    assert where(other) == (2, 0)

    view = x[4:]
    del x
    gc.collect()
    assert where(view) == (1, 4 * 64 * 4) and len(session.imported) == 2
    del view
    gc.collect()
    assert session.imported[0][2].closed and not session.imported[1][2].closed
    # Resized, it is other memory.
    other.untyped_storage().resize_(1 << 20)
    assert where(other) == (3, 0)


class Ordered:
    """Writes down what a queue and its tickets are asked for."""

    def __init__(self, queue):
        self.queue = queue
        self.session = self
        self.calls = []
        self._home = queue._home

    def _signal_on(self, stream):
        self.calls.append(("signal", stream))
        return "ready"

    def submit(self, gemm, waits):
        self.calls.append(("submit", waits))
        ticket, calls = self.queue.submit(gemm), self.calls
        calls.append(ticket)

        class Recorded:
            def wait(self, stream=None):
                calls.append(("wait", stream))
                if stream is None:
                    ticket.wait()

            done = staticmethod(ticket.done)

        return Recorded()


@pytest.mark.sim_only  # stands in for CUDA; with it: cuda_test.py
def test_on_cuda_the_stream_is_waited_for_and_waits(monkeypatch):
    class Stream:
        cuda_stream = 0x1234

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    check(*operands(4, 64))
    lane = _context.context().lanes[-1]
    lane.queue = queue = Ordered(lane.queue)
    x, w, out = in_pool(4, 64), in_pool(32, 64), in_pool(4, 32)
    x.fill_(1)
    prepared = lane.prepare(x, w, None)
    lane._run_on_stream(x, w, None, out, prepared)
    assert [call for call in queue.calls if isinstance(call, tuple)] == [
        ("signal", 0x1234), ("submit", ("ready",)), ("wait", 0x1234)]
    # A failure that the stream did not learn is the next op's.
    queue.calls[2].wait()
    prepared.gemm._struct.m = 1 << 30
    lane._run_on_stream(x, w, None, out, prepared)
    with pytest.raises(concert.InvalidArgument):
        queue.calls[-2].wait()
    with pytest.raises(concert.InvalidArgument):
        lane._run_on_stream(x, w, None, out, prepared)

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(concert.FailedPrecondition, match="a CUDA graph cannot hold concert"):
        lane._run_on_stream(x, w, None, out, prepared)


@pytest.mark.sim_only  # stands in for a second GPU
def test_on_cuda_the_tensors_device_is_current_meanwhile(monkeypatch):
    @contextlib.contextmanager
    def make_current(device):
        done.append(device)
        yield
        done.append("as it was")

    x, w, _ = operands(4, 64)
    check(x, w)
    done, lane, empty = [], _context.context().lanes[-1], torch.empty
    monkeypatch.setattr(lane, "device", types.SimpleNamespace(type="cuda"))
    monkeypatch.setattr(torch.cuda, "device", make_current)
    monkeypatch.setattr(lane, "_run_on_stream", lambda *_: done.append("run"))
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, device: empty(shape, dtype=dtype))
    lane.run(x, w, None, lane.prepare(x, w, None))
    assert done == [lane.device, "run", "as it was"]


# ---- programs


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python")}


def test_the_manuals_blocks_run(capsys):
    text = (ROOT / "docs" / "python.md").read_text()
    blocks = re.findall(r"^```python torch\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", text,
                        re.DOTALL | re.MULTILINE)
    names = {}
    for code, _ in blocks:
        with DEVICE:  # written for CPU tensors
            exec(code, names)
    assert capsys.readouterr().out == "(3, 64)\n" + blocks[1][1] and len(blocks) == 2


def test_the_example_serves_from_two_processes(daemon):
    told = subprocess.run([sys.executable, ROOT / "client" / "examples" / "torch_llama.py"],
                          env=environment(), check=True, capture_output=True, text=True,
                          timeout=120).stdout
    assert told.count("as torch.nn.functional.linear") == 2, told


def test_the_benchmark_runs(daemon):
    told = subprocess.run(
        [sys.executable, ROOT / "tests" / "bench" / "torch_overhead.py", "--rounds=2"],
        env=environment(), check=True, capture_output=True, text=True, timeout=120).stdout
    assert told.count("median") == (5 if ON_CUDA else 4), told

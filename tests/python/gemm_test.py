"""GEMMs, against numpy, and what is refused before and after the submit."""

import weakref

import numpy as np
import pytest

import concert
from concert import Activation, Dtype


def numbers(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def poisoned(session, shape, dtype):
    tensor = session.zeros(shape, dtype)
    tensor.buffer.write(b"\xff" * tensor.buffer.bytes)
    return tensor


@pytest.mark.parametrize("dtype, error", [("fp32", 1e-5), ("fp16", 2e-3), ("bf16", 1e-2)])
def test_dtypes(session, queue, dtype, error):
    a, w = session.array(numbers(17, 40), dtype), session.array(numbers(24, 40, seed=2), dtype)
    d = poisoned(session, (17, 24), dtype)
    queue.gemm(a, w, d).wait()
    as_float = concert.from_bf16 if dtype == "bf16" else np.asarray
    wanted = as_float(a.read()).astype(np.float64) @ as_float(w.read()).astype(np.float64).T
    assert np.linalg.norm(as_float(d.read()) - wanted) <= error * np.linalg.norm(wanted)


def e4m3(codes):
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    return sign * np.where(exponent == 0, mantissa / 8 * 2.0**-6,
                           (1 + mantissa / 8) * 2.0**(exponent.astype(np.float64) - 7))


@pytest.mark.parametrize("per_row", [False, True])
def test_fp8_with_scales(session, queue, per_row):
    rng = np.random.default_rng(3)
    codes_a = rng.integers(0, 0x60, (16, 64), dtype=np.uint8)
    codes_w = rng.integers(0, 0x60, (32, 64), dtype=np.uint8)
    scales_a = np.linspace(0.01, 0.02, 16 if per_row else 1, dtype=np.float32)
    scales_w = np.linspace(0.03, 0.01, 32 if per_row else 1, dtype=np.float32)
    d = poisoned(session, (16, 32), "bf16")
    queue.gemm(session.array(codes_a, "fp8_e4m3"), session.array(codes_w, "fp8_e4m3"), d,
               a_scales=session.array(scales_a), w_scales=session.array(scales_w)).wait()
    wanted = (e4m3(codes_a) @ e4m3(codes_w).T) * scales_a[:, None] * scales_w[None, :]
    assert np.linalg.norm(concert.from_bf16(d.read()) - wanted) <= 5e-2 * np.linalg.norm(wanted)


def test_epilogue_and_defaults(session, queue):
    x, weights, bias, before = numbers(8, 16), numbers(12, 16, seed=2), numbers(12), numbers(8, 12)
    a, w = session.array(x), session.array(weights)
    c, d = session.array(before), poisoned(session, (8, 12), "fp32")
    queue.gemm(a, w, d, c=c).wait()  # alpha is 1 and beta 0
    np.testing.assert_allclose(d.read(), x @ weights.T, rtol=1e-4, atol=1e-5)
    queue.gemm(a, w, d, c=c, bias=session.array(bias), alpha=0.5, beta=2,
               activation=Activation.RELU).wait()
    wanted = np.maximum(0.5 * x @ weights.T + 2 * before + bias, 0)
    np.testing.assert_allclose(d.read(), wanted, rtol=1e-4, atol=1e-5)


def test_a_residual_is_added_behind_the_activation(session, queue):
    x, weights, before = numbers(8, 16), numbers(12, 16, seed=2), numbers(8, 12)
    a, w, d = session.array(x), session.array(weights), session.array(before)
    queue.gemm(a, w, d, c=d, beta=0.5, activation=Activation.RELU, residual=True).wait()
    wanted = np.maximum(x @ weights.T, 0) + 0.5 * before
    np.testing.assert_allclose(d.read(), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(concert.InvalidArgument, match="C is a residual, but beta is 0"):
        queue.gemm(a, w, d, c=d, residual=True).wait()


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_gated_product(session, queue, interleaved):
    x, weights, bias = numbers(5, 16), numbers(24, 16, seed=2), numbers(24, seed=3)
    a, w, d = session.array(x), session.array(weights), poisoned(session, (5, 12), "fp32")
    queue.gemm(a, w, d, bias=session.array(bias), activation=Activation.SILU, gated=True,
               interleaved=interleaved).wait()
    product = x @ weights.T + bias
    gate, up = ((product[:, ::2], product[:, 1::2]) if interleaved else
                (product[:, :12], product[:, 12:]))
    np.testing.assert_allclose(d.read(), gate / (1 + np.exp(-gate)) * up, rtol=1e-4, atol=1e-5)
    wide = poisoned(session, (5, 24), "fp32")
    with pytest.raises(concert.InvalidArgument, match=r"and \(m, n / 2\), since the product"):
        queue.gemm(a, w, wide, activation=Activation.SILU, gated=True)
    with pytest.raises(concert.InvalidArgument, match="activation is 0, but flags gate"):
        queue.gemm(a, w, d, gated=True).wait()
    queue.gemm(a, w, wide).wait()  # of the same operands, but for d
    np.testing.assert_allclose(wide.read(), x @ weights.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 8])
def test_rows_of_any_dtype_may_have_scales(session, queue, rows):
    x, weights, scales = numbers(rows, 16), numbers(12, 16, seed=2), numbers(rows, seed=3)
    a, w, d = session.array(x), session.array(weights), poisoned(session, (rows, 12), "fp32")
    queue.gemm(a, w, d, a_scales=session.array(scales)).wait()
    np.testing.assert_allclose(d.read(), scales[:, None] * (x @ weights.T), rtol=1e-4, atol=1e-5)
    with pytest.raises(concert.InvalidArgument, match=r"it must be \(%d,\): only fp8" % rows):
        queue.gemm(a, w, d, a_scales=session.array(numbers(rows + 1)))
    with pytest.raises(concert.InvalidArgument, match="w_scales are given, but dtype is fp32"):
        queue.gemm(a, w, d, w_scales=session.array(numbers(12))).wait()


def test_batch_and_shared_weights(session, queue):
    x, weights = numbers(3, 5, 16), numbers(8, 16)
    d = poisoned(session, (3, 5, 8), "fp32")
    queue.gemm(session.array(x), session.array(weights), d).wait()
    np.testing.assert_allclose(d.read(), x @ weights.T, rtol=1e-4, atol=1e-5)
    each = numbers(3, 8, 16, seed=5)
    queue.gemm(session.array(x), session.array(each), d).wait()
    np.testing.assert_allclose(d.read(), x @ each.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)


def test_views_with_gaps(session, queue):
    whole, weights = numbers(10, 64), numbers(8, 16)
    d = session.zeros((10, 24), "fp32")
    queue.gemm(session.array(whole)[2:7, 32:48], session.array(weights), d[::2, 8:16]).wait()
    wanted = np.zeros((10, 24), np.float32)
    wanted[::2, 8:16] = whole[2:7, 32:48] @ weights.T
    np.testing.assert_allclose(d.read(), wanted, rtol=1e-4, atol=1e-5)


def test_an_op_made_before_is_submitted_again(session, queue):
    a, w = session.array(numbers(4, 8)), session.array(numbers(4, 8))
    d = session.zeros((4, 4), "fp32")
    op = concert.Gemm(a, w, d, c=d, beta=1)
    for _ in range(3):
        queue.submit(op)
    queue.last.wait()
    np.testing.assert_allclose(d.read(), 3 * (a.read() @ w.read().T), rtol=1e-4, atol=1e-5)


def test_calls_of_one_shape_have_their_own_operands(daemon, session, queue):
    """What a queue remembers of a call is its shape: no operand, no memory, no session."""
    for seed in range(3):
        x, weights = numbers(4, 8, seed=seed), numbers(6, 8, seed=seed + 10)
        a, w, d = session.array(x), session.array(weights), poisoned(session, (4, 6), "fp32")
        for alpha in (1.0, 2.0):
            queue.gemm(a, w, d, alpha=alpha).wait()
            np.testing.assert_allclose(d.read(), alpha * (x @ weights.T), rtol=1e-4, atol=1e-5)
    # A view of that shape, another dtype of that shape, and rows with gaps, which are another.
    wide, half = session.array(numbers(4, 16)), session.array(numbers(4, 8), "fp16")
    queue.gemm(wide[:, 8:], w, d).wait()
    np.testing.assert_allclose(d.read(), wide.read()[:, 8:] @ weights.T, rtol=1e-4, atol=1e-5)
    with pytest.raises(concert.InvalidArgument, match="a is FP16 and w is FP32"):
        queue.gemm(half, w, d)
    with concert.connect(daemon.socket) as other:
        with pytest.raises(concert.InvalidArgument, match="is of another session than"):
            queue.gemm(a, other.zeros((6, 8), "fp32"), d)
        theirs = [other.zeros(one.shape, "fp32") for one in (a, w, d)]
        with pytest.raises(concert.InvalidArgument, match="the op is of another session than"):
            queue.gemm(*theirs)
    memory = weakref.ref(w.buffer._handle)
    w.buffer.close()
    with pytest.raises(concert.FailedPrecondition, match="the buffer is closed"):
        queue.gemm(a, w, d)
    assert memory() is None


REFUSED = {
    "a is FP32 and w is BF16; they must be the same":
        dict(w=((8, 16), "bf16")),
    "d is FP16 and a is FP32; they must be the same":
        dict(d=((4, 8), "fp16")),
    "bias is BF16 and d is FP32; they must be the same":
        dict(bias=((8,), "bf16")),
    "a is (4, 16), w is (8, 15) and d is (4, 8); they must be (m, k), (n, k) and (m, n)":
        dict(w=((8, 15), "fp32")),
    "c is (4, 7); it must be (m, n) = (4, 8)":
        dict(c=((4, 7), "fp32")),
    "bias has shape (7,) and strides (1,); it must be (8,) without gaps":
        dict(bias=((7,), "fp32")),
    "w has shape (8,); it must have 2 dimensions, or 3 with a batch":
        dict(w=((8,), "fp32")),
    "a has a batch of 2 and d one of 0; they must be the same, or the operand has two dimensions":
        dict(a=((2, 4, 16), "fp32")),
    "d has shape (0, 4, 8); a batch has at least one member":
        dict(d=((0, 4, 8), "fp32")),
    "d is FP32; of fp8 operands it must be BF16 or FP16":
        dict(a=((4, 16), "fp8"), w=((8, 16), "fp8")),
    "a_scales has shape (5,); it must be (4,): only fp8 may have one for all rows":
        dict(a_scales=((5,), "fp32")),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_bad_operands_have_a_sentence(session, queue, sentence):
    shapes = dict(a=((4, 16), "fp32"), w=((8, 16), "fp32"), d=((4, 8), "fp32")) | REFUSED[sentence]
    # One byte more, because empty tensors are among them.
    operands = {name: session.allocate(4096).tensor(*one) for name, one in shapes.items()}
    with pytest.raises(concert.InvalidArgument) as caught:
        queue.gemm(**operands)
    assert caught.value.message == sentence
    assert caught.value.code == concert.Code.INVALID_ARGUMENT


def test_transposed_and_overlapping_operands_are_refused(session, queue):
    a, w, d = (session.zeros(shape, "fp32") for shape in ((16, 16), (16, 16), (16, 16)))
    transposed = concert.Tensor(a.buffer, 0, (16, 16), (1, 16), Dtype.FP32)
    with pytest.raises(concert.InvalidArgument, match=r"a has strides \(1, 16\); elements of a row "
                                                      "must lie side by side .*make it contiguous"):
        queue.gemm(transposed, w, d)
    overlapping = concert.Tensor(d.buffer, 0, (8, 16), (8, 1), Dtype.FP32)
    with pytest.raises(concert.InvalidArgument, match="its rows overlap"):
        queue.gemm(a[:8], w, overlapping)


def test_numbers_that_the_abi_cannot_hold_are_refused(session, queue):
    a = session.zeros((4, 4), "fp32")
    with pytest.raises(concert.InvalidArgument, match="activation -1"):
        queue.gemm(a, a, session.zeros((4, 4), "fp32"), activation=-1)


def test_a_bad_op_fails_when_it_is_waited_for(session, queue):
    a = session.allocate(64).tensor((0, 4), "fp32")
    good = session.array(numbers(4, 4))
    ticket = queue.gemm(a, good, session.allocate(64).tensor((0, 4), "fp32"))
    with pytest.raises(concert.InvalidArgument) as caught:
        ticket.wait()
    assert str(caught.value) == "INVALID_ARGUMENT: m is 0; it must be between 1 and 16777216"
    assert ticket.done()
    with pytest.raises(concert.InvalidArgument):
        ticket.poll()
    queue.gemm(good, good, session.zeros((4, 4), "fp32")).wait()  # the next one runs


def test_a_closed_buffer_is_refused_by_ops(session, queue):
    a, w = session.array(numbers(4, 4)), session.array(numbers(4, 4))
    d = session.zeros((4, 4), "fp32")
    op = concert.Gemm(a, w, d)
    w.buffer.close()
    for submit in (lambda: queue.submit(op), lambda: queue.gemm(a, w, d)):
        with pytest.raises(concert.FailedPrecondition, match="the buffer is closed"):
            submit()

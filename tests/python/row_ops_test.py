"""Norms and gated_activation, against numpy, and what is refused."""

import numpy as np
import pytest

import concert
from concert import Activation, Dtype

from gemm_test import numbers, poisoned


def values(tensor):
    array = tensor.read()
    return concert.from_bf16(array) if tensor.dtype == Dtype.BF16 else array.astype(np.float32)


def normalised(x, weight, epsilon):
    mean = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    return x / np.sqrt(mean + epsilon) * weight


@pytest.mark.parametrize("dtype, error", [("fp32", 1e-5), ("fp16", 1e-3), ("bf16", 8e-3)])
def test_norm_with_a_residual(session, queue, dtype, error):
    x, residual = session.array(numbers(9, 40), dtype), session.array(numbers(9, 40, seed=2), dtype)
    weight, out = session.array(numbers(40, seed=3), dtype), poisoned(session, (9, 40), dtype)
    summed = values(x) + values(residual)
    queue.rms_norm(x, weight, out, residual=residual, epsilon=1e-5).wait()
    np.testing.assert_allclose(values(residual), summed, rtol=error)
    wanted = normalised(values(residual), values(weight), 1e-5)
    assert np.linalg.norm(values(out) - wanted) <= error * np.linalg.norm(wanted)


def test_norm_in_place_and_of_rows_with_gaps(session, queue):
    data = numbers(6, 32)
    x = session.array(data)
    queue.rms_norm(x[:, :20], session.array(np.ones(20, np.float32)), x[:, :20]).wait()
    np.testing.assert_allclose(x.read()[:, :20], normalised(data[:, :20], 1, 1e-6), rtol=1e-5)
    np.testing.assert_array_equal(x.read()[:, 20:], data[:, 20:])


@pytest.mark.parametrize("dtype, error", [("fp32", 1e-5), ("fp16", 1e-3), ("bf16", 8e-3)])
def test_layer_norm(session, queue, dtype, error):
    x, residual = session.array(numbers(9, 40), dtype), session.array(numbers(9, 40, seed=2), dtype)
    weight, bias = (session.array(numbers(40, seed=seed), dtype) for seed in (3, 4))
    out = poisoned(session, (9, 40), dtype)
    queue.layer_norm(x, weight, out, bias=bias, residual=residual, epsilon=1e-3).wait()
    summed = values(residual).astype(np.float64)
    centred = summed - summed.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-3)
    wanted = centred / deviation * values(weight) + values(bias)
    assert np.linalg.norm(values(out) - wanted) <= error * np.linalg.norm(wanted)
    queue.layer_norm(out, weight, out).wait()  # in place
    assert np.isfinite(values(out)).all()


def test_elementwise(session, queue):
    data, other, row = numbers(6, 40), numbers(6, 40, seed=2), numbers(40, seed=3)
    x, y, out = session.array(data), session.array(other), poisoned(session, (6, 40), "fp32")
    queue.add(x, y, out).wait()
    np.testing.assert_array_equal(out.read(), data + other)
    queue.multiply(out, session.array(row), out).wait()
    np.testing.assert_array_equal(out.read(), (data + other) * row)
    halves = poisoned(session, (6, 20), "fp16")
    queue.cast(x[:, 20:], halves).wait()
    np.testing.assert_array_equal(halves.read(), data[:, 20:].astype(np.float16))


@pytest.mark.parametrize("interleaved", [False, True])
def test_gates(session, queue, interleaved):
    data, out = numbers(5, 48), poisoned(session, (5, 24), "fp32")
    queue.gated_activation(session.array(data), out, interleaved=interleaved).wait()
    gate, up = (data[:, ::2], data[:, 1::2]) if interleaved else (data[:, :24], data[:, 24:])
    np.testing.assert_allclose(out.read(), gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-6)
    queue.gated_activation(session.array(data), out, activation=Activation.GELU,
                           interleaved=interleaved).wait()
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    np.testing.assert_allclose(out.read(), 0.5 * gate * (1 + np.tanh(inner)) * up, rtol=1e-4,
                               atol=1e-6)


def test_a_layer_is_one_chain(session, queue):
    """Attention's output projection, norm, gated MLP: each op reads what the one before wrote."""
    tokens, hidden, inner = 7, 64, 96
    x, stream = numbers(tokens, hidden), numbers(tokens, hidden, seed=2)
    w_out, w_norm = numbers(hidden, hidden, seed=3) / 8, numbers(hidden, seed=4)
    w_up, w_down = numbers(2 * inner, hidden, seed=5) / 8, numbers(hidden, inner, seed=6) / 8
    residual = session.array(stream)
    projected, normal = (poisoned(session, (tokens, hidden), "fp32") for _ in range(2))
    wide = poisoned(session, (tokens, 2 * inner), "fp32")
    gated = poisoned(session, (tokens, inner), "fp32")
    out = poisoned(session, (tokens, hidden), "fp32")
    queue.gemm(session.array(x), session.array(w_out), projected)
    queue.rms_norm(projected, session.array(w_norm), normal, residual=residual)
    queue.gemm(normal, session.array(w_up), wide)
    queue.gated_activation(wide, gated)
    queue.gemm(gated, session.array(w_down), out).wait()

    summed = x @ w_out.T + stream
    up = normalised(summed, w_norm, 1e-6) @ w_up.T
    gate = up[:, :inner]
    wanted = (gate / (1 + np.exp(-gate)) * up[:, inner:]) @ w_down.T
    np.testing.assert_allclose(residual.read(), summed, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out.read(), wanted, rtol=1e-3, atol=1e-4)


def test_what_does_not_fit_is_refused_at_once(session, queue):
    x, weight = session.zeros((4, 16), "fp32"), session.zeros((16,), "fp32")
    out = session.zeros((4, 16), "fp32")
    for bad, sentence in [
        (lambda: queue.rms_norm(x, session.zeros((15,), "fp32"), out), "weight has shape (15,)"),
        (lambda: queue.rms_norm(x, session.zeros((16,), "bf16"), out),
         "weight is BF16; it must be FP32"),
        (lambda: queue.rms_norm(x, weight, session.zeros((4, 15), "fp32")), "out is (4, 15)"),
        (lambda: queue.rms_norm(x, weight, out, residual=session.zeros((4, 16), "bf16")),
         "residual is BF16"),
        (lambda: queue.rms_norm(session.zeros((2, 4, 16), "fp32"), weight, out),
         "it must have 2 dimensions"),
        (lambda: queue.layer_norm(x, weight, out, bias=session.zeros((15,), "fp32")),
         "bias has shape (15,)"),
        (lambda: queue.layer_norm(x, weight, out, bias=session.zeros((16,), "fp16")),
         "bias is FP16"),
        (lambda: queue.add(x, session.zeros((4, 15), "fp32"), out), "y is (4, 15)"),
        (lambda: queue.multiply(x, session.zeros((16,), "bf16"), out), "y is BF16"),
        (lambda: queue.cast(x, session.zeros((4, 15), "bf16")), "out is (4, 15)"),
        (lambda: queue.gated_activation(x, out), "x must be (4, 32)"),
        (lambda: queue.gated_activation(session.zeros((4, 32), "bf16"), out), "out is FP32"),
        (lambda: queue.gated_activation(session.zeros((4, 32), "fp32"), out, activation=9),
         "activation is 9; it must be one of Activation.NONE"),
    ]:
        with pytest.raises((concert.InvalidArgument, ValueError)) as caught:
            bad()
        assert sentence in str(caught.value)


def test_what_the_daemon_refuses(session, queue):
    x, weight = session.zeros((4, 16), "fp32"), session.zeros((16,), "fp32")
    for bad, sentence in [
        (lambda: queue.rms_norm(x, weight, session.zeros((4, 16), "fp32"), residual=x),
         "residual overlaps x"),
        (lambda: queue.gated_activation(session.zeros((4, 32), "fp32"), x,
                                        activation=Activation.RELU), "activation is 1"),
    ]:
        with pytest.raises(concert.InvalidArgument) as caught:
            bad().wait()
        assert sentence in str(caught.value)

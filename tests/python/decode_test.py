"""The decode step of client/examples/decode.py, a program, against the same model in numpy."""

import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client" / "examples"))
import decode  # noqa: E402
from concert import from_bf16, to_bf16  # noqa: E402


def normalised(x, weight):
    return weight * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def rotated(heads, positions):
    """heads: (tokens, heads, dim)."""
    half = decode.DIM // 2
    angles = positions[:, None] / decode.THETA**(np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    x, y = heads[..., :half], heads[..., half:]
    return np.concatenate([x * cos - y * sin, y * cos + x * sin], axis=-1)


def attended(q, k, v):
    """Causal: (tokens, heads, dim) over as many tokens of fewer heads."""
    group = decode.HEADS // decode.KV_HEADS
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(decode.DIM)
    scores[:, np.triu_indices(len(q), 1)[0], np.triu_indices(len(q), 1)[1]] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(axis=-1, keepdims=True), v)


def logits_of(weights, tokens):
    """Of all tokens of one sequence at once, as a prefill computes them."""
    x = weights["table"][tokens]
    positions = np.arange(len(tokens))
    q_end, k_end = decode.HEADS * decode.DIM, (decode.HEADS + decode.KV_HEADS) * decode.DIM
    heads = lambda part: part.reshape(len(tokens), -1, decode.DIM)
    for layer in weights["layers"]:
        qkv = normalised(x, layer["norm"]) @ layer["qkv"].T
        q, k = (rotated(heads(part), positions) for part in (qkv[:, :q_end], qkv[:, q_end:k_end]))
        x = x + attended(q, k, heads(qkv[:, k_end:])).reshape(len(tokens), -1) @ layer["o"].T
        gate, up = np.split(normalised(x, layer["mlp_norm"]) @ layer["gate_up"].T, 2, axis=1)
        x = x + gate / (1 + np.exp(-gate)) * up @ layer["down"].T
    return normalised(x, weights["norm"]) @ weights["table"].T


def rounded(weights):
    """As the decoder has them, in fp64."""
    if isinstance(weights, dict):
        return {name: rounded(one) for name, one in weights.items()}
    if isinstance(weights, list):
        return [rounded(one) for one in weights]
    return from_bf16(to_bf16(weights.astype(np.float32))).astype(np.float64)


def test_contexts_that_grow_give_what_a_prefill_gives(session):
    """Over five pages of each sequence, whatever tokens come."""
    rows, steps = 3, 70
    weights = decode.make_weights(seed=7)
    decoder = decode.Decoder(session, weights, rows)
    tokens = np.random.default_rng(8).integers(0, decode.VOCABULARY, (rows, steps))
    told = []
    for step in range(steps):
        following = decoder.step(tokens[:, step])
        told.append(from_bf16(decoder.logits.read()))
        np.testing.assert_array_equal(following, told[-1].argmax(axis=1))
    told = np.array(told).swapaxes(0, 1)
    wanted = [logits_of(rounded(weights), row) for row in tokens]
    for row in range(rows):
        error = np.linalg.norm(told[row] - wanted[row]) / np.linalg.norm(wanted[row])
        assert error < 1e-2, f"sequence {row}"


def test_a_step_feeds_the_next(session):
    decoder = decode.Decoder(session, decode.make_weights(seed=1), rows=2)
    twin = decode.Decoder(session, decode.make_weights(seed=1), rows=2)
    tokens = decoder.step([5, 6])
    np.testing.assert_array_equal(twin.step([5, 6]), tokens)
    for _ in range(5):
        tokens = twin.step(tokens)
        np.testing.assert_array_equal(decoder.step(), tokens)

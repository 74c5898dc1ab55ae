"""The kinds from advance on, against numpy, and what is refused."""

import numpy as np
import pytest

import concert

from gemm_test import numbers, poisoned
from model_ops_test import attended


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_advance(session, queue, index):
    counters = session.array(np.array([0, 9, 10, 3, -7]), index)
    slots = session.array(np.array([4, 0, 1, -1, 2]), "int64")
    queue.advance(counters, 10, slots=slots).wait()
    np.testing.assert_array_equal(counters.read(), [1, 10, 10, 3, 1])
    queue.advance(counters, 10).wait()
    np.testing.assert_array_equal(counters.read(), [2, 10, 10, 4, 2])


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_quantised_rows_and_their_scales_are_what_a_gemm_takes(session, queue, dtype):
    x, w = 10 * numbers(9, 64), numbers(16, 64)
    quantised = []
    for values in (x, w):
        out = session.zeros(values.shape, "fp8_e4m3")
        scales = poisoned(session, values.shape[:1], "fp32")
        queue.quantize(session.array(values, dtype), out, scales)
        quantised.append((out, scales))
    d = session.zeros((9, 16), "bf16")
    (a, a_scales), (b, b_scales) = quantised
    queue.gemm(a, b, d, a_scales=a_scales, w_scales=b_scales).wait()
    np.testing.assert_allclose(a_scales.read(), np.abs(x).max(axis=1) / 448, rtol=1e-2)
    want = x @ w.T
    got = concert.from_bf16(d.read()) if d.read().dtype == np.uint16 else d.read()
    assert np.linalg.norm(got.astype(np.float64) - want) < 0.05 * np.linalg.norm(want)


def test_sample(session, queue):
    x = numbers(6, 300)
    logits, indices = session.array(x), poisoned(session, (6,), "int32")
    queue.sample(logits, indices, temperature=0).wait()
    np.testing.assert_array_equal(indices.read(), np.argmax(x, axis=1))

    steps = session.zeros((6,), "int64")
    first, again, later = (session.zeros((6,), "int64") for _ in range(3))
    queue.sample(logits, first, temperature=0.7, top_k=20, seed=2**63, steps=steps)
    queue.sample(logits, again, temperature=0.7, top_k=20, seed=2**63, steps=steps)
    queue.advance(steps, 1000)
    queue.sample(logits, later, temperature=0.7, top_k=20, seed=2**63, steps=steps).wait()
    np.testing.assert_array_equal(first.read(), again.read())
    assert (first.read() != later.read()).any()
    for row, token in enumerate(later.read()):
        assert token in np.argsort(x[row])[-20:]


def test_rows_are_sampled_each_in_its_way(session, queue):
    x = numbers(4, 50)
    indices = session.zeros((4,), "int32")
    queue.sample(session.array(x), indices,
                 temperature=session.array(np.array([0, 1, 1, 5.0]), "fp32"),
                 top_k=session.array(np.array([0, 1, 0, 3]), "int32"),
                 top_p=session.array(np.array([1, 1, 1e-6, 1.0]), "fp32"),
                 seed=session.array(np.array([1, 2, 3, -4]), "int64")).wait()
    drawn = indices.read()
    np.testing.assert_array_equal(drawn[:3], np.argmax(x[:3], axis=1))
    assert drawn[3] in np.argsort(x[3])[-3:]


def test_a_program_that_samples_and_advances(session, queue):
    x, rows = numbers(3, 200), 3
    logits, lengths = session.array(x), session.zeros((rows,), "int32")
    program = session.program()
    drawn = program.binding((rows,), "int32")
    program.queue.sample(logits, drawn, temperature=2.0, seed=5, steps=lengths)
    program.queue.advance(lengths, 100)
    program.end()
    ran, wanted = [], []
    for step in range(4):
        indices, steps = session.zeros((rows,), "int32"), session.array(np.full(rows, step), "int32")
        queue.run(program, indices).wait()
        ran.append(indices.read().copy())
        queue.sample(logits, indices, temperature=2.0, seed=5, steps=steps).wait()
        wanted.append(indices.read().copy())
    np.testing.assert_array_equal(ran, wanted)
    np.testing.assert_array_equal(lengths.read(), [4, 4, 4])
    assert len({row[0] for row in ran}) > 1


def test_what_does_not_fit_is_refused_at_once(session, queue):
    counters, scales = session.zeros((4,), "int32"), session.zeros((4,), "fp32")
    x, out = session.zeros((4, 16), "fp32"), session.zeros((4, 16), "fp8")
    for bad, sentence in [
        (lambda: queue.advance(session.zeros((4,), "fp32"), 9), "counters is FP32"),
        (lambda: queue.advance(session.zeros((4, 2), "int32"), 9), "counters has shape (4, 2)"),
        (lambda: queue.advance(counters, 9, slots=session.zeros((3,), "int32")),
         "slots has shape (3,)"),
        (lambda: queue.advance(counters, 2**32), "counter_max is 4294967296"),
        (lambda: queue.advance(counters, -1), "counter_max is -1"),
        (lambda: queue.quantize(x, session.zeros((4, 15), "fp8"), scales), "out is (4, 15)"),
        (lambda: queue.quantize(x, x, scales), "out is FP32; it must be FP8_E4M3"),
        (lambda: queue.quantize(x, out, session.zeros((5,), "fp32")), "scales has shape (5,)"),
        (lambda: queue.quantize(x, out, counters), "scales is INT32; it must be FP32"),
        (lambda: queue.sample(x, scales), "indices is FP32"),
        (lambda: queue.sample(x, counters, steps=session.zeros((3,), "int32")),
         "steps has shape (3,)"),
        (lambda: queue.sample(x, counters, temperature=counters),
         "temperature is INT32; it must be FP32"),
        (lambda: queue.sample(x, counters, top_k=session.zeros((4,), "int64")),
         "top_k is INT64; it must be INT32"),
        (lambda: queue.sample(x, counters, top_p=session.zeros((5,), "fp32")),
         "top_p has shape (5,)"),
        (lambda: queue.sample(x, counters, seed=counters), "seed is INT32; it must be INT64"),
        (lambda: queue.sample(x, counters, seed=-1), "seed is -1"),
        (lambda: queue.sample(x, counters, top_k=2**32), "top_k is 4294967296"),
    ]:
        with pytest.raises(concert.InvalidArgument) as caught:
            bad()
        assert sentence in str(caught.value)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("heads_first", [False, True])
def test_attention_prefill(session, queue, paged, heads_first):
    tokens, group, kv_heads, dim, pages, page_size = 40, 4, 2, 64, 7, 16
    shape = (pages, kv_heads, page_size, dim) if heads_first else (pages, page_size, kv_heads, dim)
    q, k, v = (session.array(numbers(*size, seed=seed), "bf16")
               for seed, size in enumerate([(tokens, group * kv_heads * dim), shape, shape]))
    out = poisoned(session, q.shape, "bf16")
    starts, lengths = [0, 13, 13, 37], [30, 0, 24] if paged else [15, 0, 7]
    table = np.array([[5, 2], [0, 0], [6, 99]])
    queue.attention_prefill(q, k, v, session.array(np.array(starts), "int32"),
                            session.array(np.array(lengths), "int32"), out,
                            page_table=session.array(table, "int32") if paged else None,
                            window=11, heads_first=heads_first).wait()
    queries, got, keys, values = (concert.from_bf16(tensor.read()) for tensor in (q, out, k, v))
    if heads_first:
        keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)
    wanted = np.full_like(got, np.nan)  # rows of no chunk stay
    for sequence, length in enumerate(lengths):
        mine = np.minimum(table[sequence], pages - 1) if paged else [sequence]
        for row in range(starts[sequence], starts[sequence + 1]):
            visible = max(0, length - (starts[sequence + 1] - row) + 1)
            wanted[row] = 0
            for head in range(group * kv_heads if visible else 0):
                seen = [cache[mine][:, :, head // group].reshape(-1, dim)[:visible][-11:]
                        for cache in (keys, values)]
                columns = slice(head * dim, head * dim + dim)
                wanted[row, columns] = attended(queries[row, columns], *seen, dim**-0.5)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    assert np.linalg.norm(np.nan_to_num(got - wanted)) <= 1e-2 * np.linalg.norm(np.nan_to_num(wanted))


def test_an_attention_prefill_that_does_not_fit_is_refused_at_once(session, queue):
    def attend(**changes):
        heads, keys = session.zeros((9, 128), "bf16"), session.zeros((4, 8, 2, 64), "bf16")
        given = dict(q=heads, k_cache=keys, v_cache=keys, out=heads,
                     query_starts=session.zeros((4,), "int32"),
                     lengths=session.zeros((3,), "int32"))
        return lambda: queue.attention_prefill(**(given | changes))

    for bad, sentence in [
        (attend(q=session.zeros((9, 100), "bf16")), "rows of q have 100 elements"),
        (attend(out=session.zeros((8, 128), "bf16")), "out is (8, 128)"),
        (attend(k_cache=session.zeros((4, 16), "bf16")), "k_cache has shape (4, 16)"),
        (attend(lengths=session.zeros((3, 1), "int32")), "lengths has shape (3, 1)"),
        (attend(lengths=session.zeros((3,), "int64")), "lengths is INT64; it must be INT32"),
        (attend(query_starts=session.zeros((3,), "int32")), "query_starts has shape (3,)"),
        (attend(query_starts=session.zeros((4,), "int64")), "query_starts is INT64"),
        (attend(page_table=session.zeros((9, 2), "int32")), "it must have 3 rows"),
    ]:
        with pytest.raises(concert.InvalidArgument) as caught:
            bad()
        assert sentence in str(caught.value)


def test_what_the_daemon_refuses(session, queue):
    counters = session.zeros((4,), "int32")
    with pytest.raises(concert.InvalidArgument, match="counter_max is 0"):
        queue.advance(counters, 0).wait()
    with pytest.raises(concert.InvalidArgument, match="counters overlaps slots"):
        queue.advance(counters, 1, slots=counters).wait()
    heads, keys = session.zeros((9, 128), "bf16"), session.zeros((4, 8, 2, 64), "bf16")
    with pytest.raises(concert.InvalidArgument, match="length_max is 9; it must be between 1 and 8"):
        queue.attention_prefill(heads, keys, keys, session.zeros((4,), "int32"),
                                session.zeros((3,), "int32"), session.zeros((9, 128), "bf16"),
                                length_max=9).wait()

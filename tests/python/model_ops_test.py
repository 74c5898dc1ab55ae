"""The kinds from embedding on, against numpy, and what is refused."""

import numpy as np
import pytest

import concert

from gemm_test import e4m3, numbers, poisoned
from row_ops_test import normalised


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_embedding(session, queue, index):
    table, out = numbers(20, 24), poisoned(session, (4, 24), "fp32")
    ids = session.array(np.array([3, -1, 19, 1000]), index)
    queue.embedding(ids, session.array(table), out).wait()
    np.testing.assert_array_equal(out.read(), [table[3], np.zeros(24), table[19], table[19]])


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_argmax(session, queue, index):
    x, indices = numbers(5, 300), poisoned(session, (5,), index)
    queue.argmax(session.array(x), indices).wait()
    np.testing.assert_array_equal(indices.read(), np.argmax(x, axis=1))


def rotated(heads, angles, interleaved):
    """heads: (rows, heads, dim); angles: (rows, dim / 2)."""
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    half = heads.shape[2] // 2
    pairs = (np.s_[..., ::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., :half],
                                                                      np.s_[..., half:])
    x, y, out = heads[pairs[0]], heads[pairs[1]], np.empty_like(heads)
    out[pairs[0]], out[pairs[1]] = x * cos - y * sin, y * cos + x * sin
    return out


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_append(session, queue, heads_first, interleaved):
    rows, q_heads, kv_heads, dim, pages, page_size = 3, 4, 2, 16, 5, 8
    data = numbers(rows, (q_heads + 2 * kv_heads) * dim)
    qkv = session.array(data)
    q_end, k_end = q_heads * dim, (q_heads + kv_heads) * dim
    angles = np.arange(40)[:, None] / 100.0**(np.arange(dim // 2) / (dim // 2))
    cos_sin = session.array(np.concatenate([np.cos(angles), np.sin(angles)], axis=1), "fp32")
    positions, slots = np.array([3, 39, 0]), np.array([17, -1, 39])
    shape = (pages, kv_heads, page_size, dim) if heads_first else (pages, page_size, kv_heads, dim)
    k_cache, v_cache = session.zeros(shape, "fp32"), session.zeros(shape, "fp32")
    queue.rope_append(qkv[:, :q_end], qkv[:, q_end:k_end], qkv[:, k_end:],
                      session.array(positions, "int32"), session.array(slots, "int64"), cos_sin,
                      k_cache, v_cache, heads_first=heads_first, interleaved=interleaved).wait()

    heads = data.reshape(rows, -1, dim)
    wanted = rotated(heads[:, :q_heads + kv_heads], angles[positions], interleaved)
    np.testing.assert_allclose(qkv.read().reshape(rows, -1, dim)[:, :q_heads], wanted[:, :q_heads],
                               rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(qkv.read()[:, q_end:], data[:, q_end:])
    k, v = (cache.read().swapaxes(1, 2) if heads_first else cache.read()
            for cache in (k_cache, v_cache))
    for row in (0, 2):
        page, token = divmod(slots[row], page_size)
        np.testing.assert_allclose(k[page, token], wanted[row, q_heads:], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(v[page, token], heads[row, q_heads + kv_heads:])
    assert np.count_nonzero(v) == np.count_nonzero(k) == 2 * kv_heads * dim


def attended(q, keys, values, scale):
    """One head: (dim,), and keys and values (tokens, dim)."""
    weights = np.exp((scores := keys @ q * scale) - scores.max())
    return weights @ values / weights.sum()


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("heads_first", [False, True])
def test_attention_decode(session, queue, paged, heads_first):
    rows, group, kv_heads, dim, pages, page_size = 3, 4, 2, 64, 7, 16
    shape = (pages, kv_heads, page_size, dim) if heads_first else (pages, page_size, kv_heads, dim)
    q, k, v = (session.array(numbers(*size, seed=seed), "bf16")
               for seed, size in enumerate([(rows, group * kv_heads * dim), shape, shape]))
    out = poisoned(session, q.shape, "bf16")
    lengths = np.array([30, 0, 17] if paged else [16, 0, 9])
    table = np.array([[5, 2], [0, 0], [6, 99]])
    queue.attention_decode(q, k, v, session.array(lengths, "int32"), out,
                           page_table=session.array(table, "int32") if paged else None,
                           heads_first=heads_first).wait()
    queries, got, keys, values = (concert.from_bf16(tensor.read()) for tensor in (q, out, k, v))
    if heads_first:
        keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)
    wanted = np.zeros_like(got)
    for row, length in enumerate(lengths):
        mine = np.minimum(table[row], pages - 1) if paged else [row]
        for head in range(group * kv_heads if length else 0):
            tokens = [cache[mine][:, :, head // group].reshape(-1, dim)[:length]
                      for cache in (keys, values)]
            columns = slice(head * dim, head * dim + dim)
            wanted[row, columns] = attended(queries[row, columns], *tokens, dim**-0.5)
    assert np.linalg.norm(got - wanted) <= 1e-2 * np.linalg.norm(wanted)
    np.testing.assert_array_equal(got[1], 0)


def test_a_cache_in_fp8(session, queue):
    rows, group, kv_heads, dim, pages, page_size = 3, 2, 2, 64, 3, 16
    k_scale, v_scale = 0.01, 0.02
    data = numbers(rows, (group + 2) * kv_heads * dim)
    heads = session.array(data, "bf16")
    q_end, k_end = group * kv_heads * dim, (group + 1) * kv_heads * dim
    q, k, v = heads[:, :q_end], heads[:, q_end:k_end], heads[:, k_end:]
    cos_sin = session.array(np.repeat([[1.0, 0.0]], dim // 2, axis=1), "fp32")  # no rotation
    shape = (pages, page_size, kv_heads, dim)
    k_cache, v_cache = session.zeros(shape, "fp8_e4m3"), session.zeros(shape, "fp8_e4m3")
    # One token of each sequence at the start of its page, the others being zeros.
    queue.rope_append(q, k, v, session.zeros((rows,), "int32"),
                      session.array(np.arange(rows) * page_size, "int32"), cos_sin, k_cache,
                      v_cache, k_scale=k_scale, v_scale=v_scale)
    outs = [poisoned(session, (rows, q_end), "bf16") for _ in range(2)]
    lengths = session.array(np.full(rows, 4), "int32")
    queue.attention_decode(q, k_cache, v_cache, lengths, outs[0], k_scale=k_scale,
                           v_scale=v_scale)
    queue.attention_prefill(q, k_cache, v_cache, session.array(np.arange(rows + 1), "int32"),
                            lengths, outs[1], k_scale=k_scale, v_scale=v_scale).wait()
    queries, keys, values = (concert.from_bf16(heads.read())[:, columns].reshape(rows, -1, dim)
                             for columns in (np.s_[:q_end], np.s_[q_end:k_end], np.s_[k_end:]))
    for cache, stored, scale in (k_cache, keys, k_scale), (v_cache, values, v_scale):
        np.testing.assert_allclose(e4m3(np.asarray(cache.read()).view(np.uint8))[:, 0] * scale,
                                   np.clip(stored, -448 * scale, 448 * scale), rtol=1 / 15,
                                   atol=scale * 2**-9)
    for out in outs:
        got = concert.from_bf16(out.read()).reshape(rows, -1, dim)
        for row, head in np.ndindex(rows, group * kv_heads):
            key, value = (np.clip(stored[row, head // group], -448 * scale, 448 * scale)
                          for stored, scale in ((keys, k_scale), (values, v_scale)))
            zeros = np.zeros((3, dim))
            want = attended(queries[row, head], np.vstack([key, zeros]),
                            np.vstack([value, zeros]), dim**-0.5)
            assert np.linalg.norm(got[row, head] - want) <= 0.1 * np.linalg.norm(want)


class Model:
    """One layer of a Llama-like model with random weights, through concert and in numpy."""

    HIDDEN, Q_HEADS, KV_HEADS, DIM, INNER, VOCABULARY = 128, 4, 2, 64, 192, 50
    ROWS, PAGES, PAGE_SIZE, STEPS = 3, 12, 4, 9

    def __init__(self, session):
        q, kv = self.Q_HEADS * self.DIM, self.KV_HEADS * self.DIM
        shapes = {"table": (self.VOCABULARY, self.HIDDEN), "qkv": (q + 2 * kv, self.HIDDEN),
                  "o": (self.HIDDEN, q), "up": (2 * self.INNER, self.HIDDEN),
                  "down": (self.HIDDEN, self.INNER), "head": (self.VOCABULARY, self.HIDDEN)}
        self.w = {name: session.array(numbers(*shape, seed=seed) / shape[-1]**0.5 *
                                      (4 if name == "table" else 1), "bf16")
                  for seed, (name, shape) in enumerate(shapes.items())}
        self.norm = session.array(np.ones(self.HIDDEN, np.float32), "bf16")
        angles = np.arange(self.STEPS)[:, None] / 1e4**(np.arange(self.DIM // 2) * 2 / self.DIM)
        self.angles = angles
        self.cos_sin = session.array(np.concatenate([np.cos(angles), np.sin(angles)], 1), "fp32")
        self.session, self.at = session, self.batch(session, self.ROWS)
        shape = (self.PAGES, self.PAGE_SIZE, self.KV_HEADS, self.DIM)
        self.k, self.v = poisoned(session, shape, "bf16"), poisoned(session, shape, "bf16")
        pages = np.random.default_rng(5).permutation(self.PAGES).reshape(self.ROWS, -1)
        self.pages, self.table = pages, session.array(pages, "int32")
        self.ids = session.array(np.arange(self.ROWS), "int32")
        self.positions, self.slots, self.lengths = (session.zeros((self.ROWS,), "int32")
                                                    for _ in range(3))

    def batch(self, session, rows):
        """What ops pass to one another."""
        q, kv = self.Q_HEADS * self.DIM, self.KV_HEADS * self.DIM
        widths = {"x": self.HIDDEN, "normal": self.HIDDEN, "qkv": q + 2 * kv, "heads": q,
                  "part": self.HIDDEN, "wide": 2 * self.INNER, "gated": self.INNER,
                  "logits": self.VOCABULARY}
        return {name: poisoned(session, (rows, width), "bf16") for name, width in widths.items()}

    def slot(self, row, position):
        return (self.pages[row, position // self.PAGE_SIZE] * self.PAGE_SIZE +
                position % self.PAGE_SIZE)

    def step(self, queue, position):
        """Submits a token of each row; ids becomes the next ones."""
        self.positions.write(np.full(self.ROWS, position))
        self.slots.write(self.slot(np.arange(self.ROWS), position))
        self.lengths.write(np.full(self.ROWS, position + 1))
        self.forward(queue, self.at, self.ids, self.positions, self.slots,
                     lambda q: queue.attention_decode(q, self.k, self.v, self.lengths,
                                                      self.at["heads"], page_table=self.table))
        return queue.argmax(self.at["logits"], self.ids)

    def prefill(self, queue, chunks, lengths):
        """Logits of the new tokens of each row, behind `lengths` that the cache has of it."""
        places = [(row, length + i) for row, (chunk, length) in enumerate(zip(chunks, lengths))
                  for i in range(len(chunk))]
        ids, positions, slots, totals, starts = (
            self.session.array(np.array(numbers_of), "int32") for numbers_of in (
                [token for chunk in chunks for token in chunk],
                [position for _, position in places], [self.slot(*place) for place in places],
                [length + len(chunk) for chunk, length in zip(chunks, lengths)],
                np.cumsum([0] + [len(chunk) for chunk in chunks])))
        at = self.batch(self.session, len(places))
        self.forward(queue, at, ids, positions, slots,
                     lambda q: queue.attention_prefill(q, self.k, self.v, starts, totals,
                                                       at["heads"], page_table=self.table))
        queue.last.wait()
        return np.split(concert.from_bf16(at["logits"].read()), starts.read()[1:-1])

    def forward(self, queue, at, ids, positions, slots, attend):
        w, q, kv = self.w, self.Q_HEADS * self.DIM, self.KV_HEADS * self.DIM
        queue.embedding(ids, w["table"], at["x"])
        queue.rms_norm(at["x"], self.norm, at["normal"])
        queue.gemm(at["normal"], w["qkv"], at["qkv"])
        heads = at["qkv"]
        queue.rope_append(heads[:, :q], heads[:, q:q + kv], heads[:, q + kv:], positions, slots,
                          self.cos_sin, self.k, self.v)
        attend(heads[:, :q])
        queue.gemm(at["heads"], w["o"], at["part"])
        queue.rms_norm(at["part"], self.norm, at["normal"], residual=at["x"])
        queue.gemm(at["normal"], w["up"], at["wide"])
        queue.gated_activation(at["wide"], at["gated"])
        queue.gemm(at["gated"], w["down"], at["part"])
        queue.rms_norm(at["part"], self.norm, at["normal"], residual=at["x"])
        queue.gemm(at["normal"], w["head"], at["logits"])

    def logits(self, tokens):
        """Of the last of a row's tokens, all at once."""
        w = {name: concert.from_bf16(tensor.read()) for name, tensor in self.w.items()}
        normal = lambda rows: normalised(rows, 1, 1e-6)
        x = w["table"][tokens]
        heads = (normal(x) @ w["qkv"].T).reshape(len(tokens), -1, self.DIM)
        turned = rotated(heads[:, :self.Q_HEADS + self.KV_HEADS], self.angles[:len(tokens)], False)
        group = self.Q_HEADS // self.KV_HEADS
        mixed = np.empty((len(tokens), self.Q_HEADS, self.DIM))
        for row in range(len(tokens)):
            for head in range(self.Q_HEADS):
                keys = turned[:row + 1, self.Q_HEADS + head // group]
                values_of = heads[:row + 1, self.Q_HEADS + self.KV_HEADS + head // group]
                mixed[row, head] = attended(turned[row, head], keys, values_of, self.DIM**-0.5)
        x = x + mixed.reshape(len(tokens), -1) @ w["o"].T
        wide = normal(x) @ w["up"].T
        gate = wide[:, :self.INNER]
        x = x + (gate / (1 + np.exp(-gate)) * wide[:, self.INNER:]) @ w["down"].T
        return (normal(x) @ w["head"].T)[-1]


def test_a_context_that_grows_token_by_token_is_that_of_all_at_once(session, queue):
    model = Model(session)
    tokens = [[int(token)] for token in model.ids.read()]
    for position in range(Model.STEPS):
        model.step(queue, position).wait()
        logits = concert.from_bf16(model.at["logits"].read())
        for row, ids in enumerate(tokens):
            wanted = model.logits(ids)
            assert np.linalg.norm(logits[row] - wanted) <= 3e-2 * np.linalg.norm(wanted)
            ids.append(int(model.ids.read()[row]))
            assert ids[-1] == np.argmax(logits[row])


def test_prompts_in_chunks_give_what_they_give_at_once(session, queue):
    model = Model(session)
    prompts = [[3, 14, 15, 9, 26], [5], [35, 8, 9, 7, 9, 32, 3, 8]]
    done = [0] * Model.ROWS
    for sizes in [3, 1, 4], [2, 0, 1], [0, 0, 3]:
        chunks = [prompt[at:at + size] for prompt, at, size in zip(prompts, done, sizes)]
        for row, logits in enumerate(model.prefill(queue, chunks, done)):
            assert len(logits) == sizes[row]
            for i, got in enumerate(logits):
                wanted = model.logits(prompts[row][:done[row] + i + 1])
                assert np.linalg.norm(got - wanted) <= 3e-2 * np.linalg.norm(wanted)
        done = [at + size for at, size in zip(done, sizes)]
    assert done == [len(prompt) for prompt in prompts]


def test_what_does_not_fit_is_refused_at_once(session, queue):
    q, kv, cache = (session.zeros(shape, "fp32") for shape in ((4, 32), (4, 16), (3, 8, 2, 8)))
    cos_sin = session.zeros((9, 8), "fp32")

    def append(**changes):
        slots = positions = session.zeros((4,), "int32")
        given = dict(q=q, k=kv, v=kv, positions=positions, slots=slots, cos_sin=cos_sin,
                     k_cache=cache, v_cache=cache)
        return lambda: queue.rope_append(**(given | changes))

    table, out = session.zeros((20, 16), "fp32"), session.zeros((4, 16), "fp32")
    ids = session.zeros((4,), "int32")
    def attend(**changes):
        heads, keys = session.zeros((4, 128), "bf16"), session.zeros((4, 8, 2, 64), "bf16")
        given = dict(q=heads, k_cache=keys, v_cache=keys, out=heads,
                     lengths=session.zeros((4,), "int32"))
        return lambda: queue.attention_decode(**(given | changes))

    for bad, sentence in [
        (lambda: queue.embedding(session.zeros((3,), "int32"), table, out), "ids has shape (3,)"),
        (lambda: queue.embedding(session.zeros((4,), "fp32"), table, out), "ids is FP32"),
        (lambda: queue.embedding(ids, session.zeros((20, 15), "fp32"), out),
         "table is (20, 15) and out is (4, 16)"),
        (lambda: queue.embedding(ids, session.zeros((20, 16), "bf16"), out), "out is FP32"),
        (attend(q=session.zeros((4, 100), "bf16")), "rows of q have 100 elements"),
        (attend(q=session.zeros((4, 128), "fp32")), "out is BF16 and q is FP32"),
        (attend(out=session.zeros((3, 128), "bf16")), "out is (3, 128)"),
        (attend(lengths=session.zeros((4,), "int64")), "lengths is INT64; it must be INT32"),
        (attend(page_table=session.zeros((4, 2), "int64")), "page_table is INT64"),
        (attend(page_table=session.zeros((3, 2), "int32")), "it must have 4 rows"),
        (lambda: queue.argmax(table, ids), "indices has shape (4,)"),
        (lambda: queue.argmax(out, session.zeros((4,), "bf16")), "indices is BF16"),
        (append(q=session.zeros((4, 33), "fp32")), "rows of q have 33 elements"),
        (append(k=q), "v is (4, 16) and k is (4, 32)"),
        (append(k=q, v=q), "k is (4, 32); it must be (4, 16)"),
        (append(q=session.zeros((4, 32), "bf16")), "k is FP32 and q is BF16"),
        (append(k_cache=session.zeros((3, 8, 2, 8), "fp16"),
                v_cache=session.zeros((3, 8, 2, 8), "fp16")),
         "k_cache is FP16 and q is FP32; it must be the same or FP8_E4M3"),
        (append(cos_sin=session.zeros((9, 8), "bf16")), "cos_sin is BF16"),
        (append(slots=session.zeros((3,), "int32")), "slots has shape (3,)"),
        (append(k_cache=session.zeros((3, 8, 16), "fp32")), "k_cache has shape (3, 8, 16)"),
        (append(v_cache=session.zeros((4, 8, 2, 8), "fp32")), "v_cache has shape (4, 8, 2, 8)"),
    ]:
        with pytest.raises(concert.InvalidArgument) as caught:
            bad()
        assert sentence in str(caught.value)


def test_what_the_daemon_refuses(session, queue):
    q, cache = session.zeros((4, 32), "fp32"), session.zeros((3, 8, 2, 8), "fp32")
    slots = positions = session.zeros((4,), "int32")
    with pytest.raises(concert.InvalidArgument, match="q overlaps k"):
        queue.rope_append(q, q[:, :16], q[:, 16:], positions, slots,
                          session.zeros((9, 8), "fp32"), cache,
                          session.zeros((3, 8, 2, 8), "fp32")).wait()
    heads, keys = session.zeros((4, 128), "bf16"), session.zeros((4, 8, 2, 64), "bf16")
    with pytest.raises(concert.InvalidArgument, match="k_scale is 2, but the cache is in bf16"):
        queue.attention_decode(heads, keys, keys, session.zeros((4,), "int32"),
                               session.zeros((4, 128), "bf16"), k_scale=2).wait()
    with pytest.raises(concert.InvalidArgument, match="length_max is 9; it must be between 1 and 8"):
        queue.attention_decode(heads, keys, keys, session.zeros((4,), "int32"),
                               session.zeros((4, 128), "bf16"), length_max=9).wait()

#!/usr/bin/env python3
"""Clients of suite "steps" that use PyTorch instead of concert, the strongest way that it offers a user: compiled layers,
the whole step replayed from a CUDA graph. concert-bench starts it and gives it orders, one JSON object a line.

  torch_step.py FD     of a stream socket

A layer is compiled once a shape. It adds what the layer before it gave to the residual, as compiling the whole step would have
it. The cache of keys and values is as each kind of attention likes it best, without pages; which kind is fastest is measured
once a shape, and noted in the compiler's cache for the other processes.
"""
import contextlib
import fcntl
import hashlib
import json
import math
import os
import pathlib
import socket
import statistics
import sys
import time
import traceback
import types

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # of each process; read by the import
import torch
import torch.nn.functional as F
from torch._inductor import config as inductor
from torch.nn.attention.bias import causal_lower_right

DTYPE, EPSILON, THETA = torch.bfloat16, 1e-6, 10_000.0
WARMUPS, REPLAYS, TRIALS = 3, 20, 5
WRONG = 0.05  # more than any right result's error; concert-bench looks closer


def norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def rotate(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1).to(x.dtype)


class Attention:
    """How the new tokens of each sequence, each of which has a row, attend: where keys and values lie (of the shape `shape`
    says) and what appends and attends (`append`, `attend`)."""

    def __init__(self, client):
        self.client, self.sequence = client, torch.arange(client.batch, device="cuda").repeat_interleave(client.new_tokens)
        self.shared = client.heads != client.kv_heads
        self.uniform = bool((client.lengths == client.longest).all())

    def shape(self):
        return self.client.batch, self.client.kv_heads, self.client.longest, self.client.head_dim

    def append(self, cache, fresh):
        if self.uniform:
            cache[:, :, self.client.longest - self.client.new_tokens:] = self.by_sequence(fresh)
        else:
            cache[self.sequence, :, self.client.positions] = fresh

    def by_sequence(self, x):
        """Of rows with heads, [sequence, head, new token, dim]."""
        return x.view(self.client.batch, self.client.new_tokens, -1, self.client.head_dim).transpose(1, 2)

    def of_sequence(self, cache, sequence):
        """[head, token, dim], for the reference."""
        return cache[sequence, :, : int(self.client.lengths[sequence])]


class Sdpa(Attention):
    """scaled_dot_product_attention; where lengths differ, with a mask. Of chunks each token attends to itself and those
    before it."""

    def __init__(self, client):
        super().__init__(client)
        self.mask, self.causal = None, False
        if not self.uniform:
            token = torch.arange(client.longest, device="cuda")
            self.mask = (token <= client.positions.view(client.batch, -1)[..., None])[:, None]
        elif client.new_tokens == client.longest:
            self.causal = client.longest > 1
        elif client.new_tokens > 1:
            self.mask = causal_lower_right(client.new_tokens, client.longest)

    def attend(self, q, keys, values):
        attended = F.scaled_dot_product_attention(self.by_sequence(q), keys, values, self.mask, is_causal=self.causal,
                                                  enable_gqa=self.shared)
        return attended.transpose(1, 2)


class Flex(Attention):
    """flex_attention, which has a kernel of its own for decoding and skips what the mask leaves out."""

    def __init__(self, client):
        super().__init__(client)
        from torch.nn.attention import flex_attention as flex
        self.flex, self.mask, lengths = flex.flex_attention, None, client.lengths
        if not self.uniform:
            self.mask = flex.create_block_mask(lambda row, head, query, token: token < lengths[row], client.batch, None, 1,
                                               client.longest, device="cuda")

    def attend(self, q, keys, values):
        return self.flex(q[:, :, None], keys, values, block_mask=self.mask, enable_gqa=self.shared)


class Varlen(Attention):
    """varlen_attn over sequences that lie one behind the other, without gaps."""

    def __init__(self, client):
        super().__init__(client)
        from torch.nn.attention.varlen import varlen_attn
        self.varlen = varlen_attn
        self.ends = F.pad(client.lengths.cumsum(0), (1, 0)).int()
        self.queries = torch.arange(client.batch + 1, device="cuda", dtype=torch.int32)
        self.slots = (self.ends[1:] - 1).long()

    def shape(self):
        return int(self.ends[-1]), self.client.kv_heads, self.client.head_dim

    def append(self, cache, fresh):
        cache[self.slots] = fresh

    def attend(self, q, keys, values):
        return self.varlen(q, keys, values, self.queries, self.ends, 1, self.client.longest)

    def of_sequence(self, cache, sequence):
        return cache[int(self.ends[sequence]):int(self.ends[sequence + 1])].transpose(0, 1)


def kinds_for(client):
    return (Sdpa,) if client.chunk else (Sdpa, Flex, Varlen)


def layer_of(client, attention):
    """Of one step: what comes in, the residual and what the layer before adds to it; the same comes out."""
    heads, kv_heads, dim = client.heads, client.kv_heads, client.head_dim
    widths = [heads * dim, kv_heads * dim, kv_heads * dim]

    def layer(residual, update, weights, keys, values, cosine, sine):
        rows = residual.shape[0]
        residual = residual + update
        q, k, v = F.linear(norm(residual, weights[0]), weights[1]).split(widths, -1)
        attention.append(keys, rotate(k.view(rows, kv_heads, dim), cosine, sine))
        attention.append(values, v.view(rows, kv_heads, dim))
        attended = attention.attend(rotate(q.view(rows, heads, dim), cosine, sine), keys, values)
        residual = residual + F.linear(attended.reshape(rows, heads * dim), weights[2])
        gate, up = F.linear(norm(residual, weights[3]), weights[4]).chunk(2, -1)
        return residual, F.linear(F.silu(gate) * up, weights[5])

    return layer


def end(residual, update, weight, table):
    """The hidden state, or logits and tokens."""
    hidden = norm(residual + update, weight)
    if table is None:
        return hidden, hidden
    logits = F.linear(hidden, table)
    return logits, logits.argmax(-1)


class Client:
    """One model with its sequences. `description` is what concert-bench says of it."""

    def __init__(self, description):
        self.__dict__.update(description)
        self.description, self.batch, self.longest = description, len(self.lengths), max(self.lengths)
        self.new_tokens = self.chunk or 1  # of each sequence a step
        self.rows = self.batch * self.new_tokens

    def open(self):
        generator = torch.Generator("cuda").manual_seed(self.seed)
        normal = lambda *shape: torch.randn(shape, generator=generator, device="cuda", dtype=DTYPE)
        matrix = lambda rows, columns: normal(rows, columns) / math.sqrt(columns)
        gain = lambda: 1 + normal(self.hidden) / 4
        q_columns, kv_columns = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.lengths = torch.tensor(self.lengths, device="cuda")
        self.normal = normal
        share = 1 / math.sqrt(2 * self.layers)  # what is added to the residual is smaller the more layers add to it
        self.layers = [(gain(), matrix(q_columns + 2 * kv_columns, self.hidden), matrix(self.hidden, q_columns) * share, gain(),
                        matrix(2 * self.ffn, self.hidden), matrix(self.hidden, self.ffn) * share) for _ in range(self.layers)]
        self.final, self.table = gain(), normal(self.vocabulary, self.hidden) if self.vocabulary else None
        self.tokens = torch.arange(self.rows, device="cuda") * 7 % max(self.vocabulary, 1)
        self.x, self.nothing = normal(self.rows, self.hidden), torch.zeros(self.rows, self.hidden, device="cuda", dtype=DTYPE)
        fresh = torch.arange(self.new_tokens, device="cuda")
        self.positions = (self.lengths[:, None] - self.new_tokens + fresh).flatten()  # of each row
        half = self.head_dim // 2
        angles = self.positions[:, None] / THETA ** (torch.arange(half, device="cuda") / half)
        self.cosine, self.sine = angles.cos()[:, None], angles.sin()[:, None]
        self.stream = torch.cuda.Stream(priority=-1 if self.high_priority else 0)
        self.event = torch.cuda.Event()

    def run(self, layer, finish, caches):
        x = self.x if self.table is None else F.embedding(self.tokens, self.table)
        update = self.nothing
        for weights, (keys, values) in zip(self.layers, caches):
            x, update = layer(x, update, weights, keys, values, self.cosine, self.sine)
        return finish(*self.last(x, update), self.final, self.table)

    def last(self, *rows):
        """Of what has logits: the last token of each sequence. A hidden state is that of all rows."""
        if self.table is None or not self.chunk:
            return rows
        return [x.view(self.batch, self.chunk, -1)[:, -1] for x in rows]

    def capture(self, kind):
        """The step with this kind of attention, as a graph; the first runs compile it."""
        attention = kind(self)
        caches = [tuple(self.normal(*attention.shape()) for _ in range(2)) for _ in self.layers]
        layer = torch.compile(layer_of(self, attention), dynamic=False, fullgraph=True)
        finish = torch.compile(end, dynamic=False, fullgraph=True)
        step = lambda: self.run(layer, finish, caches)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()  # weights and caches were made on another stream
        with torch.cuda.stream(self.stream):
            for _ in range(WARMUPS):
                step()
            self.stream.synchronize()
            with torch.cuda.graph(graph, stream=self.stream):
                results = step()
        self.stream.synchronize()
        return types.SimpleNamespace(name=kind.__name__, graph=graph, attention=attention, caches=caches, results=results)

    def time(self, step):
        """Seconds a replay."""
        trials = []
        with torch.cuda.stream(self.stream):
            for _ in range(TRIALS):
                start = time.perf_counter()
                for _ in range(REPLAYS):
                    step.graph.replay()
                self.stream.synchronize()
                trials.append((time.perf_counter() - start) / REPLAYS)
        return statistics.median(trials)

    def fastest(self):
        """Of all kinds that can run this, and the microseconds of each. What cannot says why in the log."""
        best, times = None, {}
        for kind in kinds_for(self):
            try:
                self.step = step = self.capture(kind)
                self.launch()
                if not self.error() < WRONG:
                    raise ArithmeticError("its results are wrong")
                times[step.name] = 1e6 * self.time(step)
                if min(times, key=times.get) == step.name:
                    best = step
            except Exception as error:  # whatever a compiler or kernel objects to
                print(f"{kind.__name__} cannot: {type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
            torch.cuda.empty_cache()
        if best is None:
            raise RuntimeError("no kind of attention can run this step")
        return best, times

    def build(self):
        """Whoever is first chooses and compiles, the others take what they find."""
        note = note_path(self.description)
        with contextlib.ExitStack() as stack:
            if not note.exists():
                fcntl.flock(stack.enter_context(open(note.with_suffix(".lock"), "w")), fcntl.LOCK_EX)
            if note.exists():
                stack.close()
                times = json.loads(note.read_text())
                fastest = min(times, key=times.get)
                with inductor.patch(compile_threads=1):  # all is in the cache: no pool of processes
                    self.step = self.capture(next(kind for kind in kinds_for(self) if kind.__name__ == fastest))
            else:
                self.step, times = self.fastest()
                whole = note.with_suffix(".new")
                whole.write_text(json.dumps(times))
                whole.rename(note)

    def launch(self):
        torch.cuda.set_stream(self.stream)
        self.step.graph.replay()
        self.event.record(self.stream)

    def error(self):
        """The relative Frobenius error of the last step against an eager one in fp32."""
        torch.cuda.synchronize()
        attention = self.step.attention

        def attend(q, keys, values):
            rows = []
            for sequence, positions in enumerate(self.positions.view(self.batch, -1)):
                k, v = (attention.of_sequence(cache, sequence).float().repeat_interleave(self.heads // self.kv_heads, 0)
                        for cache in (keys, values))
                later = torch.arange(k.shape[1], device=k.device) > positions[:, None]
                scores = torch.einsum("nhd,htd->hnt", q.unflatten(0, (self.batch, -1))[sequence], k) / math.sqrt(self.head_dim)
                rows.append(torch.einsum("hnt,htd->nhd", scores.masked_fill_(later, -math.inf).softmax(-1), v))
            return torch.cat(rows)

        # What the step appended is there already.
        layer = layer_of(self, types.SimpleNamespace(append=lambda cache, fresh: None, attend=attend))
        x = (self.x if self.table is None else F.embedding(self.tokens, self.table)).float()
        update = torch.zeros_like(x)
        for weights, (keys, values) in zip(self.layers, self.step.caches):
            x, update = layer(x, update, [weight.float() for weight in weights], keys, values, self.cosine, self.sine)
        right = end(*self.last(x, update), self.final.float(), None if self.table is None else self.table.float())[0]
        return float((self.step.results[0].float() - right).norm() / right.norm())


def note_path(description):
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    shape = {key: value for key, value in description.items() if key not in ("seed", "high_priority")}
    text = json.dumps([torch.__version__, torch.cuda.get_device_name(), shape], sort_keys=True)
    folder = pathlib.Path(cache_dir())
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"concert-step-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


class Worker:
    """Each function answers the order of its name."""

    def prepare(self, clients, gpu):
        torch.set_grad_enabled(False)
        torch._dynamo.config.recompile_limit = 256  # models and kinds of attention share their functions' code
        self.clients, self.gpu = [Client(client) for client in clients], gpu

    def open(self):
        for device in range(torch.cuda.device_count()):
            if str(torch.cuda.get_device_properties(device).uuid).replace("-", "") == self.gpu:
                torch.cuda.set_device(device)
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()

    def build(self):
        from torch._inductor.async_compile import shutdown_compile_workers
        try:
            for client in self.clients:
                client.open()
                client.build()
                client.launch()
        finally:
            shutdown_compile_workers()  # else they take CPU time from whatever is measured next
        torch.cuda.synchronize()
        return {"attention": [client.step.name for client in self.clients]}

    def check(self):
        worst = max(client.error() for client in self.clients)
        torch.cuda.empty_cache()
        return {"error": worst if math.isfinite(worst) else None}

    def lap(self, participants, begin_ns, end_ns):
        """Each participant launches its next step when it has seen the end of the one before."""
        runs, latencies = [0.0] * len(participants), [[] for _ in participants]
        clients = [self.clients[i] for i in participants]
        started, running = [0] * len(clients), list(range(len(clients)))
        for i in running:
            started[i] = time.monotonic_ns()
            clients[i].launch()
        while running:
            for i in list(running):
                if not clients[i].event.query():
                    continue
                now = time.monotonic_ns()
                inside = min(now, end_ns) - max(started[i], begin_ns)
                runs[i] += max(inside, 0) / (now - started[i])
                if begin_ns <= now < end_ns:
                    latencies[i].append((now - started[i]) / 1000)
                if now < end_ns:
                    started[i] = now
                    clients[i].launch()
                else:
                    running.remove(i)
        return {"runs": runs, "latencies_us": latencies}


def main():
    peer, worker = socket.socket(fileno=int(sys.argv[1])), Worker()
    for line in peer.makefile("r", encoding="utf-8"):
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("order"))(**order) or {}
        except Exception as error:  # whatever it is, concert-bench says it
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"[:400]}
        peer.sendall((json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()

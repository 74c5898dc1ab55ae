# A small Llama-like model whose whole decode step is one op: recorded once as a program, run for each token.
# CONCERT_SOCKET names the daemon.
import math

import concert
import numpy as np

HIDDEN, HEADS, KV_HEADS, DIM, INTERMEDIATE, LAYERS, VOCABULARY = 256, 4, 2, 64, 512, 2, 1000
PAGE_SIZE, PAGES_OF_ROW, THETA = 16, 8, 10_000.0  # up to 128 tokens of a sequence


def make_weights(seed):
    """What a checkpoint would bring, as numpy arrays."""
    random = np.random.default_rng(seed)
    matrix = lambda rows, columns: random.normal(size=(rows, columns)) / math.sqrt(columns)
    return {"table": random.normal(size=(VOCABULARY, HIDDEN)), "norm": np.ones(HIDDEN),
            "layers": [{"norm": random.uniform(0.5, 1.5, HIDDEN), "qkv": matrix((HEADS + 2 * KV_HEADS) * DIM, HIDDEN),
                        "o": matrix(HIDDEN, HEADS * DIM), "mlp_norm": random.uniform(0.5, 1.5, HIDDEN),
                        "gate_up": matrix(2 * INTERMEDIATE, HIDDEN), "down": matrix(HIDDEN, INTERMEDIATE)}
                       for _ in range(LAYERS)]}


class Decoder:
    """`rows` sequences, each in pages of its own; step() gives each its next token."""

    def __init__(self, session, weights, rows):
        bf16 = lambda array: session.array(array, "bf16")
        self.table, self.norm = bf16(weights["table"]), bf16(weights["norm"])
        self.layers = [{name: bf16(array) for name, array in layer.items()} for layer in weights["layers"]]
        cache = lambda: session.zeros((rows * PAGES_OF_ROW, PAGE_SIZE, KV_HEADS, DIM), "bf16")
        self.caches = [(cache(), cache()) for _ in range(LAYERS)]
        angles = np.arange(PAGES_OF_ROW * PAGE_SIZE)[:, None] / THETA**(np.arange(DIM // 2) / (DIM // 2))
        self.cos_sin = session.array(np.concatenate([np.cos(angles), np.sin(angles)], axis=1), "fp32")
        # What each step brings: tokens in and out, where they stand, and where their keys and values lie.
        self.inputs = [session.zeros(rows, "int32") for _ in range(4)]
        self.tokens, self.positions, self.slots, self.lengths = self.inputs
        self.pages = session.array(np.arange(rows * PAGES_OF_ROW).reshape(rows, PAGES_OF_ROW), "int32")
        self.logits = session.zeros((rows, VOCABULARY), "bf16")
        self.queue, self.rows, self.length = session.queue(), rows, 0
        self.program = self.record(session)
        self.run = concert.Run(self.program, *self.inputs, self.pages, self.tokens)

    def record(self, session):
        program, rows = session.program(), self.rows
        queue = program.queue
        tokens, positions, slots, lengths = (program.binding(rows, "int32") for _ in range(4))
        pages, following = program.binding((rows, PAGES_OF_ROW), "int32"), program.binding(rows, "int32")
        new = lambda columns: program.arena((rows, columns), "bf16")
        residual = new(HIDDEN)
        queue.embedding(tokens, self.table, residual)
        update = None  # what the layer before adds to the residual
        for layer, (keys, values) in zip(self.layers, self.caches):
            normed, qkv, attended = new(HIDDEN), new((HEADS + 2 * KV_HEADS) * DIM), new(HEADS * DIM)
            self.add_norm(queue, update, residual, layer["norm"], normed)
            queue.gemm(normed, layer["qkv"], qkv)
            q, k, v = (qkv[:, at * DIM:end * DIM] for at, end in ((0, HEADS), (HEADS, HEADS + KV_HEADS),
                                                                  (HEADS + KV_HEADS, HEADS + 2 * KV_HEADS)))
            queue.rope_append(q, k, v, positions, slots, self.cos_sin, keys, values)
            queue.attention_decode(q, keys, values, lengths, attended, page_table=pages)
            update, normed, gate_up, inner = new(HIDDEN), new(HIDDEN), new(2 * INTERMEDIATE), new(INTERMEDIATE)
            queue.gemm(attended, layer["o"], update)
            self.add_norm(queue, update, residual, layer["mlp_norm"], normed)
            queue.gemm(normed, layer["gate_up"], gate_up)
            queue.gated_activation(gate_up, inner)
            update = new(HIDDEN)
            queue.gemm(inner, layer["down"], update)
        normed = new(HIDDEN)
        self.add_norm(queue, update, residual, self.norm, normed)
        queue.gemm(normed, self.table, self.logits)
        queue.argmax(self.logits, following)
        program.end()
        return program

    @staticmethod
    def add_norm(queue, x, residual, weight, out):
        """residual += x, if there is one; out = weight * normalised(residual)."""
        if x is None:
            queue.rms_norm(residual, weight, out)
        else:
            queue.rms_norm(x, weight, out, residual=residual)

    def step(self, tokens=None):
        """The tokens that follow `tokens`, by default those of the step before."""
        if tokens is not None:
            self.tokens.write(np.asarray(tokens, np.int32))
        self.positions.write(np.full(self.rows, self.length, np.int32))
        self.slots.write(np.arange(self.rows, dtype=np.int32) * PAGES_OF_ROW * PAGE_SIZE + self.length)
        self.length += 1
        self.lengths.write(np.full(self.rows, self.length, np.int32))
        self.queue.submit(self.run).wait()
        return self.tokens.read()


def main():
    with concert.connect() as session:
        decoder = Decoder(session, make_weights(seed=1), rows=4)
        tokens = [decoder.step([1, 20, 300, 999])] + [decoder.step() for _ in range(15)]
        for row in np.array(tokens).T:
            print(*row)


if __name__ == "__main__":
    main()

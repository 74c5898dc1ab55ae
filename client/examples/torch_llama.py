# Two servers, each with a small Llama-like model whose linear layers go through concertd. CONCERT_SOCKET names the
# daemon; on the simulator tensors are the CPU's.
import contextlib
import multiprocessing

import concert.torch
import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, INTERMEDIATE, LAYERS, VOCABULARY, STEPS = 128, 4, 352, 2, 512, 8


class Linear(nn.Linear):
    """The only change to the model."""

    def forward(self, x):
        return torch.ops.concert.linear(x, self.weight, self.bias)


class Layer(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv = linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.o = linear(HIDDEN, HIDDEN, bias=False)
        self.gate_up = linear(HIDDEN, 2 * INTERMEDIATE, bias=False)
        self.down = linear(INTERMEDIATE, HIDDEN, bias=False)

    def forward(self, x, cache):
        """One token of each sequence; `cache` holds keys and values of those before."""
        q, k, v = (part.view(-1, HEADS, 1, HIDDEN // HEADS)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1))
        cache[:] = [torch.cat(pair, dim=2) for pair in zip(cache, (k, v))] if cache else [k, v]
        x = x + self.o(F.scaled_dot_product_attention(q, *cache).reshape(-1, HIDDEN))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer(linear) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        """Logits of every step, each from the tokens that were the likeliest in the one before."""
        caches, steps = [[] for _ in self.layers], []
        for _ in range(STEPS):
            x = self.embedding(tokens)
            for layer, cache in zip(self.layers, caches):
                x = layer(x, cache)
            steps.append(self.head(self.norm(x)))
            tokens = steps[-1].argmax(dim=-1)
        return torch.stack(steps)


def serve(number, batch):
    with concert.connect(name=f"llama-{number}") as session, torch.inference_mode():
        concert.torch.use(session)
        on_gpu = session.backend == concert.Backend.CUDA
        torch.manual_seed(number)
        reference = Model(nn.Linear)
        tokens = torch.randint(VOCABULARY, (batch,))
        expected = reference(tokens)
        # The pool's memory is the daemon's from the start; other memory would be imported.
        pool = torch.cuda.use_mem_pool(concert.torch.pool()) if on_gpu else contextlib.nullcontext()
        with pool, torch.device("cuda" if on_gpu else "cpu"):
            model = Model(Linear)
            model.load_state_dict(reference.state_dict())
            logits = model(tokens.to("cuda" if on_gpu else "cpu")).cpu()
        torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
        print(f"server {number}: {STEPS} tokens for each of {batch} sequences, as torch.nn.functional.linear gives them")


if __name__ == "__main__":
    processes = multiprocessing.get_context("spawn")
    servers = [processes.Process(target=serve, args=(number, 4 + number)) for number in range(2)]
    for server in servers:
        server.start()
    for server in servers:
        server.join()
    raise SystemExit(max(server.exitcode for server in servers))

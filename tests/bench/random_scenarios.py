#!/usr/bin/env python3
"""Writes random sets of GEMMs as a file of the suite `gemm`: shapes that nothing was chosen or fitted by.

    random_scenarios.py [--seed 60] [--count 60] [--out FILE]    # default: stdout

tests/bench/scenarios/unseen.json is what it writes by default. Every other set has equal shapes; the others are shapes
of one layer (several m, the same n and k) or of different layers. Sizes are log-uniform: m 1 to 1024, n and k multiples
of 64 from 256 to 8192, 2 to 8 GEMMs, 60 GFLOP at most together.
"""
import argparse
import json
import random
import sys

MAX_FLOPS = 60e9


def log_uniform(rng, low, high):
    return low * (high / low) ** rng.random()


def rows(rng):
    return round(log_uniform(rng, 1, 1024))


def extent(rng):
    return 64 * round(log_uniform(rng, 256, 8192) / 64)


def shape(rng):
    return {"m": rows(rng), "n": extent(rng), "k": extent(rng)}


def pick(rng, choices):
    return choices[int(rng.random() * len(choices))]


def gemms(rng, form):
    count = pick(rng, range(2, 9))
    first = shape(rng)
    if form == "equal":
        return [first | {"count": count}]
    if form == "layer":
        return [first] + [first | {"m": rows(rng)} for _ in range(count - 1)]
    return [first] + [shape(rng) for _ in range(count - 1)]


def flops(company):
    return sum(2 * gemm["m"] * gemm["n"] * gemm["k"] * gemm.get("count", 1) for gemm in company)


def scenarios(seed, count):
    rng = random.Random(seed)  # only random() is used, whose sequence Python guarantees
    made = []
    while len(made) < count:
        form = ("equal", "layer", "equal", "layers")[len(made) % 4]
        company = gemms(rng, form)
        if flops(company) <= MAX_FLOPS:
            made.append({"name": f"random-{len(made):02}-{form}", "class": "equal" if form == "equal" else "mixed",
                         "gemms": company})
    return made


def text(seed, count):
    lines = ",\n".join("  " + json.dumps(scenario) for scenario in scenarios(seed, count))
    return f'{{\n "suite": "gemm",\n "scenarios": [\n{lines}\n ]\n}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=60)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    options = parser.parse_args()
    options.out.write(text(options.seed, options.count))


if __name__ == "__main__":
    main()

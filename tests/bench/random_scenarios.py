#!/usr/bin/env python3
"""Writes random sets of GEMMs as files of the suite `gemm`: shapes that nothing was chosen or fitted by.

    random_scenarios.py [--class tiny,small,large,mixed] [--count 60] [--seed N] [--out FOLDER]

Writes random-CLASS.json into FOLDER, tests/bench/scenarios by default, whose files are what the script writes without
arguments. They and the seeds (SEEDS) were committed before anything was measured with them, and never change.

Sizes are log-uniform. Every other set has equal shapes; the others are shapes of one layer (several m, the same n and
k) or of different layers. Every third set is fp8, the others are bf16.

    class   GEMMs   m              n and k                               all GEMMs of a set
    tiny    2..32   1..64          multiples of 16, 64..1024
    small   2..8    1..1024        multiples of 64, 256..8192            60 GFLOP at most
    large   2..6    1000..8000     multiples of 8 (fp8: 16) or, in a     1 TFLOP at most
                                   fifth of the bf16 sets, any;
                                   1000..8000
    mixed   2..12   each GEMM (of equal and layer sets: each half) of a  1 TFLOP at most
                    class above, one large and one not at least
"""
import argparse
import json
import pathlib
import random

SEEDS = {"tiny": 1401, "small": 1402, "large": 1403, "mixed": 1404}
FORMS = ("equal", "layer", "equal", "layers")
FOLDER = pathlib.Path(__file__).parent / "scenarios"

# GEMMs, bounds of m, bounds of n and k, what these are multiples of, FLOP of a set.
LIMITS = {
    "tiny": {"count": (2, 32), "m": (1, 64), "nk": (64, 1024), "unit": 16, "flops": 60e9},
    "small": {"count": (2, 8), "m": (1, 1024), "nk": (256, 8192), "unit": 64, "flops": 60e9},
    "large": {"count": (2, 6), "m": (1000, 8000), "nk": (1000, 8000), "unit": 8, "flops": 1e12},
    "mixed": {"count": (2, 12), "flops": 1e12},
}


class Maker:
    """Draws shapes. Only random() is used, whose sequence Python guarantees."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def log_uniform(self, bounds):
        low, high = bounds
        return low * (high / low) ** self.rng.random()

    def pick(self, choices):
        return choices[int(self.rng.random() * len(choices))]

    def count(self, bounds):
        return min(bounds[1], int(self.log_uniform((bounds[0], bounds[1] + 1))))

    def unit(self, kind, dtype):
        if kind != "large":
            return LIMITS[kind]["unit"]
        return 16 if dtype == "fp8_e4m3" else self.pick((8, 8, 8, 8, 1))

    def rows(self, kind):
        return round(self.log_uniform(LIMITS[kind]["m"]))

    def extent(self, kind, unit):
        low, high = LIMITS[kind]["nk"]
        return min(high // unit, max(-(-low // unit), round(self.log_uniform((low, high)) / unit))) * unit

    def shape(self, kind, dtype, unit):
        shape = {"m": self.rows(kind), "n": self.extent(kind, unit), "k": self.extent(kind, unit)}
        return shape if dtype == "bf16" else shape | {"dtype": dtype}

    def gemms(self, kind, form, dtype, count):
        unit = self.unit(kind, dtype)
        first = self.shape(kind, dtype, unit)
        if form == "equal":
            return [first | {"count": count}] if count > 1 else [first]
        if form == "layer":
            return [first] + [first | {"m": self.rows(kind)} for _ in range(count - 1)]
        return [first] + [self.shape(kind, dtype, unit) for _ in range(count - 1)]

    def gemm_set(self, kind, form, dtype):
        count = self.count(LIMITS[kind]["count"])
        if kind != "mixed":
            return self.gemms(kind, form, dtype, count)
        if form == "layers":
            kinds = ["large", self.pick(("tiny", "small"))]
            kinds += [self.pick(("tiny", "small", "large")) for _ in range(count - 2)]
            return [gemm for kind in kinds for gemm in self.gemms(kind, form, dtype, 1)]
        large = max(1, count // 2)
        other = self.gemms(self.pick(("tiny", "small")), form, dtype, max(1, count - large))
        return self.gemms("large", form, dtype, large) + other


def gemm_count(gemms):
    return sum(gemm.get("count", 1) for gemm in gemms)


def flops(gemms):
    return sum(2 * gemm["m"] * gemm["n"] * gemm["k"] * gemm.get("count", 1) for gemm in gemms)


def scenarios(kind, seed, count):
    maker = Maker(seed)
    made = []
    while len(made) < count:
        form = FORMS[len(made) % len(FORMS)]
        dtype = "fp8_e4m3" if len(made) % 3 == 2 else "bf16"
        gemms = maker.gemm_set(kind, form, dtype)
        if flops(gemms) <= LIMITS[kind]["flops"]:
            name = f"{kind}-{len(made):02}-{form}-{dtype.partition('_')[0]}"
            made.append({"name": name, "class": kind, "gemms": gemms})
    return made


def text(kind, seed, count):
    lines = ",\n".join("  " + json.dumps(scenario) for scenario in scenarios(kind, seed, count))
    return f'{{\n "suite": "gemm",\n "scenarios": [\n{lines}\n ]\n}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--class", dest="kinds", default=",".join(SEEDS))
    parser.add_argument("--seed", type=int, help="default: the class's own")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER)
    options = parser.parse_args()
    for kind in options.kinds.split(","):
        seed = SEEDS[kind] if options.seed is None else options.seed
        (options.out / f"random-{kind}.json").write_text(text(kind, seed, options.count))


if __name__ == "__main__":
    main()

"""Reads exports of the tuning store: JSON Lines, one measured (problem, SM budget, degree, form) per line; of a name
that ends in .gz, compressed.

Keys: m, n, k, batch, dtype, sm_budget (0: all SMs), degree, form, median_us (of one GEMM: the co-run set's time divided
by its size), spread_us (p90 - p10), samples, variant (an object). A value that is not known is left out. read() adds
`export`, the file's path: times of one run of the tuner compare best with each other.
"""

import gzip
import json
import math
from collections import defaultdict
from typing import NamedTuple

# How many GEMMs stand for a degree: policies/seam/variant.h, CountOf.
COUNT_OF = {"solo": 1, "two": 2, "four": 4, "eight": 8, "many": 16}
FORMS = ("single", "streams", "group")


class Problem(NamedTuple):
    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "bf16"

    def __str__(self):
        batch = f" x{self.batch}" if self.batch != 1 else ""
        return f"{self.m}x{self.n}x{self.k}{batch} {self.dtype}"


def problem_of(row):
    return Problem(row["m"], row["n"], row["k"], row.get("batch", 1), row.get("dtype", "bf16"))


def parse_row(line, where):
    try:
        row = json.loads(line)
        problem = problem_of(row)
        sizes_valid = all(isinstance(size, int) and size > 0 for size in problem[:4])
        time_valid = math.isfinite(row["median_us"]) and row["median_us"] > 0
        if not (sizes_valid and time_valid and row["degree"] in COUNT_OF and row["form"] in FORMS):
            raise ValueError("a size, median_us, degree or form is not valid")
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{where}: not a row of a tuning store's export ({error!r}): {line.strip()[:120]}") from error
    return row


def text_of(path):
    """What an export says, compressed or not."""
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return file.read().decode()


def read(paths):
    """Rows of several exports. Ends the program with a sentence if one is not an export."""
    rows = []
    for path in paths:
        rows += [parse_row(line, f"{path}:{number}") | {"export": path}
                 for number, line in enumerate(text_of(path).splitlines(), 1) if line.strip()]
    return rows


def times(rows, sm_budget=0):
    """{problem: {(degree, form): us per GEMM}} of one SM budget: the best variant's, geometric mean over exports.

    Clocks and power drift from run to run by more than sets differ. So times of an export are taken over its own
    solo time of the problem, and the mean of these ratios is scaled by the mean solo time.
    """
    best = defaultdict(dict)  # (problem, export) -> {(degree, form): us}
    for row in rows:
        if row.get("sm_budget", 0) != sm_budget:
            continue
        of_export = best[problem_of(row), row.get("export")]
        key = (row["degree"], row["form"])
        of_export[key] = min(row["median_us"], of_export.get(key, math.inf))
    ratios = defaultdict(lambda: defaultdict(list))
    solos = defaultdict(list)
    for (problem, _), of_export in best.items():
        solo = of_export.get(("solo", "single"))
        if solo is None:
            continue  # nothing to compare with
        solos[problem].append(solo)
        for key, time_us in of_export.items():
            ratios[problem][key].append(time_us / solo)
    return {problem: {key: geometric_mean(values) * geometric_mean(solos[problem])
                      for key, values in of_problem.items()}
            for problem, of_problem in sorted(ratios.items())}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def streams_times(of_problem):
    """{degree: us per GEMM} of GEMMs side by side: what the form streams can choose from."""
    return {COUNT_OF[degree]: time_us for (degree, form), time_us in sorted(of_problem.items())
            if (form == "streams" and COUNT_OF[degree] > 1) or (degree, form) == ("solo", "single")}

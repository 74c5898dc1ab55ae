#!/usr/bin/env python3
"""Holds what programs are predicted to take against what was measured: docs/benchmarks/programs-model.md.

  tests/bench/report_programs.py --predict PROGRAM                the page; PROGRAM is predict_programs
  tests/bench/report_programs.py --predict PROGRAM --check PAGE --most SHARE
                                                                  exit status 1 where the page says something else, or where what
                                                                  was held out is off by more (median)
  tests/bench/report_programs.py --predict PROGRAM --fit          the constants of policies/cost/program_cost.h

What was measured stands in docs/: in result files of suite `steps`, and in sentences and tables that SOURCES names.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
from typing import NamedTuple

from report_data import named, read
from report_markdown import number, percent, table_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/benchmarks"
SCENARIOS = ROOT / "tests/bench/scenarios/steps.json"
SOURCES = {
    "steps-h100": "[steps-h100](steps-h100.json)", "steps-more-h100": "[steps-more-h100](steps-more-h100.json)",
    "steps-h200": "[steps-h200](steps-h200.json)", "steps-replicas-h200": "[steps-replicas-h200](steps-replicas-h200.json)",
    "whole": "[README](README.md#whole-steps)",
    "29": "[ADR 29](../adr/0029-a-step-is-one-launch.md)", "35": "[ADR 35](../adr/0035-shares-of-the-sms.md)",
}
RING_US = 13  # that ring and daemon add to a run (README.md, "Whole steps"): a client's latency has it, a prediction has not
CALIBRATION, HELD_OUT = "calibration", "held out"


class Measured(NamedTuple):
    scenario: str
    gpu: str
    engine: str  # of predict_programs: step, graph, pass; "of ops": of when graphs launched each op by itself
    figure: str  # alone_us, us: of a run; per_s: steps a second of all clients
    value: float
    source: str
    use: str = HELD_OUT
    kind: int = -1  # of the scenario's kinds of clients


def entry_of(stem, scenario):
    return named(read(DOCS / f"{stem}.json"), scenario)


def latency_us(stem, scenario, key="latency_us", client=0):
    """Of a step, as a client sees it; solo_latency_us: while its neighbours are asleep."""
    return entry_of(stem, scenario)[key]["concert"][client]["p50"]


def alone_us(*step, **of_whom):
    """Of a client alone, without what ring and daemon add."""
    return latency_us(*step, **of_whom) - RING_US


def rate(stem, scenario):
    return entry_of(stem, scenario)["throughput_per_s"]["concert"]


def stated(source, figure):
    """A figure of a sentence or table, which must have it: what it says changes with what is measured."""
    path = DOCS / re.search(r"\(([^)#]+)", SOURCES[source]).group(1)
    if not re.search(rf"(?<![\d,.]){figure:,}(?![\d,.]*\d)", path.read_text(encoding="utf-8")):
        raise SystemExit(f"{path.resolve()} does not have {figure:,}, which {pathlib.Path(__file__).name} takes from it")
    return figure


def measured():
    rows = [
        Measured("decode-1024-x1", "h100", "step", "alone_us", alone_us("steps-h100", "decode-1024-x1"), "steps-h100", CALIBRATION),
        Measured("decode-2048-x1", "h100", "step", "alone_us", alone_us("steps-h100", "decode-2048-x1"), "steps-h100", CALIBRATION),
        Measured("decode-1024-x1", "h100", "graph of ops", "alone_us", stated("29", 630), "29", CALIBRATION),
        Measured("decode-2048-x1", "h100", "graph of ops", "alone_us", stated("29", 1008), "29", CALIBRATION),
        Measured("decode-gqa1536-x1", "h100", "step", "alone_us", stated("whole", 822) - RING_US, "whole"),
        Measured("decode-1024-x1", "h200", "graph of ops", "alone_us", stated("29", 574), "29"),
        Measured("prefill-beside-decode", "h100", "graph of ops", "alone_us",
                 alone_us("steps-h100", "prefill-beside-decode", "solo_latency_us", client=-1), "steps-h100"),
        Measured("replicas-1024-x8", "h100", "pass of ops", "us", latency_us("steps-h100", "replicas-1024-x8"), "steps-h100"),
        Measured("replicas-2048-x8", "h100", "pass of ops", "us", latency_us("steps-h100", "replicas-2048-x8"), "steps-h100"),
        Measured("replicas-gqa1536-x4", "h100", "pass of ops", "per_s", rate("steps-more-h100", "replicas-gqa1536-x4"), "steps-more-h100"),
    ]
    together = {"decode-1024-x2": (2373, 4547), "decode-1024-x4": (3596, 5280), "decode-1024-x8": (4773, 5597),
                "decode-1024-batch1-x8": (6764, 8988), "decode-2048-x4": (1547, 1730), "decode-2048-x8": (1703, 1807),
                "decode-gqa1536-x6": (1650, 1691), "decode-qwen05b-x8": (2206, 2655), "decode-4096-x2": (637, 708),
                "contexts-ragged-x8": (3323, 4096)}  # graph and step, of ADR 35's table
    for scenario, rates in together.items():
        rows += [Measured(scenario, "h100", engine, "per_s", stated("35", value), "35",
                          CALIBRATION if (scenario, engine) == ("decode-2048-x8", "step") else HELD_OUT)  # step_hbm_share
                 for engine, value in zip(("graph of ops", "step"), rates)]
    rows += [Measured(scenario, "h200", "step", "alone_us", alone_us("steps-h200", scenario), "steps-h200")
             for scenario in ("decode-1024-x1", "decode-2048-x1", "decode-gqa1536-x1")]
    rows += [Measured(scenario, "h200", "step", "per_s", rate("steps-h200", scenario), "steps-h200")
             for scenario in ("decode-1024-x8", "decode-2048-x8", "decode-qwen05b-x8", "decode-4096-x2")]
    rows += [Measured(scenario, "h200", "pass", "us", latency_us("steps-replicas-h200", scenario), "steps-replicas-h200")
             for scenario in ("replicas-1024-x8", "replicas-2048-x8")]
    rows.append(Measured("replicas-gqa1536-x4", "h200", "pass", "per_s", rate("steps-replicas-h200", "replicas-gqa1536-x4"), "steps-replicas-h200"))
    return rows


def predict(program, *options):
    ran = subprocess.run([program, "--scenarios", SCENARIOS, *options], check=True, stdout=subprocess.PIPE, text=True)
    entries = map(json.loads, ran.stdout.splitlines())
    return {entry["name"]: entry["kinds"] for entry in entries}


def predicted(kinds, row):
    return kinds[row.scenario][row.kind][row.gpu][row.engine][row.figure]


def times_as_long(kinds, row):
    """Predicted over measured time, of a run or a step."""
    ratio = predicted(kinds, row) / row.value
    return 1 / ratio if row.figure == "per_s" else ratio


def fit(program):
    """Each constant is in its engine's times, as a straight line; by least squares of relative errors."""
    lines = []
    for option, engine in (("--graph-link-us", "graph of ops"), ("--step-pass-us", "step")):
        at_0, at_1 = predict(program, option, "0"), predict(program, option, "1")
        rows = [row for row in measured() if row.use == CALIBRATION and row.engine == engine and row.figure == "alone_us"]
        slopes = [(predicted(at_1, row) - predicted(at_0, row)) / row.value for row in rows]
        gaps = [1 - predicted(at_0, row) / row.value for row in rows]
        value = sum(map(lambda slope, gap: slope * gap, slopes, gaps)) / sum(slope * slope for slope in slopes)
        lines.append(f"{option} {value:.2f}")
    return lines


def error_of(kinds, rows):
    return statistics.median(abs(times_as_long(kinds, row) - 1) for row in rows)


def summary(kinds, rows):
    held_out = [row for row in rows if row.use == HELD_OUT]
    worst = max(held_out, key=lambda row: abs(times_as_long(kinds, row) - 1))
    groups = [("one run alone, as a graph or by the step kernel", lambda row: row.figure == "alone_us"),
              ("passes", lambda row: row.engine.startswith("pass")),
              ("several clients, as graphs", lambda row: row.figure == "per_s" and row.engine.startswith("graph")),
              ("several clients, by the step kernel", lambda row: row.figure == "per_s" and row.engine == "step")]
    lines = [f"- Held out: {len(held_out)} figures, off by {percent(error_of(kinds, held_out))} (median), at worst "
             f"{percent(abs(times_as_long(kinds, worst) - 1))} (`{worst.scenario}`). Of these"]
    for name, belongs in groups:
        group = [row for row in held_out if belongs(row)]
        most = max(abs(times_as_long(kinds, row) - 1) for row in group)
        lines.append(f"  - {name}: {percent(error_of(kinds, group))} of {len(group)}, at most {percent(most)}")
    calibration = [row for row in rows if row.use == CALIBRATION]
    lines.append(f"- Calibrated with {len(calibration)} figures of one H100, which three constants leave off by "
                 f"{percent(error_of(kinds, calibration))} (median).")
    return lines


def figures_table(kinds, rows):
    cells = []
    for row in rows:
        unit = "steps/s" if row.figure == "per_s" else "µs"
        cells.append([row.scenario, row.gpu.upper(), row.engine, row.use, SOURCES[row.source], unit, number(row.value),
                      number(predicted(kinds, row)), number(times_as_long(kinds, row), 2)])
    return ["", *table_of(["scenario", "GPU", "by", "used for", "measured in", "unit", "measured", "predicted", "predicted / measured time"],
                          cells, text_columns=6)]


def page(kinds):
    rows = measured()
    order = [CALIBRATION, HELD_OUT]
    rows.sort(key=lambda row: (order.index(row.use), row.figure == "per_s", row.engine))
    return ["# Predicted times of programs", "",
            "What `policies/cost/program_cost.h` predicts for the scenarios of suite `steps`, by engine, against what was measured and published. "
            "`tests/bench/report_programs.py --predict build/release/bin/predict_programs` writes this page; a test compares.", "",
            *summary(kinds, rows), *figures_table(kinds, rows), "",
            "- A figure of one run is that of its kernels: of a client's latency, "
            f"{RING_US} µs of ring and daemon are taken off, but not of a pass's.",
            "- `graph of ops`, `pass of ops`: measured when graphs launched each op by itself, and predicted as if they did. Now GEMMs of few rows take in what "
            "stands beside them ([ADR 36](../adr/0036-gemms-of-few-rows.md)).",
            "- `pass`: all of its runs together, as a graph. Several clients have one run in flight each. What they take beside each other no "
            "plan predicts: it has the time that its run takes alone. Here, and where it is decided whether replicas have a pass, it follows from the same two parts of a run, memory's time, which clients take "
            "from each other, and the rest (`TogetherUs` in `policies/cost/program_cost.h`).",
            "- No constant is fitted to a figure that is held out. But these figures were known when it was decided what a prediction consists of, and of two "
            "ways to reckon several clients the nearer one was taken.",
            "- `contexts-ragged-x8` has rows of 16 to 2048 tokens, predicted as if all had 2048: how long they are only the GPU sees.",
            "- One client's steps take longer on an H200 than predicted: they wait for the step kernel's loop over K there, not for memory "
            "([ADR 29](../adr/0029-a-step-is-one-launch.md)), and a pass of a stage is predicted to take what it takes beside an H100's memory.",
            "- An H100 is taken for an H200 with memory of 2.88 instead of 4.2 TB/s."]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", metavar="PROGRAM", required=True)
    parser.add_argument("--check", metavar="PAGE", type=pathlib.Path)
    parser.add_argument("--most", type=float, default=1)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    if arguments.fit:
        print("\n".join(fit(arguments.predict)))
        return 0
    kinds = predict(arguments.predict)
    text = "\n".join(page(kinds)) + "\n"
    if arguments.check is None:
        print(text, end="")
        return 0
    error = error_of(kinds, [row for row in measured() if row.use == HELD_OUT])
    same = arguments.check.read_text(encoding="utf-8") == text
    if not same:
        print(f"{arguments.check} does not say what is predicted: write it anew with {pathlib.Path(__file__).name}")
    if error > arguments.most:
        print(f"what was held out is off by {percent(error)}, at most {percent(arguments.most)} are wanted")
    return 0 if same and error <= arguments.most else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Fits the constants of the cost model (policies/seam/cost_constants.h) to measured times and says how well they predict.

  fit_costs.py docs/benchmarks/gemm-h200.json policies/training/data/h200_store.jsonl.gz
  fit_costs.py RESULT.json --evaluations 0     only how well today's constants predict

Reads result files of concert-bench's suite `gemm` (.json) and exports of the tuning store (.jsonl, .jsonl.gz).
Predictions come from the C++ models through the program predict_costs; nothing is computed twice. What is printed as
"held out" is that on sets of shapes which the fit has not seen (leave-one-shape-out); "choice" is how good the form is
that is predicted to be fastest. Changes no file.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
from typing import NamedTuple

import store

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
CONSTANTS_HEADER = os.path.join(ROOT, "policies/seam/cost_constants.h")
# The range that a constant stays in. unaligned_factor is left out: it shows in one scenario only.
RANGES = {"fill_us": (0, 5), "store_us_per_element": (0, 2e-4), "sm_bytes_per_s": (50e9, 300e9), "fp8_share": (0.5, 1), "hbm_efficiency": (0.5, 1), "split_us": (0, 10),
          "hoarding": (0, 1), "issue_us": (0, 5), "handover_us": (0, 10), "wave_crowding": (0, 1)}
FORM_OF_BASELINE = {"serial": "single", "streams": "streams", "group": "group"}
DTYPES = ("bf16", "fp16", "fp32", "fp8_e4m3")


class Measured(NamedTuple):
    gemms: tuple  # of (m, n, k, batch, dtype, count)
    form: str
    time_us: float

    @property
    def shapes(self):
        return frozenset(gemm[:5] for gemm in self.gemms)


def of_result(result, scenarios):
    gemms_of = {scenario["name"]: scenario["gemms"] for scenario in scenarios["scenarios"]}
    for scenario in result["scenarios"]:
        gemms = tuple((g["m"], g["n"], g["k"], g.get("batch", 1), g.get("dtype", "bf16"), g.get("count", 1))
                      for g in gemms_of.get(scenario["name"], []))
        if not gemms or any(gemm[4] not in DTYPES for gemm in gemms):
            continue
        for name, form in FORM_OF_BASELINE.items():
            if name in scenario["times_us"]:
                yield Measured(gemms, form, scenario["times_us"][name]["p50"])


def of_export(path):
    """Solo and co-run times of a store; a co-run set takes its size times the time per GEMM."""
    for problem, times in store.times(store.read([path])).items():
        for (degree, form), time_us in times.items():
            count = store.COUNT_OF[degree]
            if problem.dtype in DTYPES and (count > 1) == (form != "single"):
                yield Measured(((*problem, count),), form, count * time_us)


def read(paths, scenarios_path):
    with open(scenarios_path, encoding="utf-8") as file:
        scenarios = json.load(file)
    measured = []
    for path in paths:
        if path.endswith((".jsonl", ".jsonl.gz")):
            measured += of_export(path)
            continue
        with open(path, encoding="utf-8") as file:
            measured += of_result(json.load(file), scenarios)
    return measured


class Predictor:
    """The C++ cost model, asked through a pipe."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.keys = ("m", "n", "k", "batch", "dtype", "count")

    def errors(self, measured, costs):
        """ln(predicted / measured) of each, None where the model does not predict the form."""
        errors = []
        for one in measured:
            query = {"gemms": [dict(zip(self.keys, gemm)) for gemm in one.gemms], "costs": costs}
            self.process.stdin.write(json.dumps(query) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                raise SystemExit("predict_costs ended; its message is above")
            predicted_us = json.loads(answer).get(one.form + "_us")
            errors.append(None if predicted_us is None else math.log(predicted_us / one.time_us))
        return errors

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def objective(measured, errors):
    """Mean absolute log error; every form counts as much, however often it was measured."""
    by_form = {}
    for one, error in zip(measured, errors):
        by_form.setdefault(one.form, []).append(abs(error))
    return statistics.mean(statistics.mean(values) for values in by_form.values())


def todays_constants():
    with open(CONSTANTS_HEADER, encoding="utf-8") as file:
        values = dict(re.findall(r"^  double (\w+) = ([\d.e+-]+);", file.read(), re.M))
    return {name: float(values[name]) for name in RANGES}


def fit(predictor, measured, evaluations, seed):
    """Random search around the best so far, in ever smaller steps: the formulas have kinks, so gradients mislead."""
    rng = random.Random(seed)
    best = todays_constants()
    best_score = objective(measured, predictor.errors(measured, best))
    for step in range(evaluations):
        sigma = 0.3 * (1 - step / evaluations) + 0.02
        candidate = dict(best)
        for name in rng.sample(list(RANGES), rng.randint(1, 3)):
            low, high = RANGES[name]
            candidate[name] = min(high, max(low, candidate[name] * math.exp(rng.gauss(0, sigma))))
        score = objective(measured, predictor.errors(measured, candidate))
        if score < best_score:
            best, best_score = candidate, score
    return best


def held_out_errors(predictor, measured, evaluations, seed):
    """Of each measured time by constants fitted without the set of shapes it is of."""
    errors = [None] * len(measured)
    for shapes in sorted({one.shapes for one in measured}, key=sorted):
        others = [one for one in measured if one.shapes != shapes]
        costs = fit(predictor, others, evaluations, seed)
        held_out = [i for i, one in enumerate(measured) if one.shapes == shapes]
        for i, error in zip(held_out, predictor.errors([measured[i] for i in held_out], costs)):
            errors[i] = error
    return errors


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def print_errors(title, measured, errors):
    for form in store.FORMS:
        relative = [abs(math.expm1(error)) for one, error in zip(measured, errors) if one.form == form]
        if relative:
            print(f"{title:<10} {form:<8} {len(relative):>4} times   median {statistics.median(relative):6.1%}   "
                  f"p90 {percentile(relative, 0.9):6.1%}")


def losses(measured, errors):
    """Of each co-run set of one shape: by how much the form predicted to be fastest exceeds the fastest one's time. One after
    the other takes as often the solo time."""
    times = {}  # (problem, count) -> {form: (measured, predicted)}
    for one, error in zip(measured, errors):
        if len(one.gemms) == 1:
            *problem, count = one.gemms[0]
            times.setdefault((tuple(problem), count), {})[one.form] = (one.time_us, one.time_us * math.exp(error))
    for (problem, count), by_form in times.items():
        solo = times.get((problem, 1), {}).get("single")
        if count == 1 or solo is None:
            continue
        by_form = {"single": (count * solo[0], count * solo[1]), **by_form}
        chosen = min(by_form.values(), key=lambda time: time[1])
        yield chosen[0] / min(time[0] for time in by_form.values()) - 1


def print_choice(title, measured, errors):
    of_choice = list(losses(measured, errors))
    if of_choice:
        within = sum(loss <= 0.03 for loss in of_choice) / len(of_choice)
        print(f"{title:<10} choice   {len(of_choice):>4} sets within 3 % of the fastest form {within:6.1%}   "
              f"mean loss {statistics.mean(of_choice):6.1%}")


def print_both(title, measured, errors):
    print_errors(title, measured, errors)
    print_choice(title, measured, errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--scenarios", default=os.path.join(ROOT, "tests/bench/scenarios/gemm.json"))
    parser.add_argument("--predict", default=os.path.join(ROOT, "build/release/bin/predict_costs"))
    parser.add_argument("--evaluations", type=int, default=300, help="of the model, per fit")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    measured = read(arguments.files, arguments.scenarios)
    if not measured:
        raise SystemExit("no measured times in these files for the scenarios given")
    predictor = Predictor(arguments.predict)
    today = predictor.errors(measured, {})
    unpredicted = [one for one, error in zip(measured, today) if error is None]
    if unpredicted:
        print(f"left out: {len(unpredicted)} times of forms that predict_costs does not predict "
              f"({', '.join(sorted({one.form for one in unpredicted}))})")
    measured, today = map(list, zip(*((one, error) for one, error in zip(measured, today) if error is not None)))
    print_both("today", measured, today)
    if arguments.evaluations > 0:
        costs = fit(predictor, measured, arguments.evaluations, arguments.seed)
        print_both("fitted", measured, predictor.errors(measured, costs))
        print_both("held out", measured, held_out_errors(predictor, measured, arguments.evaluations, arguments.seed))
        print("\nconstants of the fit, for policies/seam/cost_constants.h:")
        for name, value in costs.items():
            print(f"  double {name} = {value:.4g};  // was {todays_constants()[name]:.4g}")
    predictor.close()


if __name__ == "__main__":
    main()

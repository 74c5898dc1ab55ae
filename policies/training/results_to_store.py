#!/usr/bin/env python3
"""Makes rows of a tuning store's export out of a result file of concert-bench's suite `gemm`.

  results_to_store.py docs/benchmarks/gemm-h200.json --run 2026-11-21 > rows.jsonl

Only scenarios of one shape say what a company of that shape takes: `serial` gives its solo time, `streams` that of a
company on streams. Works for any result file whose scenarios stand in --scenarios.
"""

import argparse
import json
import os
import statistics
import sys

import store

SCENARIOS = os.path.join(os.path.dirname(__file__), "../../tests/bench/scenarios/gemm.json")


def row(problem, company, form, time_us, gemms, rounds, run):
    """A row from the time of `gemms` GEMMs."""
    out = {**problem._asdict(), "sm_budget": 0, "company": company, "form": form,
           "median_us": round(time_us["p50"] / gemms, 4)}
    if "p10" in time_us and "p90" in time_us:
        out["spread_us"] = round((time_us["p90"] - time_us["p10"]) / gemms, 4)
    if rounds:
        out["samples"] = rounds
    return {**out, "variant": {"source": "cublaslt"}, "run": run}


def rows_of(result, scenarios, run):
    shapes = {scenario["name"]: scenario["gemms"] for scenario in scenarios["scenarios"]}
    rounds = result["header"].get("rounds")
    solos, companies = {}, []
    for scenario in result["scenarios"]:
        gemms = shapes.get(scenario["name"], [])
        if len(gemms) != 1:
            continue
        gemm = gemms[0]
        problem = store.Problem(gemm["m"], gemm["n"], gemm["k"], gemm.get("batch", 1), gemm.get("dtype", "bf16"))
        count, times_us = gemm.get("count", 1), scenario["times_us"]
        if "serial" in times_us:
            solos.setdefault(problem, []).append(row(problem, "solo", "single", times_us["serial"], count, rounds, run))
        if "streams" in times_us and count in store.COMPANY_OF and count > 1:
            companies.append(row(problem, store.COMPANY_OF[count], "streams", times_us["streams"], count, rounds, run))
    # One solo time per shape: the median of its scenarios'.
    median = [min(rows, key=lambda r: abs(r["median_us"] - statistics.median(x["median_us"] for x in rows)))
              for rows in solos.values()]
    return sorted(median + companies, key=lambda r: (store.problem_of(r), store.DEGREE_OF[r["company"]]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result")
    parser.add_argument("--scenarios", default=SCENARIOS)
    parser.add_argument("--run", required=True, help="name of the run, so that its times are compared with each other")
    arguments = parser.parse_args()
    with open(arguments.result, encoding="utf-8") as file:
        result = json.load(file)
    with open(arguments.scenarios, encoding="utf-8") as file:
        scenarios = json.load(file)
    store.write(rows_of(result, scenarios, arguments.run), sys.stdout)


if __name__ == "__main__":
    main()

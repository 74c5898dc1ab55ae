#!/usr/bin/env python3
"""Holds what the simulator makes of suite `c3` against what was measured: docs/benchmarks/c3-*-model.md.

  tests/bench/report_model.py MEASURED.json MODELLED.json         the table
  tests/bench/report_model.py MEASURED.json --predict PROGRAM --least SHARE
                                                                  runs predict_overlap; exit status 1 where the form that is
                                                                  best on the model is as good as the best measured one, or
                                                                  `auto` goes the way that it went, in a smaller share of the
                                                                  scenarios
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from report_data import gpu_of, median_us, read
from report_markdown import number, percent, table_of

NEAR = 1.03  # of the best: as good
WAY = re.compile(r" by (\w+)(?: on (\d+) SMs?)?: predicted")


def way_measured(scenario):
    """What `auto` chose on the hardware; none where plans did not say so yet."""
    found = WAY.search(scenario.get("collective_plan", ""))
    return found and ", ".join(filter(None, [found[1], found[2] and f"{found[2]} SMs"]))


def compare(measured, modelled):
    """One row a scenario that both have."""
    theirs = {scenario["name"]: scenario for scenario in modelled["scenarios"]}
    rows = []
    for scenario in measured["scenarios"]:
        model = theirs.get(scenario["name"])
        if model is None:
            continue
        forms = [form for form in measured["header"]["forms"] if form in scenario["times_us"] and form in model["times_us"]]
        best = min(forms, key=lambda form: median_us(scenario, form))
        chosen = min(forms, key=lambda form: median_us(model, form))
        ratios = {form: median_us(model, form) / median_us(scenario, form) for form in [*forms, "concert"]}
        rows.append({"name": scenario["name"], "best": best, "chosen": chosen,
                     "cost": median_us(scenario, chosen) / median_us(scenario, best),
                     "concert": (median_us(scenario, "concert"), median_us(model, "concert")),
                     "ways": (way_measured(scenario), model["pick"]["way"]), "ratios": ratios,
                     "error": statistics.median(abs(ratio - 1) for ratio in ratios.values())})
    return rows


def share(rows, holds):
    count = sum(map(bool, map(holds, rows)))
    return f"{count} of {len(rows)} scenarios ({percent(count / len(rows))})"


def summary(rows):
    lines = [f"- The form that is best on the model is the best measured one or within 3 % of it in "
             f"{share(rows, lambda row: row['cost'] <= NEAR)}, and the same one in "
             f"{share(rows, lambda row: row['best'] == row['chosen'])}.",
             f"- Times are off by {percent(statistics.median(row['error'] for row in rows))} (median over scenarios of the "
             "median over forms), those of `auto` by "
             f"{percent(statistics.median(abs(row['ratios']['concert'] - 1) for row in rows))}."]
    told = [row for row in rows if row["ways"][0]]
    lines.append(f"- `auto` on the model goes the way that it went on the hardware in "
                 f"{share(told, lambda row: row['ways'][0] == row['ways'][1])}." if told else
                 "- Which way `auto` went on the hardware this measured file does not say; later ones do.")
    return lines


def agreements(rows):
    """In how many scenarios, of how many: the model's form is as good as the best, and `auto` went the same way."""
    told = [row["ways"] for row in rows if row["ways"][0]]
    return [(sum(row["cost"] <= NEAR for row in rows), len(rows)), (sum(ways[0] == ways[1] for ways in told), len(told))]


def ratios_table(rows):
    forms = dict.fromkeys(form for row in rows for form in row["ratios"])
    cells = []
    for form in forms:
        ratios = [row["ratios"][form] for row in rows if form in row["ratios"]]
        cells.append([form.removeprefix("form_"), str(len(ratios)), number(statistics.geometric_mean(ratios), 2),
                      number(min(ratios), 2), number(max(ratios), 2)])
    return ["", "Modelled over measured:", "", *table_of(["form", "scenarios", "geomean", "least", "most"], cells)]


def rows_table(rows):
    cells = [[row["name"], row["best"].removeprefix("form_"), row["chosen"].removeprefix("form_"), row["ways"][0] or "–",
              row["ways"][1], number(row["cost"], 2), *(number(us) for us in row["concert"]),
              percent(abs(row["ratios"]["concert"] - 1)), percent(row["error"])]
             for row in sorted(rows, key=lambda row: (-row["cost"], -row["error"]))]
    return ["", "The dearest mistakes first; times in microseconds:", "",
            *table_of(["scenario", "best measured", "best on the model", "auto measured", "auto on the model",
                       "cost of the model's", "auto, measured", "modelled", "off by", "forms off by"], cells, text_columns=5)]


def table(measured, modelled):
    rows = compare(measured, modelled)
    header = measured["header"]
    return ["# Suite `c3` on the simulator", "",
            f"`predict_overlap --gpu {gpu_of(measured)} --gpus {header['gpus']}` against {header['gpus']} {header['gpu']}, commit {header['commit'][:12]}, {header['date'][:10]}. "
            "Modelled, but for what is called measured.", "", *summary(rows), *ratios_table(rows), *rows_table(rows)]


def predict(program, measured):
    names = "|".join(entry["name"] for entry in measured["scenarios"])
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "c3.json"
        scenarios = pathlib.Path(__file__).resolve().parent / "scenarios/c3.json"
        subprocess.run([program, "--gpu", gpu_of(measured), "--gpus", str(measured["header"]["gpus"]), "--scenarios", scenarios,
                        "--filter", f"^({names})$", "--out", out], check=True, stdout=subprocess.DEVNULL)
        return read(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured")
    parser.add_argument("modelled", nargs="?")
    parser.add_argument("--predict", metavar="PROGRAM")
    parser.add_argument("--least", type=float, default=0)
    arguments = parser.parse_args()
    measured = read(arguments.measured)
    modelled = predict(arguments.predict, measured) if arguments.predict else read(arguments.modelled)
    print("\n".join(table(measured, modelled)))
    return 0 if all(count >= arguments.least * of for count, of in agreements(compare(measured, modelled))) else 1


if __name__ == "__main__":
    sys.exit(main())

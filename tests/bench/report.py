#!/usr/bin/env python3
"""Turns result files of concert-bench into a Markdown table and an SVG plot each.

  tests/bench/report.py RESULT.json [RESULT.json ...] --out docs/benchmarks

RESULT.json gives RESULT.md and RESULT.svg. Needs matplotlib for the plots (Debian: python3-matplotlib);
--tables makes the tables alone.
"""
import argparse
import json
import math
import pathlib
import sys

BASELINE_COLOURS = {"serial": "#4c72b0", "streams": "#dd8452", "serial_tuned": "#55a868", "group_library": "#c44e52"}


def median_us(scenario, form):
    """The form's median time in microseconds, or None where it was not measured."""
    return scenario["times_us"].get(form, {}).get("p50")


def baselines_of(result):
    """The forms that some scenario has beside concert's, in order of appearance."""
    forms = dict.fromkeys(form for scenario in result["scenarios"] for form in scenario["times_us"])
    return [form for form in forms if form != "concert"]


def header_line(header):
    parts = [header["gpu"], f"{header['gpus']} GPU(s)", f"device {header['device']}", f"policy {header['policy']}"]
    parts += [f"{key} {header[key]}" for key in ("driver", "cuda", "cublas", "nccl") if header.get(key)]
    parts += [f"{header['rounds']} rounds", f"commit {header['commit'][:12]}", header["date"]]
    if header.get("baseline_path") == "policy":
        parts.append("baselines are policies of the daemon, not cuBLASLt")
    return "; ".join(parts)


def markdown_row(cells):
    return "| " + " | ".join(cells) + " |"


def number(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def gemm_table(result):
    forms = baselines_of(result)
    head = ["scenario", "concert", *forms, "bound", *(f"× {form}" for form in forms), "share of bound", "error"]
    lines = [markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1))]
    for scenario in result["scenarios"]:
        concert_us = median_us(scenario, "concert")
        times = [median_us(scenario, form) for form in forms]
        speedups = [None if time is None else time / concert_us for time in times]
        lines.append(markdown_row(
            [scenario["name"], number(concert_us), *map(number, times), number(scenario["bound_us"]),
             *(number(speedup, 2) for speedup in speedups), f"{100 * scenario['bound_us'] / concert_us:.0f} %",
             f"{scenario['max_rel_error']:.1e}"]))
    return lines


def gemm_summary(result):
    summary = result["summary"]
    lines = [f"- Over `{form}`: geomean {ratio['geomean']:.2f}×, worst {ratio['worst']:.2f}×, best {ratio['best']:.2f}×."
             for form, ratio in summary.get("speedup_over", {}).items()]
    lost = summary.get("lost_to_best_baseline", [])
    tolerance = 100 * summary.get("tolerance", 0)
    lines.append(f"- Slower than the best baseline by more than {tolerance:.0f} %: {len(lost)} of "
                 f"{len(result['scenarios'])}" + (": " + ", ".join(f"`{name}`" for name in lost) if lost else "") + ".")
    for kind in ("skipped", "failed"):
        lines += [f"- {kind.capitalize()}: `{entry['name']}` ({entry['why']})." for entry in summary.get(kind, [])]
    return lines


def overhead_table(result):
    lines = [markdown_row(["scenario", "series", "p50", "p90", "p99"]), markdown_row(["---", "---"] + ["---:"] * 3)]
    for scenario in result["scenarios"]:
        for series in ("local_us", "ring_us", "added_us"):
            cells = [number(scenario[series][quantile], 2) for quantile in ("p50", "p90", "p99")]
            lines.append(markdown_row([scenario["name"], series.removesuffix("_us"), *cells]))
    return lines


def table(result):
    lines = [f"# Suite `{result['suite']}`", "", header_line(result["header"]), "", "Times are in microseconds; of the suites but `overhead`, medians.", ""]
    if result["suite"] == "overhead":
        return lines + overhead_table(result)
    return lines + gemm_summary(result) + [""] + gemm_table(result)


def plot_speedups(result, pyplot):
    scenarios, forms = result["scenarios"], baselines_of(result)
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.26 * len(scenarios)))
    height = 0.8 / max(1, len(forms))
    for i, form in enumerate(forms):
        speedups = [(median_us(s, form) or math.nan) / median_us(s, "concert") for s in scenarios]
        axes.barh([y + i * height for y in range(len(scenarios))], speedups, height, label=f"over {form}",
                  color=BASELINE_COLOURS.get(form))
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(scenarios))], [s["name"] for s in scenarios], fontsize=7)
    axes.invert_yaxis()
    axes.margins(y=0.005)
    axes.set_xlabel("speed-up of concert (median time of the baseline / median time of concert)")
    axes.legend(loc="lower right")
    return figure, axes


def plot_overhead(result, pyplot):
    figure, axes = pyplot.subplots(figsize=(8, 4))
    quantiles, width = ("p50", "p90", "p99"), 0.38
    groups = [(s, q) for s in result["scenarios"] for q in quantiles]
    for i, (series, colour) in enumerate((("local_us", "#8c8c8c"), ("ring_us", "#4c72b0"))):
        axes.bar([x + i * width for x in range(len(groups))], [s[series][q] for s, q in groups], width,
                 label=series.removesuffix("_us"), color=colour)
    for x, (scenario, quantile) in enumerate(groups):
        axes.annotate(f"{scenario['added_us'][quantile]:+.1f}", (x + width, scenario["ring_us"][quantile]), ha="center",
                      va="bottom", fontsize=8)
    axes.set_xticks([x + width / 2 for x in range(len(groups))], [f"{s['name']}\n{q}" for s, q in groups])
    axes.set_ylabel("launch to visible completion (us)")
    axes.legend()
    return figure, axes


def write_plot(result, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "concert"  # the same result gives the same file
    from matplotlib import pyplot
    figure, axes = (plot_overhead if result["suite"] == "overhead" else plot_speedups)(result, pyplot)
    header = result["header"]
    axes.set_title(f"{result['suite']}: {header['gpu']}, commit {header['commit'][:12]}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the tables and plots")
    parser.add_argument("--tables", action="store_true", help="make no plots")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.results:
        result = json.loads(path.read_text())
        if result.get("schema") != 1 or not result.get("scenarios"):
            sys.exit(f"{path} is no result file of concert-bench, or has no scenarios")
        target = arguments.out / path.stem
        target.with_suffix(".md").write_text("\n".join(table(result)) + "\n")
        if not arguments.tables:
            write_plot(result, target.with_suffix(".svg"))


if __name__ == "__main__":
    main()

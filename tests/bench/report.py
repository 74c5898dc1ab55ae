#!/usr/bin/env python3
"""Turns result files of concert-bench into Markdown tables and SVG plots.

  tests/bench/report.py RESULT.json [RESULT.json ...] --out docs/benchmarks

RESULT.json gives RESULT.md and RESULT.svg; of suite gemm also RESULT-summary.svg and RESULT-isolated.svg, of suite
tenants RESULT-latency.svg. Needs matplotlib for the plots (Debian: python3-matplotlib);
--tables makes the tables alone.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

COLOURS = {"concert": "#222222", "serial": "#4c72b0", "streams": "#dd8452", "serial_tuned": "#55a868",
           "group_library": "#c44e52", "streams_wide": "#8172b3", "goldyloc": "#937860", "time_sliced": "#4c72b0",
           "streams_tuned": "#da8bc3", "goldyloc_graph": "#ccb974", "mps": "#dd8452", "best_baseline": "#222222"}


def median_us(scenario, form):
    """The form's median time in microseconds, or None where it was not measured."""
    return scenario["times_us"].get(form, {}).get("p50")


def measured_forms(result):
    """Every form that some scenario has beside concert's, baselines first."""
    forms = dict.fromkeys(form for scenario in result["scenarios"] for form in scenario["times_us"])
    known = rivals_of(result)
    return [form for form in known if form in forms] + \
        [form for form in forms if form not in known and form != "concert"]


def rivals_of(result):
    """Whom concert is compared with: the baselines, then other policies. Old files do not say."""
    header = result["header"]
    if "baselines" in header:
        return header["baselines"] + header.get("policies", [])
    forms = dict.fromkeys(form for scenario in result["scenarios"] for form in scenario["times_us"])
    return [form for form in forms if form != "concert" and not form.startswith(("isolated", "forced_"))]


def speedups_of(result, scenario):
    """Of concert over each rival that was measured, and over the best of the baselines."""
    concert_us = median_us(scenario, "concert")
    times = {form: median_us(scenario, form) for form in rivals_of(result)}
    speedups = {form: time / concert_us for form, time in times.items() if time is not None}
    policies = result["header"].get("policies", [])
    baselines = [ratio for form, ratio in speedups.items() if form not in policies]
    if baselines:
        speedups["best_baseline"] = min(baselines)
    return speedups


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


def table_of(head, rows):
    return [markdown_row(head), markdown_row(["---"] + ["---:"] * (len(head) - 1)), *map(markdown_row, rows)]


def gemm_table(result):
    rivals = rivals_of(result)
    forms = [form for form in measured_forms(result) if not form.startswith("isolated")]
    head = ["scenario", "concert", *forms, "bound", *(f"× {form}" for form in rivals), "× best", "share of bound", "error"]
    rows = []
    for scenario in result["scenarios"]:
        concert_us = median_us(scenario, "concert")
        speedups = speedups_of(result, scenario)
        rows.append(
            [scenario["name"], number(concert_us), *(number(median_us(scenario, form)) for form in forms),
             number(scenario["bound_us"]), *(number(speedups.get(form), 2) for form in rivals),
             number(speedups.get("best_baseline"), 2), f"{100 * scenario['bound_us'] / concert_us:.0f} %",
             f"{scenario['max_rel_error']:.1e}"])
    return table_of(head, rows)


def spread(scenario, form):
    times = scenario["times_us"].get(form)
    return "–" if times is None else f"{times['p50']:.1f} ({times['p10']:.1f}–{times['p90']:.1f})"


def isolated_table(result):
    measured = [s for s in result["scenarios"] if median_us(s, "isolated_local")]
    if not measured:
        return []
    rivals = {"isolated_local": "plain launches", "isolated_graph": "one graph"}  # old files have no graph
    rivals = {form: label for form, label in rivals.items() if any(median_us(s, form) for s in measured)}
    rows = [[s["name"], spread(s, "isolated"), *(spread(s, form) for form in rivals),
             *(number(median_us(s, form) and median_us(s, form) / median_us(s, "isolated"), 2) for form in rivals)]
            for s in measured]
    return ["", "One batch at a time, from the call to its last result seen; median (p10–p90):", "",
            *table_of(["scenario", "concert", *rivals.values(), *(f"× {label}" for label in rivals.values())], rows)]


def plan_table(result):
    planned = [s for s in result["scenarios"] if s.get("plan")]
    if not planned:
        return []
    lines = ["", "A typical plan of each scenario; predicted and taken per batch:", "",
             markdown_row(["scenario", "predicted", "took", "oracle", "plan"]),
             markdown_row(["---", "---:", "---:", "---", "---"])]
    for s in planned:
        oracle = s["oracle"]["form"] if "within_3_percent" in s else "–"
        lines.append(markdown_row([s["name"], number(s.get("predicted_us")), number(s.get("planned_us")), oracle,
                                   s["plan"].replace("|", "/")]))
    return lines


def batch_error(result):
    """How far the time of a batch is from its plans' prediction: of plans of some microseconds one that is seen to end
    late makes the next seem short, of a batch it does not."""
    return statistics.median(abs(s["predicted_us"] / median_us(s, "concert") - 1)
                             for s in result["scenarios"] if s.get("predicted_us") and median_us(s, "concert"))


def gemm_summary(result):
    summary = result["summary"]
    lines = [f"- Over `{form}`: geomean {ratio['geomean']:.2f}×, worst {ratio['worst']:.2f}×, best {ratio['best']:.2f}×."
             for form, ratio in summary.get("speedup_over", {}).items()]
    for group, ratios in summary.get("by_class", {}).items():
        lines.append(f"- Class `{group}`: " + ", ".join(f"{ratio:.2f}× `{form}`" for form, ratio in ratios.items()) + ".")
    if "roofline_share" in summary:
        lines.append(f"- (bound + 2 µs) / time: geomean {summary['roofline_share']:.2f}.")
    for key, rival in (("isolated_speedup", "plain launches"), ("isolated_speedup_over_graph", "one graph")):
        if key in summary:
            lines.append(f"- One batch at a time, over {rival}: geomean {summary[key]['geomean']:.2f}×, "
                         f"worst {summary[key]['worst']:.2f}×.")
    if "prediction_error" in summary:
        lines.append(f"- Plans take what was predicted within {100 * summary['prediction_error']:.0f} % (median), "
                     f"batches within {100 * batch_error(result):.0f} %.")
    if "oracle" in summary:
        oracle = summary["oracle"]
        lines.append(f"- Within 3 % of the fastest form in {oracle['within_3_percent']} of {oracle['scenarios']}, "
                     f"{100 * oracle['mean_loss']:.1f} % slower on average.")
    lost = summary.get("lost_to_best_baseline", [])
    tolerance = 100 * summary.get("tolerance", 0)
    lines.append(f"- Slower than the best baseline by more than {tolerance:.0f} %: {len(lost)} of "
                 f"{len(result['scenarios'])}" + (": " + ", ".join(f"`{name}`" for name in lost) if lost else "") + ".")
    left_out = result["header"].get("left_out") or []
    for kind, entries in (("left out", left_out), ("skipped", summary.get("skipped", [])),
                          ("failed", summary.get("failed", []))):
        lines += [f"- {kind.capitalize()}: `{entry['name']}` ({entry['why']})." for entry in entries]
    return lines


def tenants_table(result):
    modes = ["concert", *rivals_of(result)]
    rows = []
    for s in result["scenarios"]:
        speedups = speedups_of(result, s)
        rows.append([s["name"], *(number(median_us(s, mode), 2) for mode in modes),
                     *(number(s["throughput_per_s"].get(mode), 0) for mode in modes),
                     *(number(speedups.get(mode), 2) for mode in modes[1:]), f"{s['max_rel_error']:.1e}"])
    head = ["scenario", *(f"{mode}, µs" for mode in modes), *(f"{mode}, GEMMs/s" for mode in modes),
            *(f"× {mode}" for mode in modes[1:]), "error"]
    return ["All clients together, per GEMM:", "", *table_of(head, rows), *unavailable_lines(result)]


def unavailable_lines(result):
    """Why a baseline has a dash: the first reason; the file has all of them and what the driver said."""
    lines = [f"- `{s['name']}` has no {mode['name']}: {mode['why'].split('; ')[0]}."
             for s in result["scenarios"] for mode in s.get("unavailable", [])]
    return ["", *lines] if lines else []


def latency_cells(s, mode, client):
    """`p50 / p99 (p99 alone)` of one client's chains."""
    if mode not in s["latency_us"]:
        return "–"
    latency = s["latency_us"][mode][client]
    alone = s.get("solo_latency_us", {}).get(mode)
    solo = f" ({alone[client]['p99']:.0f})" if alone else ""
    return f"{latency['p50']:.0f} / {latency['p99']:.0f}{solo}"


def latency_table(result):
    modes = ["concert", *rivals_of(result)]
    rows = [[s["name"], str(client), *(latency_cells(s, mode, client) for mode in modes)]
            for s in result["scenarios"] for client in range(s["clients"])]
    return ["", "Of one client's chain: p50 / p99 (p99 while the client is alone), microseconds:", "",
            *table_of(["scenario", "client", *modes], rows)]


def overhead_table(result):
    lines = [markdown_row(["scenario", "series", "p50", "p90", "p99"]), markdown_row(["---", "---"] + ["---:"] * 3)]
    for scenario in result["scenarios"]:
        for series in ("local_us", "ring_us", "added_us"):
            cells = [number(scenario[series][quantile], 2) for quantile in ("p50", "p90", "p99")]
            lines.append(markdown_row([scenario["name"], series.removesuffix("_us"), *cells]))
    return lines


def table(result):
    lines = [f"# Suite `{result['suite']}`", "", header_line(result["header"]), "",
             "Times are in microseconds; of the suites but `overhead`, medians.", ""]
    if result["suite"] == "overhead":
        return lines + overhead_table(result)
    lines += gemm_summary(result) + [""]
    if result["suite"] == "tenants":
        return lines + tenants_table(result) + latency_table(result)
    return lines + gemm_table(result) + isolated_table(result) + plan_table(result)


def bars(axes, result, series, xlabel):
    """A group of horizontal bars per scenario; `series` maps a label to a value per scenario."""
    names = [scenario["name"] for scenario in result["scenarios"]]
    height = 0.8 / max(1, len(series))
    for i, (label, values) in enumerate(series.items()):
        axes.barh([y + i * height for y in range(len(names))], values, height, label=label,
                  color=COLOURS.get(label.removeprefix("over ")))
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(names))], names, fontsize=7)
    axes.set_ylim(len(names), -0.5)  # the first scenario on top
    axes.set_xlabel(xlabel)
    axes.legend(loc="lower right")


def mark_one(axes):
    axes.axvline(1, color="black", linewidth=0.8)


def plot_speedups(result, pyplot):
    """Of concert over every rival."""
    scenarios, rivals = result["scenarios"], rivals_of(result)
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + (0.2 + 0.06 * len(rivals)) * len(scenarios)))
    speedups = [speedups_of(result, scenario) for scenario in scenarios]
    bars(axes, result, {f"over {form}": [s.get(form, math.nan) for s in speedups] for form in rivals},
         "speed-up of concert (median time of the other / median time of concert)")
    mark_one(axes)
    return figure, axes


def plot_summary(result, pyplot):
    """Over the best baseline, beside the share of the roofline."""
    scenarios = result["scenarios"]
    figure, (left, right) = pyplot.subplots(1, 2, sharey=True, figsize=(11, 1.5 + 0.2 * len(scenarios)))
    best = [speedups_of(result, scenario).get("best_baseline", math.nan) for scenario in scenarios]
    shares = [(s["bound_us"] + 2) / median_us(s, "concert") for s in scenarios]
    bars(left, result, {"over best_baseline": best}, "speed-up of concert over the best baseline")
    bars(right, result, {"(bound + 2 us) / time": shares}, "share of the roofline")
    for axes in (left, right):
        axes.get_legend().remove()
        mark_one(axes)
    return figure, left


def plot_isolated(result, pyplot):
    """One batch at a time."""
    scenarios = result["scenarios"]
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.2 * len(scenarios)))
    ratios = [(median_us(s, "isolated_local") or math.nan) / median_us(s, "isolated") for s in scenarios]
    bars(axes, result, {"over plain launches": ratios}, "one batch at a time: time of plain launches / time of concert")
    mark_one(axes)
    return figure, axes


def plot_latencies(result, pyplot):
    """The p99 of every client's chain, the worst of the clients, by mode."""
    modes = ["concert", *rivals_of(result)]
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.35 * len(result["scenarios"])))
    worst = {mode: [max((client["p99"] for client in s["latency_us"].get(mode, [])), default=math.nan)
                    for s in result["scenarios"]] for mode in modes}
    bars(axes, result, worst, "p99 of a chain, worst client (us)")
    axes.set_xscale("log")
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


def plots_of(result):
    """What a suite's plots are called and which function draws each."""
    if result["suite"] == "overhead":
        return {"": plot_overhead}
    if result["suite"] == "tenants":
        return {"": plot_speedups, "-latency": plot_latencies}
    plots = {"": plot_speedups, "-summary": plot_summary}
    if any(median_us(scenario, "isolated_local") for scenario in result["scenarios"]):
        plots["-isolated"] = plot_isolated
    return plots


def write_plots(result, target):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "concert"  # the same result gives the same file
    from matplotlib import pyplot
    header = result["header"]
    for suffix, plot in plots_of(result).items():
        figure, axes = plot(result, pyplot)
        axes.set_title(f"{result['suite']}: {header['gpu']}, commit {header['commit'][:12]}", fontsize=9)
        figure.tight_layout()
        figure.savefig(target.with_name(target.name + suffix + ".svg"), metadata={"Date": None})
        pyplot.close(figure)


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
            write_plots(result, target)


if __name__ == "__main__":
    main()

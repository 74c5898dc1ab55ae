#!/usr/bin/env python3
"""Turns result files of concert-bench into Markdown tables and SVG plots.

  tests/bench/report.py RESULT.json [RESULT.json ...] --out docs/benchmarks

RESULT.json gives RESULT.md and RESULT.svg (of suites c3 and collectives by report_overlap.py); of suite gemm also RESULT-summary.svg, of suites tenants and steps RESULT-latency.svg.
Needs matplotlib for the plots (Debian: python3-matplotlib); --tables makes the tables alone. What is published goes
through publish.py instead.
"""
import argparse
import pathlib
import statistics

import report_data
import report_overlap
from report_data import (client_kinds, header_line, isolated_rivals, losses_of, measured_forms, median_us, rivals_of,
                         speedups_of)
from report_markdown import markdown_row, number, table_of


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


def spread(scenario, form, digits=1):
    times = scenario["times_us"].get(form)
    return "–" if times is None else \
        f"{times['p50']:.{digits}f} ({times['p10']:.{digits}f}–{times['p90']:.{digits}f})"


def isolated_table(result):
    rivals = isolated_rivals(result)
    if not rivals:
        return []
    rows = []
    for s in result["scenarios"]:
        own = median_us(s, "isolated")
        if own:
            ratios = [median_us(s, form) and median_us(s, form) / own for form in rivals]
            rows.append([s["name"], spread(s, "isolated"), *(spread(s, form) for form in rivals),
                         *(number(ratio, 2) for ratio in ratios)])
    return ["", "One batch at a time, from the call to its last result seen; median (p10–p90):", "",
            *table_of(["scenario", "concert", *(form.removeprefix("isolated_") for form in rivals),
                       *(f"× {form.removeprefix('isolated_')}" for form in rivals)], rows)]


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


def both_over_lines(result):
    ratios = {s["name"]: ratio for s in result["scenarios"] if (ratio := report_data.both_over_speedup(s)) is not None}
    if not ratios:
        return []
    worst = min(ratios, key=ratios.get)
    return [f"- Beside GEMMs, until both are over, over NCCL: geomean {statistics.geometric_mean(ratios.values()):.2f}×, "
            f"worst {ratios[worst]:.2f}× (`{worst}`)."]


def summary_lines(result):
    summary = result["summary"]
    lines = [f"- Over `{rival}`: geomean {geomean:.2f}×, worst {worst:.2f}× (`{name}`)."
             for rival, (geomean, worst, name) in report_data.summary_of(result).items()]
    for group, ratios in summary.get("by_class", {}).items():
        lines.append(f"- Class `{group}`: " + ", ".join(f"{ratio:.2f}× `{form}`" for form, ratio in ratios.items()) + ".")
    if "roofline_share" in summary:
        lines.append(f"- (bound + 2 µs) / time: geomean {summary['roofline_share']:.2f}.")
    for key, rival in (("isolated_speedup", "plain launches"), ("isolated_speedup_over_graph", "one graph")):
        if key in summary:
            lines.append(f"- One batch at a time, over {rival}: geomean {summary[key]['geomean']:.2f}×, "
                         f"worst {summary[key]['worst']:.2f}×.")
    if "prediction_error" in summary and result["suite"] == "c3":
        lines.append(f"- Runs take what was predicted within {100 * summary['prediction_error']:.0f} % (median).")
    elif "prediction_error" in summary:
        lines.append(f"- Plans take what was predicted within {100 * summary['prediction_error']:.0f} % (median), "
                     f"batches within {100 * batch_error(result):.0f} %.")
    for key, what in (("beside", "Beside GEMMs"), ("eight_sms", "With 8 SMs"), ("small", "Up to 64 KiB")):
        if key in summary:
            lines.append(f"- {what}, over NCCL: geomean {summary[key]['geomean']:.2f}×, worst {summary[key]['worst']:.2f}× "
                         f"(`{summary[key]['worst_scenario']}`).")
        if key == "beside":
            lines += both_over_lines(result)
    if summary.get("slower_than_serial"):
        names = ", ".join(f"`{name}`" for name in summary["slower_than_serial"])
        lines.append(f"- Slower than one after the other: {names}.")
    if "oracle" in summary:
        oracle = summary["oracle"]
        lines.append(f"- Within 3 % of the fastest form in {oracle['within_3_percent']} of {oracle['scenarios']}, "
                     f"{100 * oracle['mean_loss']:.1f} % slower on average.")
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
        rows.append([s["name"], *(spread(s, mode, 2) for mode in modes),
                     *(number(speedups.get(mode), 2) for mode in modes[1:]), f"{s['max_rel_error']:.1e}"])
    head = ["scenario", *(f"{mode}, µs" for mode in modes), *(f"× {mode}" for mode in modes[1:]), "error"]
    return ["All clients together, per GEMM, median (p10–p90) of the laps; × is the geometric mean of the clients' own:", "",
            *table_of(head, rows), *unavailable_lines(result)]


def steps_table(result):
    modes = ["concert", *rivals_of(result)]
    rows = []
    for s in result["scenarios"]:
        speedups, rates = speedups_of(result, s), s["throughput_per_s"]
        rows.append([s["name"], *(number(rates.get(mode), 0) for mode in modes), number(s["bound_steps_per_s"], 0),
                     f"{100 * s['share_of_bound']['concert']:.0f} %", *(number(speedups.get(mode), 2) for mode in modes[1:]),
                     f"{s['max_rel_error']:.1e}"])
    head = ["scenario", *(f"{mode}, steps/s" for mode in modes), "bound", "share", *(f"× {mode}" for mode in modes[1:]), "error"]
    sharers = {}
    for s in result["scenarios"]:
        sharers.setdefault(s.get("weights_are"), []).append(f"`{s['name']}`")
    note = [line for weights_are, names in sharers.items() if weights_are
            for line in ("", f"Weights are shared in {', '.join(names)}: the bound has them once; they are there {weights_are}.")]
    return ["All clients together, medians of the laps; × is the geometric mean of the clients' own. Bound: if all clients did as many steps; "
            "share: of a second, what concert's steps in it take at least:", "",
            *table_of(head, rows), *note, *unavailable_lines(result)]


def programs_table(result):
    """Older files lack it."""
    def times(milliseconds):
        return f"{statistics.median(milliseconds):.1f} (at most {max(milliseconds):.1f})"
    def mib(count):
        return f"{count / 2**20:.1f}"
    rows = [[s["name"], times(programs["registering_ms"]), times(programs["first_run_ms"]), mib(programs["arena_bytes"]),
             mib(programs["slot_bytes"]), mib(programs["workspace_bytes"])]
            for s in result["scenarios"] if (programs := s.get("programs"))]
    head = ["scenario", "registering, ms", "first run, ms", "arenas, MiB", "if no slots shared them", "workspaces, MiB"]
    return ["", "What programs cost once, of a client (median) from its first op to the daemon's answer and from there to the end of its first "
            "run, while the others do the same; and memory of their own, all clients together:", "", *table_of(head, rows)] if rows else []


def unavailable_lines(result):
    """Why a baseline has a dash: the first reason; the file has all of them and what the driver said."""
    lines = [f"- `{s['name']}` has no {mode['name']}: {mode['why'].split('; ')[0]}."
             for s in result["scenarios"] for mode in s.get("unavailable", [])]
    return ["", *lines] if lines else []


def laps_range(latency, quantile):
    """` (150–158)`: where the laps' own quantiles lie."""
    low, high = latency.get(f"{quantile}_p10"), latency.get(f"{quantile}_p90")
    return "" if low is None else f" ({low:.0f}–{high:.0f})"


def latency_cells(s, mode, clients):
    """p50, p99 and p99 alone of that one of the clients alike that has the worst p99."""
    if mode not in s["latency_us"]:
        return ["–"] * 3
    worst = max(clients, key=lambda client: s["latency_us"][mode][client]["p99"])
    latency = s["latency_us"][mode][worst]
    alone = s.get("solo_latency_us", {}).get(mode)
    return [f"{latency[q]:.0f}{laps_range(latency, q)}" for q in ("p50", "p99")] + \
        [number(alone and alone[worst]["p99"], 0)]


def kept_cell(s, mode, clients):
    """What is left of its throughput alone to that one of the clients alike that has least."""
    kept = s.get("kept_of_alone", {}).get(mode)
    return f"{100 * min(kept[client] for client in clients):.0f} %" if kept else "–"


def latency_table(result):
    modes = ["concert", *rivals_of(result)]
    with_kept = any("kept_of_alone" in s for s in result["scenarios"])  # older files lack it
    rows = []
    for s in result["scenarios"]:
        for name, clients in client_kinds(s).items():
            for mode in modes:
                if mode in s["latency_us"]:
                    own = [number(report_data.geometric_mean([report_data.client_speedups(s, mode)[i] for i in clients]), 2)
                           if mode != "concert" else ""]
                    rows.append([s["name"], f"{len(clients)} × {name}", mode, *latency_cells(s, mode, clients),
                                 *([kept_cell(s, mode, clients)] if with_kept else []), *own])
    head = ["scenario", "clients", "mode", "p50 (p10–p90 of laps)", "p99 (p10–p90 of laps)", "p99 alone",
            *(["throughput kept of alone"] if with_kept else []), "× throughput"]
    run, units = {"tenants": ("chain", "GEMMs"), "steps": ("step", "steps")}[result["suite"]]
    return ["", f"Of one client's {run}, in microseconds: of clients alike the one with the worst p99; and how many times"
            f" as many {units} they do through concert:", "", *table_of(head, rows, text_columns=3)]


def overhead_table(result):
    lines = [markdown_row(["scenario", "series", "p50", "p90", "p99"]), markdown_row(["---", "---"] + ["---:"] * 3)]
    for scenario in result["scenarios"]:
        for series in ("local_us", "ring_us", "added_us"):
            cells = [number(scenario[series][quantile], 2) for quantile in ("p50", "p90", "p99")]
            lines.append(markdown_row([scenario["name"], series.removesuffix("_us"), *cells]))
    return lines


def loss_rows(losses):
    return [[f"`{loss.scenario}`", loss.who, loss.what, loss.over, f"{loss.speedup:.2f}×"] for loss in losses]


def loss_table(losses):
    return table_of(["scenario", "who", "what", "against", "concert"], loss_rows(losses), text_columns=4)


def short_caveats(result):
    return [text.split(":")[0].split(";")[0] for text in report_data.caveats(result)]


def title(result):
    said = short_caveats(result)
    return f"# Suite `{result['suite']}`" + (f" ({'; '.join(said)})" if said else "")


def table(result):
    losses = losses_of(result)
    lines = [title(result), "", header_line(result), "",
             "Times are in microseconds; of the suites but `overhead`, medians.", "", "## What it loses", ""]
    lines += [f"By more than {100 * report_data.TOLERANCE:.0f} %:", "", *loss_table(losses)] if losses else ["Nothing."]
    lines += ["", "## All of it", ""]
    if result["suite"] == "overhead":
        return lines + overhead_table(result)
    lines += summary_lines(result) + [""]
    if result["suite"] == "tenants":
        return lines + tenants_table(result) + latency_table(result)
    if result["suite"] == "steps":
        return lines + steps_table(result) + latency_table(result) + programs_table(result)
    if result["suite"] == "c3":
        return lines + report_overlap.c3_tables(result) + unavailable_lines(result)
    if result["suite"] == "collectives":
        return lines + report_overlap.collectives_tables(result)
    return lines + gemm_table(result) + isolated_table(result) + plan_table(result)


def write(result, target, plots):
    """Writes target.md, and the plots if so wanted."""
    target.with_suffix(".md").write_text("\n".join(table(result)) + "\n", encoding="utf-8")
    if plots:
        import report_plots
        report_plots.write_plots(result, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the tables and plots")
    parser.add_argument("--tables", action="store_true", help="make no plots")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.results:
        write(report_data.read(path), arguments.out / path.stem, plots=not arguments.tables)


if __name__ == "__main__":
    main()

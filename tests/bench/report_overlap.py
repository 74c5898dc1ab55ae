"""Tables of the suites "c3" and "collectives"."""
import statistics

from report_data import COLLECTIVE_PAIRS, both_over_speedup, median_us, rivals_of, share
from report_markdown import number, percent, table_of

LINK_GB_PER_S = 450  # a direction of NVLink 4: what no busbw can pass


def mean(values):
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def forms_of(result):
    return [form for form in result["header"].get("forms", [])
            if any(form in scenario["times_us"] for scenario in result["scenarios"])]


def best_form_us(scenario):
    """The fastest of what the policy may choose, where all of it was measured."""
    return scenario["oracle"]["p50"] if "within_3_percent" in scenario else None


def shares_table(result, least, what):
    """Means over the scenarios of a class, of concert, the best form of each scenario and the baselines."""
    rivals = [rival for rival in rivals_of(result) if rival != "serial"]
    groups = {}
    for scenario in result["scenarios"]:
        groups.setdefault(scenario["class"], []).append(scenario)
    groups["all"] = result["scenarios"]
    rows = []
    for group, scenarios in groups.items():
        own = [share(s, median_us(s, "concert"), least) for s in scenarios]
        best = [share(s, best_form_us(s), least) for s in scenarios]
        others = [[share(s, median_us(s, rival), least) for s in scenarios] for rival in rivals]
        worst = [value for value in own if value is not None]
        rows.append([group, str(len(scenarios)), percent(mean(own)), percent(min(worst, default=None)), percent(mean(best)),
                     *(percent(mean(values)) for values in others)])
    return ["", f"Share of what can be gained over `serial`, {what}; means over scenarios:", "",
            *table_of(["class", "scenarios", "concert", "its worst", "best form", *rivals], rows)]


def times_table(result):
    rivals = rivals_of(result)
    def worst_first(scenario):
        own = share(scenario, median_us(scenario, "concert"), "bound_us")
        return 1 if own is None else own
    rows = []
    for s in sorted(result["scenarios"], key=worst_first):
        concert_us = median_us(s, "concert")
        rows.append([s["name"], number(concert_us), *(number(median_us(s, rival)) for rival in rivals),
                     number(median_us(s, "gemm_alone")), number(median_us(s, "collective_alone")), number(s.get("bound_us")),
                     percent(share(s, concert_us, "ideal_us")), percent(share(s, concert_us, "bound_us")),
                     f"{s['max_rel_error']:.1e}"])
    return ["", "Until all ranks have seen the end of both, in microseconds; the worst share of the bound first:", "",
            *table_of(["scenario", "concert", *rivals, "GEMM alone", "collective alone", "bound", "of ideal", "of bound",
                       "error"], rows)]


def forms_table(result):
    forms = forms_of(result)
    if not forms:
        return []
    def worst_first(scenario):
        return -median_us(scenario, "concert") / scenario["oracle"]["p50"]
    rows = [[s["name"], s["oracle"]["form"], number(median_us(s, "concert") / s["oracle"]["p50"], 2),
             number(median_us(s, "concert")), *(number(median_us(s, form)) for form in forms)]
            for s in sorted(result["scenarios"], key=worst_first)]
    return ["", "What the policy may choose, each by a daemon that can do nothing else; the worst choice first:", "",
            *table_of(["scenario", "fastest", "concert / fastest", "concert",
                       *(form.removeprefix("form_") for form in forms)], rows, text_columns=2)]


def predictions_table(result):
    predicted = [s for s in result["scenarios"] if "prediction_error" in s]
    if not predicted:
        return []
    rows = [[s["name"], s.get("collective_plan", "–").replace("|", "/"), s.get("plan", "–").replace("|", "/"),
             number(s["predicted_us"]), number(median_us(s, "concert")), percent(s["prediction_error"])]
            for s in sorted(predicted, key=lambda s: -s["prediction_error"])]
    return ["", "Predicted against taken, the worst first:", "",
            *table_of(["scenario", "collective", "GEMMs", "predicted", "took", "off by"], rows, text_columns=3)]


def c3_tables(result):
    return [*shares_table(result, "ideal_us", "of the ideal max(Tg, Tc)")[1:],
            *shares_table(result, "bound_us", f"of the bound max(Tg, Tc, bytes / {result['header'].get('memory_tb_per_s', 4.2)} TB/s)"), *times_table(result),
            *forms_table(result), *predictions_table(result)]


def size_name(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def ratio(scenario, key, own, other):
    times = scenario.get(key, {})
    return number(times[other]["p50"] / times[own]["p50"], 2) if own in times and other in times else "–"


def collective_rows(scenarios):
    for s in scenarios:
        bandwidths = s["busbw_gb_per_s"]
        cells = [size_name(s["bytes"])]
        for what, key, own, other in COLLECTIVE_PAIRS:
            cells += [number(s.get(key, {}).get(name, {}).get("p50")) for name in (own, other)]
            cells.append(ratio(s, key, own, other))
            if what == "beside GEMMs":
                both = both_over_speedup(s)
                cells.append("–" if both is None else number(both, 2))
            if what == "alone":
                cells += [number(s["bound_us"]), *(number(bandwidths.get(name)) for name in (own, other))]
        yield cells


def collectives_tables(result):
    lines = ["µs until all ranks have seen the end; busbw as in nccl-tests, in GB/s, of which a direction of the links"
             f" has {LINK_GB_PER_S}; ×: NCCL's time over concert's; both over: until the GEMMs beside it have ended, too."]
    kinds = dict.fromkeys(s["kind"] for s in result["scenarios"])
    head = ["size", "concert", "NCCL", "×", "bound", "busbw concert", "busbw NCCL", "beside GEMMs: concert", "NCCL", "×",
            "both over ×", "8 SMs: concert", "NCCL, 8 CTAs", "×"]
    for kind in kinds:
        own = [s for s in result["scenarios"] if s["kind"] == kind]
        lines += ["", f"### {kind}, {own[0]['gpus']} GPUs", "", *table_of(head, list(collective_rows(own)))]
    return lines

"""What README.md says of the published results, a row a question and what concert makes of it, and the plot of the same rows."""
from typing import NamedTuple

from report_data import collective_speedups, geometric_mean, is_quick_look, named, speedups_of
from report_markdown import table_of

PLOT = "at-a-glance.svg"  # below docs/benchmarks


class Row(NamedTuple):
    what: str
    against: str
    ratios: list  # of concert's speed, a scenario each
    of: str  # the result file

    @property
    def mean(self):
        return geometric_mean(self.ratios)


def ratios(result, rival, belongs=lambda _: True):
    return [speedups[rival] for scenario in result["scenarios"] if belongs(scenario)
            for speedups in [speedups_of(result, scenario)] if rival in speedups]


def is_named(name):
    return lambda scenario: scenario["name"] == name


def is_alone(scenario):
    return scenario["class"] == "alone"


def decodes_beside_others(scenario):
    return scenario["name"].startswith("decode-") and not is_alone(scenario)


def tail(result, scenario):
    """What its neighbours make of a client of the high class."""
    over_alone = named(result, scenario)["high_p99_over_solo"]
    return f"its p99 {over_alone['concert']:.1f}× alone, under MPS {over_alone['mps']:.1f}×"


def of_steps(result):
    decodes = f"{sum(map(decodes_beside_others, result['scenarios']))} models"
    yield "one client's decode step", "its own CUDA graph", ratios(result, "time_sliced", is_alone)
    yield f"decode steps of 2 to 8 clients, {decodes}", "MPS", ratios(result, "mps", decodes_beside_others)
    yield "the same", "all their graphs in one process", ratios(result, "graphs_in_one_process", decodes_beside_others)
    yield "a prefill beside four that decode", "MPS", ratios(result, "mps", is_named("prefill-beside-decode"))
    yield f"a high class beside seven low ones: {tail(result, 'high-beside-low')}", "MPS", \
        ratios(result, "mps", is_named("high-beside-low"))


def of_replicas(result):
    yield "4 and 8 replicas, one pass over their weights", "MPS", ratios(result, "mps")


def of_tenants(result):
    yield "chains of GEMMs of 2 to 8 clients", "MPS", ratios(result, "mps")
    yield "the same", "time-slicing", ratios(result, "time_sliced")
    yield f"a high class beside chains of GEMMs: {tail(result, 'latency-beside-batch')}", "MPS", \
        ratios(result, "mps", is_named("latency-beside-batch"))


def of_a_lone_tenant(result):
    yield "one client's chain of GEMMs", "its own CUDA graph", ratios(result, "local_graph")


def of_gemms(result):
    sets = f"{len(result['scenarios'])} sets of GEMMs"
    yield sets, "a stream each, in one process", ratios(result, "streams")
    yield "the same", "the best of seven ways in one process", ratios(result, "best_baseline")


def of_overlap(result):
    yield f"GEMMs beside a collective, {result['header']['gpus']} GPUs", "the best of four ways, cuBLASLt and NCCL", \
        ratios(result, "best_baseline")


def of_collectives(result):
    pairs = [speedups.get("beside GEMMs") for speedups in map(collective_speedups, result["scenarios"])]
    yield f"one collective, {result['header']['gpus']} GPUs, 1 KiB to 1 GiB", "NCCL", ratios(result, "nccl")
    yield "the same beside GEMMs", "NCCL beside GEMMs", [ratio for _, ratio in filter(None, pairs)]


OF_FILE = {"steps-h200": of_steps, "steps-replicas-h200": of_replicas, "tenants-shared-h200": of_tenants,
           "tenants-alone-h200": of_a_lone_tenant, "gemm-h200": of_gemms, "c3-h200x2": of_overlap,
           "collectives-h200x2": of_collectives}


def rows_of(results):
    return [Row(what, against, speedups, name) for name, questions in OF_FILE.items()
            for what, against, speedups in questions(results[name])]


def source(row, results):
    header = results[row.of]["header"]
    quick = ", a quick look" if is_quick_look(results[row.of]) else ""
    return f"[{row.of}](docs/benchmarks/{row.of}.md), {header['commit'][:7]}{quick}"


def ratio_text(ratio):
    bold = "**" if ratio < 1 else ""
    return f"{bold}{ratio:.2f}×{bold}"


def overhead_sentence(result):
    idle, busy = (named(result, name)["added_us"] for name in ("idle", "seven_busy"))
    return f"The way through ring and daemon adds {max(0, idle['p50']):.1f} µs to a launch (p50; {idle['p99']:.1f} at p99), beside seven " \
           f"busy clients {busy['p50']:.1f} ({busy['p99']:.1f}): [overhead-h200](docs/benchmarks/overhead-h200.md), " \
           f"{result['header']['commit'][:7]}."


def table(results):
    """Of the front page: losses in bold."""
    cells = [[row.what, row.against, source(row, results), ratio_text(row.mean),
              ratio_text(min(row.ratios)) if len(row.ratios) > 1 else ""] for row in rows_of(results)]
    lines = table_of(["", "against", "measured in", "as fast", "at worst"], cells, text_columns=3)
    return "\n".join([*lines, "", overhead_sentence(results["overhead-h200"])]) + "\n"


def labels(rows):
    """Each row's for itself, where the table says "the same"."""
    before = ""
    for row in rows:
        what = row.what.split(":")[0].replace("the same", before)
        if not row.what.startswith("the same"):
            before = what
        yield f"{what}\nagainst {row.against}"


def plot(results, pyplot):
    from report_plots import mark_losses
    rows = rows_of(results)
    figure, axes = pyplot.subplots(figsize=(8.5, 0.8 + 0.26 * len(rows)))
    places = range(len(rows))
    for place, row in zip(places, rows):
        axes.barh(place, row.mean - 1, left=1, height=0.6, color="#4c72b0" if row.mean >= 1 else "#c44e52")
        axes.annotate(f"{row.mean:.2f}×", (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    for of, colour, label in ((min, "#222222", "worst scenario"), (max, "#a0a0a0", "best")):
        axes.plot([of(row.ratios) for row in rows], places, linestyle="none", marker="|", markersize=9, color=colour, label=label)
    axes.set_yticks(places, labels(rows), fontsize=6)
    axes.set_ylim(len(rows) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("times as fast through concert (geometric mean); left of 1 it loses", fontsize=8)
    mark_losses(axes)
    axes.legend(loc="lower right", fontsize=7, frameon=False)
    return figure


def write(results, docs):
    from report_plots import write_plot
    gpus = sorted({results[name]["header"]["gpu"] for name in OF_FILE})
    write_plot(lambda pyplot: plot(results, pyplot), f"{', '.join(gpus)}; commits and rounds stand in the table", docs / PLOT)

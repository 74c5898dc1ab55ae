"""The plots of result files, as SVG of at most MAX_BYTES each: a publication is looked at, not archived pixel by pixel.

Needs matplotlib (Debian: python3-matplotlib).
"""
import io
import math
import re
from xml.etree import ElementTree

from report_data import header_line, isolated_rivals, median_us, rivals_of, share, speedups_of
from report_overlap import LINK_GB_PER_S, best_form_us

MAX_BYTES = 40_000  # as tests/tidy.py checks
COLOURS = {"concert": "#222222", "serial": "#4c72b0", "streams": "#dd8452", "serial_tuned": "#55a868",
           "group_library": "#c44e52", "streams_wide": "#8172b3", "goldyloc": "#937860", "time_sliced": "#4c72b0",
           "streams_tuned": "#da8bc3", "goldyloc_graph": "#ccb974", "mps": "#dd8452", "local_graph": "#55a868",
           "best_baseline": "#222222", "priority": "#55a868", "conccl": "#c44e52", "best form": "#937860", "nccl": "#4c72b0",
           "concert_8_sms": "#8c8c8c", "nccl_8_ctas": "#8fb0e0"}
MARKERS = "osD^vPX<>*hp"
# In order of preference: what has no room beside those before it is left out.
TICKS = (1, 2, 5, 10, 0.5, 20, 50, 100, 0.2, 0.1, 3, 1.5, 0.7, 200, 500, 4, 8, 1.2, 0.8, 0.3, 6, 15, 30, 1.1, 0.9)
ROW_INCHES = 0.155
SVG = "{http://www.w3.org/2000/svg}"
ElementTree.register_namespace("", SVG[1:-1])
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def dots(axes, names, series, xlabel):
    """A row per name with a dot per series: `series` maps a label to a value per name."""
    for i, (label, values) in enumerate(series.items()):
        axes.plot(values, range(len(names)), linestyle="none", marker=MARKERS[i % len(MARKERS)], markersize=4,
                  color=COLOURS.get(label, "#222222" if len(series) == 1 else None), markeredgewidth=0, label=label)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="both", color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(xlabel, fontsize=8)


def legend(axes, columns):
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, fontsize=7, frameon=False,
                handletextpad=0.1, columnspacing=1)


def logarithmic(axes):
    """On a logarithmic axis a loss is as far from 1 as a gain. Returns its lowest value."""
    values = [x for line in axes.get_lines() for x in line.get_xdata() if not math.isnan(x)]
    low, high = (min(values) / 1.08, max(values) * 1.08) if values else (0.9, 1.1)
    axes.set_xscale("log")
    room = math.log(high / low) / (16 * axes.get_position().width)  # for a tick's label
    ticks = []
    for tick in [*TICKS, *(1000 * t for t in TICKS)]:
        if low < tick < high and all(abs(math.log(tick / other)) > room for other in ticks):
            ticks.append(tick)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)
    return low


def mark_losses(axes):
    """Of ratios, what is left of 1."""
    low = logarithmic(axes)
    axes.axvspan(min(low, 0.95), 1, color="#f6d5d5", linewidth=0, zorder=0)
    axes.set_xlim(left=min(low, 0.95))


def axes_of(result, pyplot, columns=1, width=7.5):
    rows = len(result["scenarios"])
    return pyplot.subplots(1, columns, sharey=True, figsize=(width, 1.1 + ROW_INCHES * rows))


def names_of(result):
    return [scenario["name"] for scenario in result["scenarios"]]


def plot_speedups(result, pyplot):
    """Of concert over every rival."""
    figure, axes = axes_of(result, pyplot)
    rivals = rivals_of(result)
    speedups = [speedups_of(result, scenario) for scenario in result["scenarios"]]
    dots(axes, names_of(result), {form: [s.get(form, math.nan) for s in speedups] for form in rivals},
         "speed-up of concert; left of 1 it loses")
    mark_losses(axes)
    legend(axes, min(6, len(rivals)))
    return figure


def plot_summary(result, pyplot):
    """Over the best baseline, beside the share of the roofline and batches that run alone."""
    scenarios = result["scenarios"]
    figure, (left, middle, right) = axes_of(result, pyplot, columns=3, width=9)
    best = [speedups_of(result, scenario).get("best_baseline", math.nan) for scenario in scenarios]
    dots(left, names_of(result), {"best_baseline": best}, "× the best baseline")
    mark_losses(left)
    shares = [(s["bound_us"] + 2) / (median_us(s, "concert") or math.nan) for s in scenarios]
    dots(middle, names_of(result), {"share": shares}, "(bound + 2 µs) / time")
    middle.set_xlim(0, 1.05 * max(1, *shares))
    rivals = isolated_rivals(result)
    isolated = {form: [(median_us(s, form) or math.nan) / (median_us(s, "isolated") or math.nan) for s in scenarios]
                for form in rivals}
    dots(right, names_of(result), isolated or {"": [math.nan] * len(scenarios)}, "one batch at a time: × " +
         ", ".join(rivals))
    mark_losses(right)
    if len(rivals) > 1:
        legend(right, 1)
    return figure


def plot_latencies(result, pyplot):
    """The p99 of every client's runs, the worst of the clients, by mode."""
    figure, axes = axes_of(result, pyplot)
    modes = ["concert", *rivals_of(result)]
    worst = {mode: [max((client["p99"] for client in s["latency_us"].get(mode, [])), default=math.nan)
                    for s in result["scenarios"]] for mode in modes}
    dots(axes, names_of(result), worst, "p99 of one run, worst client (µs)")
    logarithmic(axes)
    legend(axes, len(modes))
    return figure


def plot_overhead(result, pyplot):
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    groups = [(s, q) for s in result["scenarios"] for q in ("p50", "p90", "p99")]
    for i, (series, colour) in enumerate((("local_us", "#8c8c8c"), ("ring_us", "#4c72b0"))):
        axes.bar([x + i * 0.38 for x in range(len(groups))], [s[series][q] for s, q in groups], 0.38,
                 label=series.removesuffix("_us"), color=colour)
    for x, (scenario, quantile) in enumerate(groups):
        axes.annotate(f"{scenario['added_us'][quantile]:+.1f}", (x + 0.38, scenario["ring_us"][quantile]), ha="center",
                      va="bottom", fontsize=8)
    axes.set_xticks([x + 0.19 for x in range(len(groups))], [f"{s['name']}\n{q}" for s, q in groups], fontsize=8)
    axes.set_ylabel("launch to visible completion (µs)", fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(fontsize=8, frameon=False)
    return figure


def plot_shares(result, pyplot):
    """Of what can be gained over one after the other."""
    figure, (left, right) = axes_of(result, pyplot, columns=2, width=9)
    rivals = [rival for rival in rivals_of(result) if rival != "serial"]
    for axes, least, xlabel in ((left, "ideal_us", "share of the ideal gain over serial"),
                                (right, "bound_us", "share of the gain that memory allows")):
        def of(times, least=least):
            return [math.nan if value is None else value
                    for value in (share(s, us, least) for s, us in zip(result["scenarios"], times))]
        series = {"best form": of([best_form_us(s) for s in result["scenarios"]])}
        series |= {name: of([median_us(s, name) for s in result["scenarios"]]) for name in [*rivals, "concert"]}
        dots(axes, names_of(result), series, xlabel)
        axes.axvline(1, color="#8c8c8c", linewidth=0.8)
        axes.set_xlim(-0.25, 1.25)  # what is slower than serial by more stands in the table
    legend(left, len(rivals) + 2)
    return figure


def plot_bandwidths(result, pyplot):
    """busbw against size, a column for each kind, alone above and beside GEMMs below."""
    kinds = list(dict.fromkeys(s["kind"] for s in result["scenarios"]))
    figure, grid = pyplot.subplots(2, len(kinds), sharex=True, sharey=True, squeeze=False,
                                   figsize=(1 + 2 * len(kinds), 4.5))
    for column, kind in enumerate(kinds):
        own = [s for s in result["scenarios"] if s["kind"] == kind]
        for axes, key, where in ((grid[0][column], "busbw_gb_per_s", ""),
                                 (grid[1][column], "beside_busbw_gb_per_s", " beside GEMMs")):
            for name in ("nccl_8_ctas", "concert_8_sms", "nccl", "concert"):
                axes.plot([s["bytes"] for s in own], [s[key].get(name, math.nan) for s in own], color=COLOURS[name],
                          linewidth=1, label=name)
            axes.axhline(LINK_GB_PER_S, color="#8c8c8c", linewidth=0.8, linestyle=":")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_title(kind + where, fontsize=7)
            axes.tick_params(labelsize=6)
            axes.set_xticks([2**10, 2**20, 2**30], ["1 KiB", "1 MiB", "1 GiB"])
            axes.set_xticks([], minor=True)
            axes.set_yticks([], minor=True)
    for row in grid:
        row[0].set_ylabel("busbw, GB/s; dotted: the links", fontsize=7)
    grid[0][0].legend(fontsize=6, frameon=False, loc="upper left")
    return figure


def plots_of(result):
    """What a suite's plots are called and which function draws each."""
    if result["suite"] == "overhead":
        return {"": plot_overhead}
    if result["suite"] in ("tenants", "steps"):
        return {"": plot_speedups, "-latency": plot_latencies}
    if result["suite"] == "c3":
        return {"": plot_shares}
    if result["suite"] == "collectives":
        return {"": plot_bandwidths}
    return {"": plot_speedups, "-summary": plot_summary}


def flatten(element):
    """Groups that say nothing give their place to what they hold."""
    children = []
    for child in list(element):
        flatten(child)
        idle = child.tag == SVG + "g" and not (set(child.attrib) - {"id"})
        children += list(child) if idle else [child]
    element[:] = children
    element.text = element.text and element.text.strip()
    element.tail = None


def shrink(svg):
    """The same picture in a fraction of the bytes: no metadata and idle groups, a style and a name that come again as a
    class and a short one, coordinates to a tenth of a point."""
    root = ElementTree.fromstring(svg)
    for metadata in root.findall(SVG + "metadata"):
        root.remove(metadata)
    flatten(root)
    used = set(re.findall(r"#(\w+)", svg))
    classes, names = {}, {}
    for element in root.iter():
        if "style" in element.attrib:
            element.set("class", classes.setdefault(element.attrib.pop("style"), f"s{len(classes)}"))
        if element.get("id") in used:
            names[element.get("id")] = f"i{len(names)}"
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    for element in root.iter():
        if "id" in element.attrib and element.attrib["id"] not in names:
            del element.attrib["id"]
        for key, value in element.attrib.items():
            value = re.sub(r"(?<![\w.])(#?)(\w{8,})", lambda m: m[1] + names.get(m[2], m[2]), value)
            if key in ("d", "x", "y"):
                value = re.sub(r"\s+", " ", re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), value))
            element.set(key, value.strip())
    style = root.find(f".//{SVG}style")
    style.text += "".join(f".{name}{{{text}}}" for text, name in classes.items())
    text = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r"(?=<(?:g|path|text)\b)", "\n", text.replace(" />", "/>")) + "\n"


def write_plots(result, target):
    """Writes target.svg and the suite's others; ValueError where one would be too large to publish."""
    for suffix, plot in plots_of(result).items():
        write_plot(lambda pyplot, plot=plot: plot(result, pyplot), header_line(result, short=True),
                   target.with_name(target.name + suffix + ".svg"))


def write_plot(plot, foot, path):
    """What `plot` draws on a pyplot, with a line below it; ValueError where it would be too large to publish."""
    import matplotlib
    matplotlib.use("svg")
    # The same result gives the same file, and a name in it is text, not a drawing of its letters.
    matplotlib.rcParams.update({"svg.hashsalt": "concert", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"],
                                "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot
    figure = plot(pyplot)
    figure.text(0.01, 0.003, foot, fontsize=6, color="#666666")
    figure.tight_layout(rect=(0, 0.01, 1, 1))
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    svg = shrink(text.getvalue())
    if len(svg.encode()) > MAX_BYTES:
        raise ValueError(f"{path} would have {len(svg.encode())} bytes; at most {MAX_BYTES}: draw less")
    path.write_text(svg)

#!/usr/bin/env python3
"""Draws docs/dashboard.svg anew: the dashboard of deploy/grafana/concert.json, asked of a real Prometheus that scrapes a
concertd while clients come and go.

  dashboard_picture.py BIN_DIR FILE.svg

On the simulator; it takes a minute. As root, the clients are those of several users, who must be able to read BIN_DIR.
Needs prometheus and matplotlib (Debian: prometheus, python3-matplotlib).
"""

import io
import itertools
import math
import os
import re
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import dashboard
from metered_node import MeteredDaemon, Prometheus, wait_for

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from report_plots import MAX_BYTES, shrink  # noqa: E402

SCRAPE_MS, SHOWN_S, STEP_S = 1000, 60, 1
# When it comes, of which user, its name, its layers, its GPU, its rank of two. The last trainer is killed, which fails
# the op that its peer waits with.
CLIENTS = (
    (0, 0, "server-a", "16x64x32,16x32x64", 0, None),
    (0, 0, "server-b", "8x32x32,8x64x32,8x32x64", 0, None),
    (12, 1, "embedder", "32x32x32", 0, None),
    (22, 2, "trainer", "16x64x64,16x64x64", 0, 0),
    (22, 2, "trainer", "16x64x64,16x64x64", 1, 1),
    (30, 1, "chat", "8x32x32,8x32x32,8x32x32,8x32x32", 1, None),
)
KILLED, KILLED_S = "trainer", 46

# What Grafana looks like: its dark theme and the colours that it gives to series.
PAGE, PANEL, EDGE, GRID, WORDS, DIM = "#111217", "#181b1f", "#2a2d33", "#2c2f35", "#d5d6dd", "#8e9099"
COLOURS = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a")
COLUMN, ROW, HEADER, GAP = 30, 20, 36, 3  # points
TITLE = "concert"
SUBTITLE = "two simulated H200: where the CPU computes results more slowly than the modelled GPU would, times are the CPU's"

# The names that Grafana has for units: what stands behind the prefix.
UNITS = {"short": "", "flops": "FLOP/s", "Bps": "B/s", "ops": "ops/s"}
PREFIXES = ("", "k", "M", "G", "T", "P")


# ---- A minute of work


def work(daemon, prometheus):
    """Runs the clients; returns when it began and ended, as Prometheus sees it."""
    running, waiting = [], list(CLIENTS)
    wait_for(prometheus.last_scrape, "scrape")
    begin = math.ceil(time.time())
    try:
        while (now := time.time() - begin) < SHOWN_S:
            while waiting and waiting[0][0] <= now:
                _, user, name, layers, gpu, rank = waiting.pop(0)
                ranks = () if rank is None else ("--rank", str(rank), "--ranks", "2", "--reduce-elements", "1024")
                running.append((name, daemon.demo(name, layers, gpu, ranks, **identity(user))))
            if now >= KILLED_S:
                last = [process for name, process in running if name == KILLED][-1]
                last.kill()
                last.wait()
            time.sleep(0.1)
        wait_for(lambda: prometheus.last_scrape() >= begin + SHOWN_S, "last scrape")
    finally:
        for _, process in running:
            process.kill()
            process.wait()
    return begin, begin + SHOWN_S


def identity(user):
    return {"user": 1000 + user, "group": 1000 + user, "extra_groups": []} if os.getuid() == 0 else {}


def observe(programs):
    """The panels and the moments that they show."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # other users' clients look for the socket there
        daemon = MeteredDaemon(programs, folder)
        try:
            prometheus = Prometheus(folder, daemon.address, SCRAPE_MS, instance="node-1")
            try:
                begin, end = work(daemon, prometheus)
                return dashboard.read(prometheus, begin, end, STEP_S), range(begin, end + 1, STEP_S)
            finally:
                prometheus.stop()
        finally:
            daemon.stop()


# ---- Values


def scaled(value, unit):
    """A factor and the unit that it makes of `unit`, so that a number as large as `value` has few digits."""
    if unit == "percentunit":
        return 100, " %"
    if unit == "s":
        return next(((factor, f" {name}") for factor, name in ((1, "s"), (1e3, "ms")) if value * factor >= 1),
                    (1e6, " µs"))
    power = min(len(PREFIXES) - 1, max(0, int(math.log10(value) / 3))) if value >= 1 else 0
    name = PREFIXES[power] + UNITS[unit]
    return 1000.0 ** -power, f" {name}" if name else ""


def written(value, unit):
    """As a stat shows it: three digits."""
    factor, name = scaled(abs(value), unit)
    number = value * factor
    digits = 0 if number == round(number) else max(0, 2 - int(math.log10(max(abs(number), 1))))
    return f"{number:.{digits}f}{name}"


# ---- The picture


def thinned(points, tolerance):
    """Those of the points that a line needs to be nowhere further from it, up or down (Ramer 1972, Douglas and Peucker
    1973)."""
    (x, y), (last_x, last_y) = points[0], points[-1]
    slope = (last_y - y) / (last_x - x) if last_x > x else 0
    away, i = max((abs(height - y - slope * (at - x)), i) for i, (at, height) in enumerate(points))
    if away <= tolerance:
        return [points[0], points[-1]]
    return thinned(points[:i + 1], tolerance)[:-1] + thinned(points[i:], tolerance)


def pen(axes, times, heights, colour, fill):
    """A line and what is below it, in pieces where there are no values. One path each, to be small: its lower edge is out
    of sight."""
    top, piece = axes.get_ylim()[1], []
    for at, height in [*zip(times, heights), (math.nan, math.nan)]:
        if not math.isnan(height):
            piece.append((at, height))
        elif piece:
            x, y = zip(*thinned(piece, top / 300))
            axes.fill([x[0], *x, x[-1]], [-top, *y, -top], facecolor=fill, edgecolor=colour, linewidth=0.9)
            piece = []


def say(axes, x, y, words, size, colour=WORDS, **place):
    axes.text(x, y, words, transform=axes.transAxes, fontsize=size, color=colour, **place)


def draw_stat(axes, panel, shown):
    """The last value over the past."""
    axes.set_xticks([])
    axes.set_yticks([])
    say(axes, 0.5, 0.93, "\n".join(textwrap.wrap(panel.title, 24)), 7, ha="center", va="top")
    points = panel.series[0].points
    axes.set_ylim(0, 3.2 * max(points.values()) or 1)  # the past takes the lowest third
    pen(axes, shown, [points.get(at, math.nan) for at in shown], COLOURS[0], on_panel(COLOURS[0]))
    say(axes, 0.5, 0.5, written(points[max(points)], panel.unit), 16, COLOURS[0], ha="center", va="center")


def layers_of(panel, shown):
    """Pairs of a series' name and its heights; of a stack, each stands on those before."""
    below = dict.fromkeys(shown, 0)
    for series in panel.series:
        points = {at: value + (below[at] if panel.stacked else 0) for at, value in series.points.items()}
        if panel.stacked:
            below |= points
        yield series.name, [points.get(at, math.nan) for at in shown]


def on_panel(colour):
    """A fifth of it over a panel, but opaque."""
    parts = [[int(text[at:at + 2], 16) for at in (1, 3, 5)] for text in (colour, PANEL)]
    return "#" + "".join(f"{round(0.2 * over + 0.8 * under):02x}" for over, under in zip(*parts))


def draw_timeseries(axes, panel, shown):
    layers = [(*layer, colour) for layer, colour in zip(layers_of(panel, shown), itertools.cycle(COLOURS))]
    values = [height for _, heights, _ in layers for height in heights if not math.isnan(height)]
    highest = panel.max or 1.1 * max(values) or 1
    axes.set_ylim(0, highest)
    for _, heights, colour in reversed(layers):  # of a stack, each covers what is below it
        pen(axes, shown, heights, colour, on_panel(colour) if panel.stacked else colour + "26")
    say(axes, -36 / axes.bbox.width, 1 + 9 / axes.bbox.height, panel.title, 7.5)
    axes.locator_params(axis="y", nbins=4, steps=[1, 2, 2.5, 5, 10])
    factor, unit = scaled(highest, panel.unit)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * factor:.3g}{unit}" if value else "0")
    marks = [at for at in shown if at % 15 == 0 and shown[0] + 4 <= at <= shown[-1] - 4]
    axes.set_xticks(marks, [time.strftime("%H:%M:%S", time.gmtime(at)) for at in marks])
    axes.tick_params(labelsize=6, colors=DIM, length=0, pad=3.5)
    axes.grid(color=GRID, linewidth=0.5)
    marks = [axes.plot([], [], color=colour, linewidth=1.6, label=name)[0] for name, _, colour in layers]
    axes.legend(handles=marks, loc="upper left", bbox_to_anchor=(-36 / axes.bbox.width, -0.16), ncols=4, fontsize=6,
                frameon=False, labelcolor=WORDS, handlelength=0.9, handletextpad=0.4, columnspacing=1, labelspacing=0.3,
                borderpad=0, borderaxespad=0)


def draw_nothing(axes, panel, _):
    axes.set_xticks([])
    axes.set_yticks([])
    say(axes, 0.5, 0.93, panel.title, 7.5, ha="center", va="top")
    say(axes, 0.5, 0.5, "no data on the simulator", 7, DIM, ha="center", va="center")


def draw(panels, shown, pyplot):
    """The figure; `shown`: the moments on the time axes."""
    width = COLUMN * max(panel.grid["x"] + panel.grid["w"] for panel in panels)
    height = ROW * max(panel.grid["y"] + panel.grid["h"] for panel in panels) + HEADER
    figure = pyplot.figure(figsize=(width / 72, height / 72), dpi=72, facecolor=PAGE)
    for words, y, size, colour in ((TITLE, 13, 11, WORDS), (SUBTITLE, 27, 7, DIM)):
        figure.text(GAP / width, 1 - y / height, words, fontsize=size, color=colour, va="center")
    for panel in panels:
        left, top = panel.grid["x"] * COLUMN + GAP, HEADER + panel.grid["y"] * ROW + GAP
        right, bottom = left + panel.grid["w"] * COLUMN - 2 * GAP, top + panel.grid["h"] * ROW - 2 * GAP

        def place(left, top, right, bottom):
            return left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height

        x, y, w, h = place(left, top, right, bottom)
        figure.add_artist(pyplot.Rectangle((x, y), w, h, facecolor=PANEL, edgecolor=EDGE, linewidth=0.6, zorder=-1))
        is_plot = panel.type == "timeseries" and panel.series
        margins = (42, 23, -8, -30) if is_plot else (1, 0, -1, 0)
        corners = (at + by for at, by in zip((left, top, right, bottom), margins))
        axes = figure.add_axes(place(*corners), facecolor="none", xlim=(shown[0], shown[-1]), frame_on=False)
        (draw_timeseries if is_plot else draw_stat if panel.series else draw_nothing)(axes, panel, shown)
    return figure


def picture(panels, shown):
    """The text of the SVG; ValueError where it would be too large."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "concert", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]})
    from matplotlib import pyplot
    figure, text = draw(panels, shown, pyplot), io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    # After a path's first point, each is the end of a line without its saying so.
    svg = re.sub(r"(?<=\d) L (?=-?\d)", " ", shrink(text.getvalue()))
    if len(svg.encode()) > MAX_BYTES:
        raise ValueError(f"{len(svg.encode())} bytes; at most {MAX_BYTES}: draw less")
    return svg


def main():
    programs, file = sys.argv[1:]
    panels, shown = observe(programs)
    for panel in panels:
        if not panel.series:
            print(f"no data: {panel.title}")
    Path(file).write_text(picture(panels, shown), encoding="utf-8")


if __name__ == "__main__":
    main()

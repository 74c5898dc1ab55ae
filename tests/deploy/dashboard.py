"""What Grafana would ask Prometheus for deploy/grafana/concert.json, and what it would write beside the answers."""

import dataclasses
import json
import re
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "deploy/grafana/concert.json"
LABEL_VALUES = re.compile(r"label_values\((.*),\s*(\w+)\)")


@dataclasses.dataclass
class Series:
    name: str
    points: dict  # {seconds since 1970: value}


@dataclasses.dataclass
class Panel:
    title: str
    type: str
    grid: dict  # x, y, w, h
    unit: str
    max: float | None
    stacked: bool
    series: list


def load():
    return json.loads(FILE.read_text())


def targets():
    """Pairs of a panel's title and an expression."""
    for panel in load()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def all_of(values):
    """What Grafana puts for "All" of a variable: a regular expression inside a string of PromQL."""
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", lambda special: "\\\\" + special[0], value) for value in values]
    return escaped[0] if len(escaped) == 1 else "(" + "|".join(escaped) + ")"


def substitute(text, variables):
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda name: variables[name[1] or name[2]], text)


def intervals(scrape_ms, step_ms):
    """As Grafana defines them, where its data source has been told the scrape interval."""
    return {"__interval": f"{step_ms}ms", "__rate_interval": f"{max(step_ms + scrape_ms, 4 * scrape_ms)}ms"}


def variables_of(dashboard, prometheus, step_ms):
    """Of every variable its value when "All" is chosen, which is what the file says."""
    values = intervals(prometheus.scrape_ms, step_ms)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "datasource":
            values[variable["name"]] = variable["query"]
            continue
        selector, label = LABEL_VALUES.fullmatch(variable["query"]).groups()
        values[variable["name"]] = all_of(prometheus.label_values(substitute(selector, values), label))
    return values


def legend(template, labels):
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name[1], ""), template)


def read_panel(panel, prometheus, variables, start, end, step_s):
    defaults = panel["fieldConfig"]["defaults"]
    series = []
    for target in panel["targets"]:
        expression = substitute(target["expr"], variables)
        for labels, points in prometheus.query_range(expression, start, end, step_s):
            if points:
                series.append(Series(legend(target["legendFormat"], labels), points))
    return Panel(panel["title"], panel["type"], panel["gridPos"], defaults["unit"], defaults.get("max"),
                 defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal", series)


def read(prometheus, start, end, step_s):
    """Every panel with what Prometheus has for it from `start` to `end`, in seconds since 1970."""
    dashboard = load()
    variables = variables_of(dashboard, prometheus, round(1000 * step_s))
    return [read_panel(panel, prometheus, variables, start, end, step_s) for panel in dashboard["panels"]]

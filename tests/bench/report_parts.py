"""One result of several: of a suite whose scenarios were measured in more than one run of concert-bench, where machines
are lent for shorter than it takes."""
import pathlib
import re

from report_data import geometric_mean

PART = re.compile(r"(.+)\.\d+")  # a part's file, without .json: steps.1, steps.2
OWN = ("date", "gpu_id", "wall_s")  # of a header, which a part may have for itself


def suite_stem(path):
    """The file that this one is, or is a part of: steps, of steps.json and steps.2.json alike."""
    match = PART.fullmatch(pathlib.Path(path).stem)
    return match[1] if match else pathlib.Path(path).stem


def joined(parts):
    """One result with all scenarios of the parts; its header is the first's, and says which parts there are. ValueError:
    they were not measured alike, or have a scenario in common."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part in parts[1:]:
        for key in first["header"].keys() | part["header"].keys():
            own, other = first["header"].get(key), part["header"].get(key)
            if key not in OWN and own != other:
                raise ValueError(f"parts of {first['suite']} differ in {key}: {own} and {other}")
    scenarios = [scenario for part in parts for scenario in part["scenarios"]]
    names = [scenario["name"] for scenario in scenarios]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"parts of {first['suite']} have scenarios in common: {twice}")
    header = first["header"] | {"wall_s": sum(part["header"]["wall_s"] for part in parts),
                                "parts": [{key: part["header"][key] for key in OWN} for part in parts]}
    return first | {"header": header, "scenarios": scenarios, "summary": summary_of_parts(parts, scenarios)}


def summary_of_parts(parts, scenarios):
    """As concert-bench sums a suite up (speedup_summary.cc)."""
    summaries = [part["summary"] for part in parts]
    losses = [loss for summary in summaries for loss in summary.get("client_losses", [])]
    over, by_class = {}, {}
    for scenario in scenarios:
        for rival, ratio in scenario["speedup_over"].items():
            over.setdefault(rival, []).append((ratio, scenario["name"]))
            by_class.setdefault(scenario["class"], {}).setdefault(rival, []).append(ratio)
    return summaries[0] | {
        "scenarios": len(scenarios),
        "client_losses": sorted(losses, key=lambda loss: loss["speedup"]),
        **{key: [entry for summary in summaries for entry in summary.get(key, [])]
           for key in ("failed", "skipped", "lost_to_best_baseline")},
        "speedup_over": {rival: {"geomean": geometric_mean([ratio for ratio, _ in ratios]), "best": max(ratios)[0],
                                 "worst": min(ratios)[0], "worst_scenario": min(ratios)[1]}
                         for rival, ratios in sorted(over.items())},
        "by_class": {group: {rival: geometric_mean(ratios) for rival, ratios in sorted(rivals.items())}
                     for group, rivals in sorted(by_class.items())},
    }

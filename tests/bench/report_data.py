"""What report.py, its plots and publish.py read from result files of concert-bench, whatever their layout and age."""
import json
import math
import pathlib
import re
import statistics
from typing import NamedTuple

ROUNDS_TO_PUBLISH = 20  # as tests/bench/result_file.h has it
TOLERANCE = 0.02  # what is slower by less has not lost


def read(path):
    """A result file, or SystemExit with a sentence."""
    result = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if result.get("schema") != 1 or not result.get("scenarios"):
        raise SystemExit(f"{path} is no result file of concert-bench, or has no scenarios")
    return result


def dump(result):
    """One scenario a line, as concert-bench writes it: what git shows of a new file is what was measured anew."""
    def line(value):
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    parts = []
    for key in sorted(result):
        value = result[key]
        text = "[" + ",".join("\n  " + line(entry) for entry in value) + "\n ]" if key == "scenarios" else line(value)
        parts.append(f"\n {json.dumps(key)}: {text}")
    return "{" + ",".join(parts) + "\n}\n"


def named(result, scenario):
    return next(entry for entry in result["scenarios"] if entry["name"] == scenario)


def gpu_of(result):
    """h100 of a "NVIDIA H100 80GB HBM3"."""
    return re.split("[ -]", result["header"]["gpu"].removeprefix("NVIDIA "))[0].lower()


def geometric_mean(values):
    return math.exp(statistics.mean(map(math.log, values)))


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


def isolated_rivals(result):
    """How a client alone would launch one batch."""
    return list(dict.fromkeys(form for scenario in result["scenarios"] for form in scenario["times_us"]
                              if form.startswith("isolated_")))


def speedups_of(result, scenario):
    """Of concert over each rival that was measured, and over the best of the baselines. Clients with unequal chains
    make GEMMs of unequal size, so that of clients it is the geometric mean of their own."""
    concert_us = median_us(scenario, "concert")
    if "client_throughput_per_s" in scenario:
        speedups = {mode: geometric_mean(client_speedups(scenario, mode)) for mode in rivals_of(result)
                    if mode in scenario["client_throughput_per_s"]}
    elif concert_us is None:
        return {}
    else:
        times = {form: median_us(scenario, form) for form in rivals_of(result)}
        speedups = {form: time / concert_us for form, time in times.items() if time is not None}
    policies = result["header"].get("policies", [])
    baselines = [ratio for form, ratio in speedups.items() if form not in policies]
    if baselines:
        speedups["best_baseline"] = min(baselines)
    return speedups


def client_speedups(scenario, mode):
    rates = scenario["client_throughput_per_s"]
    return [concert / other for concert, other in zip(rates["concert"], rates[mode])]


def summary_of(result):
    """{rival: (geomean, worst, the worst's name)}."""
    ratios = {}
    for scenario in result["scenarios"]:
        for rival, ratio in speedups_of(result, scenario).items():
            ratios.setdefault(rival, []).append((ratio, scenario["name"]))
    return {rival: (geometric_mean([ratio for ratio, _ in pairs]), *min(pairs)) for rival, pairs in ratios.items()}


def rounds_of(result):
    return result["header"].get("laps", result["header"]["rounds"])


def is_quick_look(result):
    """Of suite tenants, files that do not say how many laps a mode had are from when it had one to eight."""
    if result["suite"] == "tenants" and "laps" not in result["header"]:
        return True
    return rounds_of(result) < ROUNDS_TO_PUBLISH


def caveats(result):
    """What a reader must know before the first number."""
    said = []
    if result["header"]["device"] == "sim":
        said.append("modelled H200, results computed on this CPU: the times are the model's and say nothing about a real GPU")
    if is_quick_look(result):
        said.append(f"quick look of {rounds_of(result)} rounds; a published file has {ROUNDS_TO_PUBLISH}")
    return said


def header_line(result, short=False):
    header = result["header"]
    said = caveats(result)
    if short:
        mark = "modelled, " if header["device"] == "sim" else ""
        mark += "quick look, " if is_quick_look(result) else ""
        return f"{result['suite']}: {mark}{header['gpu']}, {rounds_of(result)} rounds, commit {header['commit'][:12]}"
    parts = [header["gpu"], f"{header['gpus']} GPU(s)", f"device {header['device']}", f"policy {header['policy']}"]
    parts += [f"{key} {header[key]}" for key in ("config", "driver", "cuda", "cublas", "nccl", "cpu", "clocks") if header.get(key)]
    laps = f"{header['laps']} laps of {header['lap_ms']} ms a mode" if "laps" in header else f"{header['rounds']} rounds"
    parts += [laps, f"commit {header['commit'][:12]}", header["date"]]
    if header.get("baseline_path") == "policy":
        parts.append("baselines are policies of the daemon, not cuBLASLt")
    return "; ".join([f"**{text[0].upper()}{text[1:]}**" for text in said] + parts)


class Loss(NamedTuple):
    scenario: str
    who: str  # "" or which clients
    what: str  # "time", "throughput", "p99", ...
    over: str
    speedup: float  # of concert, below 1


def client_kinds(scenario):
    """{name: [client, ...]} of clients alike. Old files do not name them: they have the same times alone."""
    kinds = {}
    for i in range(scenario["clients"]):
        if "client_names" in scenario:
            name = scenario["client_names"][i]
        else:
            name = json.dumps([clients[i] for clients in scenario.get("solo_latency_us", {}).values()])
        kinds.setdefault(name, []).append(i)
    if "client_names" in scenario:
        return kinds
    return {"client " + ", ".join(map(str, clients)) if len(kinds) > 1 else "clients": clients
            for clients in kinds.values()}


def tenant_losses(result, scenario):
    for name, clients in client_kinds(scenario).items():
        who = f"{len(clients)} × {name}" if "client_names" in scenario and len(clients) > 1 else name
        for mode in rivals_of(result):
            if mode in scenario["client_throughput_per_s"] and mode not in result["header"].get("policies", []):
                own = client_speedups(scenario, mode)
                yield Loss(scenario["name"], who, "throughput", mode, geometric_mean([own[i] for i in clients]))
                latency = scenario["latency_us"]
                tails = [latency[mode][i]["p99"] / latency["concert"][i]["p99"] for i in clients]
                yield Loss(scenario["name"], who, "p99", mode, geometric_mean(tails))
        # Files without scenarios of one client: its neighbours sleep, and it competes with nobody but concert.
        if "class" not in scenario:
            for mode, alone in scenario.get("solo_latency_us", {}).items():
                if mode != "concert":
                    own = scenario["solo_latency_us"]["concert"][clients[0]]["p50"]
                    yield Loss(scenario["name"], f"{who} alone", "chain", f"its own CUDA graph ({mode})",
                               alone[clients[0]]["p50"] / own)


def gemm_losses(result, scenario):
    speedups = speedups_of(result, scenario)
    policies = result["header"].get("policies", [])
    baselines = {form: ratio for form, ratio in speedups.items() if form not in policies and form != "best_baseline"}
    if baselines:
        best = min(baselines, key=baselines.get)
        yield Loss(scenario["name"], "", "batches in flight", best, baselines[best])
    isolated = median_us(scenario, "isolated")
    for form in isolated_rivals(result):
        if isolated and median_us(scenario, form):
            yield Loss(scenario["name"], "", "one batch at a time", form, median_us(scenario, form) / isolated)


def c3_losses(result, scenario):
    baselines = {form: ratio for form, ratio in speedups_of(result, scenario).items() if form in rivals_of(result)}
    if baselines:
        best = min(baselines, key=baselines.get)
        yield Loss(scenario["name"], "", "GEMM and collective", best, baselines[best])


COLLECTIVE_PAIRS = (("alone", "times_us", "concert", "nccl"), ("beside GEMMs", "beside_us", "concert", "nccl"),
                    ("with 8 SMs", "times_us", "concert_8_sms", "nccl_8_ctas"))


def both_over_speedup(scenario):
    """NCCL's time over concert's until a collective and the GEMMs beside it are over, which trade time with each other;
    None where it was not measured. Older files do not have it run by run: there it is the larger of both medians."""
    kinds = ["both_us"] if "both_us" in scenario else ["beside_us", "gemms_beside_us"]
    times = [scenario.get(kind, {}) for kind in kinds]
    if not all(name in of for of in times for name in ("concert", "nccl")):
        return None
    nccl, concert = (max(of[name]["p50"] for of in times) for name in ("nccl", "concert"))
    return nccl / concert


def collective_speedups(scenario):
    """{what: (over whom, ratio)}, of what was measured."""
    return {what: (other, times[other]["p50"] / times[own]["p50"]) for what, key, own, other in COLLECTIVE_PAIRS
            for times in [scenario.get(key, {})] if own in times and other in times}


def collective_losses(_, scenario):
    for what, (other, ratio) in collective_speedups(scenario).items():
        yield Loss(scenario["name"], "", what, other, ratio)


def share(scenario, us, least):
    """(serial - us) / (serial - least), `least` being the key of the ideal or of the bound; None where nothing can be
    gained."""
    serial = median_us(scenario, "serial")
    if us is None or serial is None or least not in scenario or serial <= scenario[least]:
        return None
    return (serial - us) / (serial - scenario[least])


def overhead_losses(_, scenario):
    for quantile in ("p50", "p99"):
        yield Loss(scenario["name"], "", quantile, "a launch without concert",
                   scenario["local_us"][quantile] / scenario["ring_us"][quantile])


def losses_of(result):
    """Everything in which concert is slower than doing without it, by more than TOLERANCE; the worst first."""
    of_scenario = {"tenants": tenant_losses, "steps": tenant_losses, "overhead": overhead_losses, "c3": c3_losses,
                   "collectives": collective_losses}.get(result["suite"], gemm_losses)
    losses = [loss for scenario in result["scenarios"] for loss in of_scenario(result, scenario)]
    return sorted((loss for loss in losses if loss.speedup * (1 + TOLERANCE) < 1), key=lambda loss: loss.speedup)

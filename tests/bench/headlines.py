"""Phrases of hand-written sentences whose figures follow from the result files: publish.py --check looks for each of them."""
import json

from report_data import geometric_mean, named, speedups_of

PAGE, SECURITY = "docs/benchmarks/README.md", "SECURITY.md"
MODES_ALIKE = ("serial", "serial_tuned", "streams", "streams_wide", "group_library")  # neither tuned for others nor planned


def overhead(result):
    idle, busy = (named(result, name)["added_us"] for name in ("idle", "seven_busy"))
    yield PAGE, f"differ by less than their scatter in this run ({idle['p50']:.1f} µs)"
    yield PAGE, f"Beside seven busy clients it adds {busy['p50']:.1f} µs"


def over_best_of(modes, result, scenarios):
    """Of each scenario, over whichever of the modes is best in it."""
    return [min(speedups_of(result, s)[mode] for mode in modes if mode in speedups_of(result, s)) for s in scenarios]


def random_sets(result):
    kind, count = result["scenarios"][0]["class"], len(result["scenarios"])
    seven, five = (over_best_of(modes, result, result["scenarios"]) for modes in (("best_baseline",), MODES_ALIKE))
    below = [sum(ratio < 0.97 for ratio in ratios) for ratios in (seven, five)]
    best, alike, worst = geometric_mean(seven), geometric_mean(five), min(five)
    if kind == "large":
        yield PAGE, f"large sets {best:.2f}× ({below[0]} of {count} below 0.97×)"
        yield PAGE, f"that are not tuned and replayed for the set {alike:.2f}× ({below[1]} below 0.97×, {worst:.2f}× at worst)"
    elif kind == "mixed":
        yield PAGE, f"mixed ones {best:.2f}× ({below[0]} of {count})"
        yield PAGE, f"and {alike:.2f}× ({below[1]}, {worst:.2f}×). The target"
    elif kind == "small":
        yield PAGE, f"Small ones are {alike:.2f}× as fast as the best of these five ({sum(ratio < 0.90 for ratio in five)} of {count} " \
                    f"below 0.90×, where none should be; {worst:.2f}× at worst) and {best:.2f}× the best of seven"
    else:
        yield PAGE, f"tiny ones {alike:.2f}× and {best:.2f}×"


def steps(result):
    urgent = named(result, "high-beside-low")
    high, rates, latency = (urgent[key] for key in ("high_p99_over_solo", "client_throughput_per_s", "latency_us"))
    yield PAGE, f"the high client makes {rates['concert'][0]:,.0f} steps a second beside seven low ones, " \
                f"{urgent['kept_of_alone']['concert'][0]:.2f} of what it makes alone, " \
                f"{rates['concert'][0] / rates['mps'][0]:.2f}× what it has under MPS; its step takes " \
                f"{latency['concert'][0]['p50']:.0f} µs, one in a hundred more than {latency['concert'][0]['p99']:.0f}, " \
                f"{high['concert']:.2f} times its p99 alone"
    moved = [3 * named(result, name)["share_of_bound"]["concert"] for name in ("decode-1024-x8", "decode-2048-x8")]
    yield PAGE, f"They move {moved[0]:.2f} and {moved[1]:.2f} TB/s, of an H100's bound {moved[0] / 3:.2f} and {moved[1] / 3:.2f}"


OF_FILE = {"overhead-h200": overhead, "random-tiny-h200": random_sets, "random-small-h200": random_sets,
           "random-large-h200": random_sets, "random-mixed-h200": random_sets, "steps-h100": steps}


def largest_error(results, is_steps):
    return max(s.get("max_rel_error", 0) for result in results.values() if (result["suite"] == "steps") == is_steps
               for s in result["scenarios"])


def headlines(results, attacks):
    """(file below the repository, what it must say), of result files and of the kinds of attacks."""
    said = [pair for name, phrases in OF_FILE.items() if name in results for pair in phrases(results[name])]
    errors = [f"{largest_error(results, is_steps):.1e}".replace("e-0", "e-") for is_steps in (False, True)]
    return said + [(PAGE, f"largest relative error {errors[0]}, of whole steps {errors[1]}"),
                   (PAGE, f"what {len(attacks)} kinds of hostile clients do"),
                   (SECURITY, f"{len(attacks)} kinds of hostile clients")]


def unsaid(root, results):
    """Sentences that a file below `root` lacks, however its lines are broken."""
    attacks = json.loads((root / "docs/benchmarks/attacks.json").read_text(encoding="utf-8"))["attacks"]
    texts = {name: " ".join((root / name).read_text(encoding="utf-8").split()) for name in (PAGE, SECURITY)}
    return [f"{name} does not say: {phrase}" for name, phrase in headlines(results, attacks) if phrase not in texts[name]]

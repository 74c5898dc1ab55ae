"""Phrases of hand-written sentences whose figures follow from the result files: publish.py --check looks for each of them."""
import json

from report_data import both_over_speedup, geometric_mean, named, speedups_of, summary_of

README, PAGE, SECURITY = "README.md", "docs/benchmarks/README.md", "SECURITY.md"
MODES_ALIKE = ("serial", "serial_tuned", "streams", "streams_wide", "group_library")  # neither tuned for others nor planned


def dated(result):
    return f"({result['header']['commit'][:7]}, {result['header']['date'][:10]})"


def quick_look(result):
    return f"{dated(result)[:-1]}; a quick look of {result['header']['rounds']} rounds)"


def over(result, scenario, rival):
    return speedups_of(result, named(result, scenario))[rival]


def overhead(result):
    idle, busy = (named(result, name)["added_us"] for name in ("idle", "seven_busy"))
    alone = "nothing" if abs(idle["p50"]) < 0.5 else f"{idle['p50']:.1f} µs"
    yield README, f"H200 {dated(result)}: beside seven busy clients {busy['p50']:.1f} µs at p50, {busy['p99']:.1f} µs at p99; " \
                  f"one client: {alone} at p50, {idle['p99']:.1f} µs at p99"
    yield PAGE, f"differ by less than their scatter in this run ({idle['p50']:.1f} µs)"
    yield PAGE, f"Beside seven busy clients it adds {busy['p50']:.1f} µs"


def over_best_of(modes, result, scenarios):
    """Of each scenario, over whichever of the modes is best in it."""
    return [min(speedups_of(result, s)[mode] for mode in modes if mode in speedups_of(result, s)) for s in scenarios]


def gemm(result):
    def best_of(modes, scenarios):
        return geometric_mean(over_best_of(modes, result, scenarios))
    everything = summary_of(result)
    mixed = [s for s in result["scenarios"] if s["class"] == "mixed"]
    yield README, f"| {len(result['scenarios'])} sets of GEMMs"
    yield README, f"H200 {dated(result)}: geomean {everything['best_baseline'][0]:.2f}× the best of seven baselines"
    yield README, f"{everything['best_baseline'][1]:.2f}× at worst; {best_of(MODES_ALIKE, result['scenarios']):.2f}× the best of the " \
                  f"five others, {everything['streams'][0]:.2f}× one stream each, {everything['serial'][0]:.2f}× one stream; mixed " \
                  f"shapes {best_of(MODES_ALIKE, mixed):.2f}×, {best_of(['streams'], mixed):.2f}× and {best_of(['serial'], mixed):.2f}×"


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


def c3(result):
    ratios, ideal = summary_of(result), 100 * result["summary"]["share_of_ideal"]["concert"]["mean"]
    best, worst, _ = ratios["best_baseline"]
    streams, serial = ratios["streams"][0], ratios["serial"][0]
    if result["header"]["gpu"] == "NVIDIA H200":  # the row says once what is compared
        yield README, f"{dated(result)}: geomean {best:.2f}× the best of four baselines, {worst:.2f}× at worst; {streams:.2f}× two " \
                      f"streams, {serial:.2f}× one after the other; {ideal:.0f} % of the gain"
    else:
        yield README, f"{dated(result)}: {best:.2f}×, {worst:.2f}× at worst; {streams:.2f}×, {serial:.2f}× and {ideal:.0f} %"


def collectives(result):
    beside, small, few = (result["summary"][key] for key in ("beside", "small", "eight_sms"))
    both = geometric_mean([ratio for s in result["scenarios"] if (ratio := both_over_speedup(s)) is not None])
    alone, worst, _ = summary_of(result)["nccl"]
    nccl = " NCCL" if result["header"]["gpu"] == "NVIDIA H200" else ""  # the row says it once
    yield README, f"{dated(result)}: beside GEMMs {beside['worst']:.2f}×{nccl} at worst, geomean {beside['geomean']:.2f}×, until both " \
                  f"are over {both:.2f}×; alone {worst:.2f}× at worst, geomean {alone:.2f}× ({small['geomean']:.2f}× up to 64 KiB), " \
                  f"{few['geomean']:.2f}× if both have 8 SMs"


def over_both(result):
    """What clients make of MPS and of time-slicing."""
    mps, worst, _ = summary_of(result)["mps"]
    return f"{mps:.2f}× MPS, {worst:.2f}× at worst, and {summary_of(result)['time_sliced'][0]:.2f}× time-slicing"


def over_own_graph(result):
    """What a client that is alone makes of its own CUDA graph, from the least to the most."""
    ratios = [over(result, s["name"], "local_graph") for s in result["scenarios"] if s["class"] == "alone"]
    return f"{min(ratios):.2f}× to {max(ratios):.2f}× its own CUDA graph"


def tenants_of_an_h100(result):
    urgent = named(result, "latency-beside-batch")
    high, kept = urgent["high_p99_over_solo"], urgent["kept_of_alone"]["concert"]
    yield README, f"H100 {dated(result)}: a batch beside a high-priority client runs at {kept[1]:.2f}× its speed alone (that " \
                  f"client's p99: {high['concert']:.1f}× its own alone; MPS {high['mps']:.0f}×); one client alone: " \
                  f"{over_own_graph(result)}; geomean of the clients' own {over_both(result)}"
    yield README, f"two with small GEMMs: {over(result, 'chain-16x2048-p2', 'mps'):.2f}× MPS and " \
                  f"{over(result, 'chain-16x2048-p2', 'time_sliced'):.1f}× time-slicing; eight with 512x1024: " \
                  f"{over(result, 'chain-512x1024-p8', 'mps'):.1f}× and {over(result, 'chain-512x1024-p8', 'time_sliced'):.1f}×"


def tenants_of_an_h200(result):
    yield README, f"H200 {dated(result)}: {over_both(result)}"


def tenants_beside_others(result):
    yield README, f"without clients alone {quick_look(result)}: {over_both(result)}"


def tenants_alone(result):
    yield README, f"one client alone {quick_look(result)}: {over_own_graph(result)}"


def small_and_large(result, scenario, rival, digits=2):
    """Of decode steps or replicas, as "decode-{}-x1", with a hidden size of 1024 and of 2048."""
    return " and ".join(f"{over(result, scenario.format(hidden), rival):.{digits}f}×" for hidden in (1024, 2048))


def steps(result):
    urgent = named(result, "high-beside-low")
    high, rates, latency = (urgent[key] for key in ("high_p99_over_solo", "client_throughput_per_s", "latency_us"))
    yield README, f"H100 {dated(result)}: one of the high class beside seven low ones: {over(result, 'high-beside-low', 'mps'):.2f}× MPS " \
                  f"all together (its p99: {high['concert']:.1f}× alone, under MPS {high['mps']:.1f}×); eight: " \
                  f"{small_and_large(result, 'decode-{}-x8', 'graphs_in_one_process')} all graphs in one process at a hidden size of 1024 and of 2048, " \
                  f"{small_and_large(result, 'decode-{}-x8', 'mps')} MPS, " \
                  f"{small_and_large(result, 'decode-{}-x8', 'time_sliced', 1)} time-slicing; one client: " \
                  f"{small_and_large(result, 'decode-{}-x1', 'time_sliced')} its own graph; eight replicas: " \
                  f"{small_and_large(result, 'replicas-{}-x8', 'mps')} MPS"
    yield PAGE, f"the high client makes {rates['concert'][0]:,.0f} steps a second beside seven low ones, " \
                f"{urgent['kept_of_alone']['concert'][0]:.2f} of what it makes alone, " \
                f"{rates['concert'][0] / rates['mps'][0]:.2f}× what it has under MPS; its step takes " \
                f"{latency['concert'][0]['p50']:.0f} µs, one in a hundred more than {latency['concert'][0]['p99']:.0f}, " \
                f"{high['concert']:.2f} times its p99 alone"
    moved = [3 * named(result, name)["share_of_bound"]["concert"] for name in ("decode-1024-x8", "decode-2048-x8")]
    yield PAGE, f"They move {moved[0]:.2f} and {moved[1]:.2f} TB/s, of an H100's bound {moved[0] / 3:.2f} and {moved[1] / 3:.2f}"


def steps_of_others(result):
    one, mps = ([over(result, s["name"], rival) for s in result["scenarios"]] for rival in ("graphs_in_one_process", "mps"))
    yield README, f"{dated(result)}: {min(one):.2f}× to {max(one):.2f}× all graphs in one process, {min(mps):.2f}× to {max(mps):.2f}× MPS"


def steps_of_an_h200(result):
    high = named(result, "high-beside-low")["high_p99_over_solo"]
    yield README, f"H200 {quick_look(result)}: one of the high class beside seven low ones: " \
                  f"{over(result, 'high-beside-low', 'mps'):.2f}× MPS all together (its p99: {high['concert']:.1f}× alone, under MPS " \
                  f"{high['mps']:.1f}×); a prefill beside four: {over(result, 'prefill-beside-decode', 'mps'):.2f}× MPS; " \
                  f"two of 4096: {over(result, 'decode-4096-x2', 'mps'):.2f}× MPS; eight: " \
                  f"{small_and_large(result, 'decode-{}-x8', 'graphs_in_one_process')} all graphs in one process, " \
                  f"{small_and_large(result, 'decode-{}-x8', 'mps')} MPS, " \
                  f"{small_and_large(result, 'decode-{}-x8', 'time_sliced', 1)} time-slicing; one client: " \
                  f"{small_and_large(result, 'decode-{}-x1', 'time_sliced')} its own graph, " \
                  f"{over(result, 'decode-gqa1536-x1', 'time_sliced'):.2f}× of GQA 1536"


def steps_of_replicas(result):
    yield README, f"eight replicas {dated(result)}: {small_and_large(result, 'replicas-{}-x8', 'mps')} MPS"


OF_FILE = {"overhead-h200": overhead, "gemm-h200": gemm, "c3-h200x2": c3, "c3-h100x2": c3, "c3-h100x4": c3,
           "random-tiny-h200": random_sets, "random-small-h200": random_sets, "random-large-h200": random_sets,
           "random-mixed-h200": random_sets,
           "collectives-h200x2": collectives, "collectives-h100x2": collectives, "collectives-h100x4": collectives,
           "tenants-h100": tenants_of_an_h100, "tenants-h200": tenants_of_an_h200, "tenants-shared-h200": tenants_beside_others,
           "tenants-alone-h200": tenants_alone,
           "steps-h100": steps,
           "steps-more-h100": steps_of_others, "steps-h200": steps_of_an_h200,
           "steps-replicas-h200": steps_of_replicas}


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
    texts = {name: " ".join((root / name).read_text(encoding="utf-8").split()) for name in (README, PAGE, SECURITY)}
    return [f"{name} does not say: {phrase}" for name, phrase in headlines(results, attacks) if phrase not in texts[name]]

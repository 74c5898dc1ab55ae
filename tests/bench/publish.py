#!/usr/bin/env python3
"""Publishes result files of concert-bench: their JSON, tables and plots, and what docs/benchmarks/README.md and README.md say of them.

  tests/bench/publish.py RESULTS_DIR           every *.json there: gemm.json becomes docs/benchmarks/gemm-h200.json, ...;
                                               steps.1.json and steps.2.json become one file
  tests/bench/publish.py                       tables, plots and README.md anew, of the files that are there already
  tests/bench/publish.py --check               exit status 1 where README.md and the tables do not say what the files do,
                                               or a sentence elsewhere that headlines.py knows

docs/benchmarks/model/ has what the simulator makes of a suite (predict_overlap --out), of which a table against the measured
file of the same name is written, too.

A quick look, a modelled result, one with failed scenarios or of uncommitted code is refused; --quick-look publishes the
first all the same, and every table of it says what it is. One current file a suite: git keeps the old ones. Needs
matplotlib for the plots (Debian: python3-matplotlib).
"""
import argparse
import json
import pathlib
import re
import sys

import at_a_glance
import headlines
import report
import report_data
import report_model
import report_parts
from report_data import losses_of, summary_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/benchmarks"
MODELLED = "model"  # below DOCS: results of predict_overlap, each named as the measured file that it is held against
SHOWN_LOSSES = 10  # of a file; its table has all of them
PLOTS = {"": "plot", "-summary": "summary", "-latency": "latencies"}  # what report_plots.py draws
BLOCK = "<!-- {0}: written by tests/bench/publish.py -->\n{1}<!-- end of {0} -->\n"


def published_name(stem, result):
    """gemm of one "NVIDIA H200": gemm-h200; of two "NVIDIA H100 80GB HBM3": gemm-h100x2."""
    header = result["header"]
    gpu = report_data.gpu_of(result) + (f"x{header['gpus']}" if header["gpus"] > 1 else "")
    return stem if stem.endswith("-" + gpu) else f"{stem}-{gpu}"


def objection(result, allow_quick_look):
    """Why this may not be published; empty: it may."""
    header = result["header"]
    if header["device"] != "cuda":
        return "it is modelled"
    if "dirty" in header["commit"] or header["commit"] == "unknown":
        return f"its commit is {header['commit']}"
    if result["summary"].get("failed"):
        return f"scenarios failed: {[entry['name'] for entry in result['summary']['failed']]}"
    if report_data.is_quick_look(result) and not allow_quick_look:
        return f"it is a quick look of {report_data.rounds_of(result)} rounds; at least " \
               f"{report_data.ROUNDS_TO_PUBLISH} are wanted (--quick-look publishes it all the same)"
    return ""


def publish(folder, docs, allow_quick_look):
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise SystemExit(f"{folder} has no *.json")
    parts = {}
    for path in paths:
        result = report_data.read(path)
        if why := objection(result, allow_quick_look):
            raise SystemExit(f"{path} is not for publication: {why}")
        parts.setdefault(report_parts.suite_stem(path), []).append(result)
    try:
        results = {stem: report_parts.joined(of_suite) for stem, of_suite in parts.items()}
    except ValueError as error:
        raise SystemExit(f"{folder}: {error}") from None
    for stem, result in results.items():
        target = docs / published_name(stem, result)
        target.with_suffix(".json").write_text(report_data.dump(result), encoding="utf-8")
        report.write(result, target, plots=True)
        print(f"{target}.json")


def results_in(docs):
    """Of concert-bench; what micro-benchmarks leave there has no schema."""
    return {path.stem: report_data.read(path) for path in sorted(docs.glob("*.json"))
            if "schema" in json.loads(path.read_text(encoding="utf-8"))}


def model_tables(docs):
    """What the simulator makes of a suite, against the measured file of that name: path and text."""
    return {docs / f"{path.stem}-model.md":
            "\n".join(report_model.table(report_data.read(docs / path.name), report_data.read(path))) + "\n"
            for path in sorted((docs / MODELLED).glob("*.json"))}


def identity(result):
    header = result["header"]
    return f"{'; '.join(report.short_caveats(result) + [''])}commit {header['commit'][:12]}, {header['date'][:10]}"


def losses_block(results):
    """What concert loses, the worst first: nobody should have to look for it."""
    lines = []
    for name, result in results.items():
        losses = losses_of(result)
        count = f"{len(losses)} losses" if losses else "no loss"
        shown = f", the worst {SHOWN_LOSSES}:" if len(losses) > SHOWN_LOSSES else ":" if losses else "."
        lines += [f"**[`{name}`]({name}.md)** ({identity(result)}): {count}{shown}", ""]
        if losses:
            lines += report.loss_table(losses[:SHOWN_LOSSES]) + [""]
    return "\n".join(lines)


def in_short(result):
    if result["suite"] == "overhead":
        return "; ".join(f"`{s['name']}` adds {s['added_us']['p50']:.1f} µs at p50, {s['added_us']['p99']:.1f} at p99"
                         for s in result["scenarios"])
    ratios = summary_of(result)
    shares = result["summary"].get("share_of_ideal", {}).get("concert", {})
    share = f"; {100 * shares['mean']:.0f} % of the ideal gain" if shares else ""
    said = [f"{geomean:.2f}× `{rival}` ({worst:.2f}× at worst)" for rival, (geomean, worst, _) in ratios.items()]
    return f"{len(result['scenarios'])} scenarios; geomean " + ", ".join(said) + share


def files_block(results, docs):
    rows = []
    for name, result in results.items():
        links = [f"[{name}.json]({name}.json)", f"[table]({name}.md)"]
        links += [f"[{what}]({name}{suffix}.svg)" for suffix, what in PLOTS.items() if (docs / f"{name}{suffix}.svg").exists()]
        rows.append([", ".join(links), identity(result), in_short(result)])
    return "\n".join(report.table_of(["file", "measured", "in short"], rows, text_columns=3)) + "\n"


def with_blocks(path, blocks):
    """What the file is to say."""
    text = path.read_text(encoding="utf-8")
    for name, content in blocks.items():
        pattern = re.compile(rf"<!-- {name}: .*?<!-- end of {name} -->\n", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{path} must have one block '{name}'")
        text = pattern.sub(lambda _, block=BLOCK.format(name, content): block, text)
    return text


def pages(docs, results):
    """The pages with blocks of their own: path and text. README.md speaks of DOCS only."""
    said = {docs / "README.md": with_blocks(docs / "README.md", {"losses": losses_block(results),
                                                                 "files": files_block(results, docs)})}
    if docs == DOCS:
        said[ROOT / "README.md"] = with_blocks(ROOT / "README.md", {"results": at_a_glance.table(results)})
    return said


def stale(docs):
    """Files that do not say what the results do."""
    results = results_in(docs)
    said = pages(docs, results)
    for name, result in results.items():
        said[docs / f"{name}.md"] = "\n".join(report.table(result)) + "\n"
        said[docs / f"{name}.json"] = report_data.dump(result)
    said |= model_tables(docs)
    return [str(path) for path, text in said.items()
            if not path.exists() or path.read_text(encoding="utf-8") != text]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path, default=DOCS)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick-look", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        names = stale(arguments.docs)
        for name in names:
            print(f"{name} does not say what the results do: run tests/bench/publish.py")
        wrong = headlines.unsaid(ROOT, results_in(DOCS)) if arguments.docs == DOCS else []
        print("".join(f"{line}\n" for line in wrong), end="")
        return 1 if names or wrong else 0
    if arguments.results:
        publish(arguments.results, arguments.docs, arguments.quick_look)
    results = results_in(arguments.docs)
    if not arguments.results:
        for name, result in results.items():
            report.write(result, arguments.docs / name, plots=True)
    if arguments.docs == DOCS:
        at_a_glance.write(results, DOCS)
    for path, text in (model_tables(arguments.docs) | pages(arguments.docs, results)).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What the project promises about its own files, checked as a test.

Works on the files that git tracks or would track; without git, on all files but build/.
"""

import json
import os
import re
import subprocess
import sys
from glob import glob

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOMS = ("proto", "policies", "kernels", "client", "daemon", "tests")

# Which rooms a room may include: the same arrows as deploy/cmake/ConcertLibrary.cmake.
MAY_INCLUDE = {
    "proto": set(),
    "policies": set(),
    "kernels": {"proto", "policies"},
    "client": {"proto"},
    "daemon": {"proto", "policies", "kernels"},
    "tests": set(ROOMS),
}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100
MAX_PLOT_BYTES = 40_000  # of what tests/bench/publish.py draws
MAX_PICTURE_BYTES = 300_000
# Diagrams and tables of the ABI, which clang-format would tear apart.
WIDE_COLUMNS = {"proto/ring/": 120}
# Functions that are tables, a row for each case.
TABLES = {"daemon/quota/resource.cc", "tests/unit/kernels/admit_test.cc", "tests/unit/policies/measured_groups.h"}
# Raw strings that hold a program's output as its users see it.
GOLDEN_OUTPUT = {"tests/unit/ctl/render_test.cc", "tests/bench/result_file_test.cc"}

TEXT = (".h", ".cc", ".c", ".cu", ".cuh", ".hpp", ".md", ".py", ".sh", ".txt", ".cmake", ".json",
        ".toml", ".in", ".proto", ".svg", ".js", ".css", ".html")
# Folders of one person's or one site's machine. Split so that this file does not match itself.
MACHINE_PATHS = re.compile(r"(?<![\w.$}/-])/(?:" + "work|home|root|Users|mnt|data" + r")/\w")
URL_HOST = re.compile(r"(?:https?|git|ssh)://(?:[\w.-]+@)?([\w.-]+)")
PUBLIC_HOSTS = ("apache.org", "example", "example.com", "github.com", "grpc.io", "kernel.org",
                "keepachangelog.com", "localhost", "127.0.0.1", "matplotlib.org", "nvidia.com", "perfetto.dev", "purl.org", "semver.org",
                "creativecommons.org", "w3.org")
BUDGET = re.compile(r"\bk\w*Per(?:Turn|Step|Look)\s*=\s*\d")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# `daemon/sched/{a,b}.cc`, `kernels/gemm/`: names of files in prose are promises, too.
PATH_IN_PROSE = re.compile(r"`((?:proto|policies|kernels|client|daemon|tests|deploy|docs)/[\w./{},*-]+)`")


def tracked_files():
    try:
        out = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                             check=True, capture_output=True, text=True).stdout
        names = out.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(folder, name), ROOT)
                 for folder, _, files in os.walk(ROOT) for name in files]
        names = [name for name in names if not name.startswith((".git/", "build/"))]
    return sorted(name for name in set(names) if os.path.isfile(os.path.join(ROOT, name)))


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def room_of(name):
    return name.split("/", 1)[0]


def includes(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match or room_of(match[1]) not in ROOMS:
            continue
        target = room_of(match[1])
        if target != room_of(name) and target not in MAY_INCLUDE[room_of(name)]:
            yield f"{name}:{number}: {room_of(name)}/ may not include {match[1]}"


def sizes(name, text):
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield f"{name}: {len(lines)} lines; at most {MAX_FILE_LINES}: split it by subject"
    if name in GOLDEN_OUTPUT:
        return
    limit = next((wide for prefix, wide in WIDE_COLUMNS.items() if name.startswith(prefix)),
                 MAX_COLUMNS)
    for number, line in enumerate(lines, 1):
        if len(line) > limit:
            yield f"{name}:{number}: {len(line)} columns; at most {limit}"


def budgets(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if BUDGET.search(line):
            yield f"{name}:{number}: what is done per turn is a row of daemon/quota/budget.h"


def places(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATHS.search(line):
            yield f"{name}:{number}: a path of one machine: {line.strip()[:80]}"
        for host in URL_HOST.findall(line):
            if not host.endswith(PUBLIC_HOSTS):
                yield f"{name}:{number}: host {host} is not in PUBLIC_HOSTS of tests/tidy.py"


def expand_braces(path):
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [whole for part in match[1].split(",")
            for whole in expand_braces(path[:match.start()] + part + path[match.end():])]


def without_code_blocks(text):
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text,
                  flags=re.DOTALL | re.MULTILINE)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", without_code_blocks(text), re.M)}


def links(name, text):
    for number, line in enumerate(without_code_blocks(text).splitlines(), 1):
        for target in LINK.findall(line):
            if re.match(r"\w+:", target):
                continue
            path, _, anchor = target.partition("#")
            full = os.path.join(ROOT, os.path.dirname(name), path) if path else os.path.join(ROOT, name)
            if not os.path.exists(full):
                yield f"{name}:{number}: link to {target}, which does not exist"
            elif anchor and full.endswith(".md"):
                with open(full, encoding="utf-8") as file:
                    if anchor not in anchors(file.read()):
                        yield f"{name}:{number}: link to {target}: no such heading"
        for path in PATH_IN_PROSE.findall(line):
            for one in expand_braces(path):
                if not glob(os.path.join(ROOT, one.replace("KIND", "*"))):
                    yield f"{name}:{number}: names `{one}`, which does not exist"


def light(name, text):
    """What is measured is published again and again: a plot has a limit, and a result file a line per scenario."""
    limit = MAX_PICTURE_BYTES if name.endswith(".png") else MAX_PLOT_BYTES
    if name.endswith((".svg", ".png")) and (size := os.path.getsize(os.path.join(ROOT, name))) > limit:
        yield f"{name}: {size} bytes; at most {limit}"
    if not re.fullmatch(r"docs/benchmarks/[^/]+\.json", name):
        return
    result = json.loads(text)
    if "schema" not in result:  # not of concert-bench
        return
    lines = [json.loads(line.strip().rstrip(",")) for line in text.splitlines() if line.startswith('  {"')]
    if lines != result["scenarios"]:
        yield f"{name}: not one scenario a line: tests/bench/publish.py writes it so"


def long_functions(name, text):
    """Counts from the line where a definition starts to its closing brace, both at the same indentation."""
    if name in TABLES:
        return
    start, reported = {}, 0  # by indentation: the last line there, which a brace that follows closes
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or line.startswith("#") or indent > 2:
            continue
        head, what = start.get(indent, (0, ""))
        if line.strip() != "}":
            start[indent] = number, line.strip()
        elif not re.match(r"(namespace|class|struct|union|enum|extern)\b", what) and head > reported:
            length = number - head + 1
            if length > MAX_FUNCTION_LINES:
                reported = number
                yield f"{name}:{head}: a function of {length} lines; at most {MAX_FUNCTION_LINES}"


def main():
    findings = []
    for name in tracked_files():
        code = room_of(name) in ROOMS and name.endswith((".h", ".cc", ".c", ".cu", ".cuh", ".hpp"))
        if not (name.endswith((*TEXT, ".png")) or os.access(os.path.join(ROOT, name), os.X_OK)):
            continue
        text = read(name)
        findings += places(name, text)
        if code:
            findings += includes(name, text)
        if name.startswith("daemon/"):
            findings += budgets(name, text)
        if name.endswith((".js", ".css")):
            findings += sizes(name, text)
        if code and name.endswith((".h", ".cc", ".cu", ".cuh")):
            findings += sizes(name, text)
            findings += long_functions(name, text)
        findings += light(name, text)
        if name.endswith(".md"):
            findings += links(name, text)
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

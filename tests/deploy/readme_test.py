#!/usr/bin/env python3
"""README's example is the program that the build compiles, and the first block of client.md is what that does; no sample
drops a ticket, CONTRIBUTING.md names every label of the build's tests, and tuning.md the store's versions.

  readme_test.py BUILD_DIR
"""

import pathlib
import re
import subprocess
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parents[2]


def blocks(document):
    return re.findall(r"^```cpp\n(.*?)^```", (root / document).read_text(), re.DOTALL | re.MULTILINE)


contributing = (root / "CONTRIBUTING.md").read_text()
named = re.findall(r"`(\w+)`", contributing[contributing.index("Labels, for `ctest -L`"):].split("\n\n")[0])
labels = subprocess.run(["ctest", "--print-labels"], cwd=sys.argv[1], check=True, capture_output=True, text=True).stdout
if missing := set(labels.split("All Labels:")[1].split()) - set(named):
    sys.exit(f"CONTRIBUTING.md does not name the labels {sorted(missing)}")

# The sample of `tune status` is of this code's store.
environment = (root / "daemon/tuning/environment.h").read_text()
schema, measurement, collectives = (re.search(rf"{name} = (\d+);", environment)[1] for name in (
    "kStoreSchemaVersion", "kMeasurementVersion", "kCollectiveMeasurementVersion"))
for line in (f"schema {schema}, measurement {measurement})", f"schema {schema}, measurement of collectives {collectives})"):
    if line not in (root / "docs/tuning.md").read_text():
        sys.exit(f"docs/tuning.md's sample of `concertctl tune status` does not say: {line}")

# A ticket is [[nodiscard]].
for document in ["README.md", *(str(path.relative_to(root)) for path in (root / "docs").glob("*.md"))]:
    for dropped in re.findall(r"^ *(?:\w+\.)*queue(?:\(\))?\.\w+\(.*", "".join(blocks(document)), re.MULTILINE):
        if not dropped.endswith(".Check();"):
            sys.exit(f"{document} drops a ticket: {dropped}")

program = (root / "client/examples/minimal.cc").read_text()
if blocks("README.md") != [program]:
    sys.exit("README.md must hold one cpp block that equals client/examples/minimal.cc; "
             "copy the file there")
body = textwrap.dedent(re.search(r"^int main\(\) \{\n(.*?)^\}", program, re.DOTALL | re.MULTILINE)[1])
if blocks("docs/client.md")[0] != body:
    sys.exit("the first cpp block of docs/client.md must be what main() of client/examples/minimal.cc does")

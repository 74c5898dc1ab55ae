#!/usr/bin/env python3
"""docs/tutorial.md does what it says: its programs are the examples, and its commands, run from top to bottom in one
shell with a home of its own, print what stands below them ("..." is anything).

  tutorial_test.py
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = {"cpp": "two_layers.cc", "python": "two_layers.py", "c": "tensor_parallel.c"}
MARK = "@@ command %d @@"


def blocks(language):
    text = (ROOT / "docs/tutorial.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands():
    """Pairs of a command and the lines that it must print."""
    pairs = []
    for block in blocks("console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                pairs.append((line[2:], []))
            else:
                pairs[-1][1].append(line)
    return pairs


def matches(expected, printed):
    pattern = "\n".join(re.escape(line).replace(re.escape("..."), ".*") for line in expected)
    return re.fullmatch(pattern, printed.strip()) is not None


def run(pairs, home):
    script = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for i, (command, _) in enumerate(pairs):
        script += [f"echo; echo '{MARK % i}'", command]
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("CONCERT_") and name not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH")}
    environment["HOME"] = home
    shell = subprocess.run(["bash", "-c", "\n".join(script)], cwd=ROOT, env=environment, timeout=100, check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    printed = re.split(r"^@@ command \d+ @@$", shell.stdout, flags=re.MULTILINE)[1:]
    for (command, expected), lines in zip(pairs, printed):
        if not matches(expected, lines):
            sys.exit(f"$ {command}\nprinted:\n{lines.strip()}\ninstead of:\n" + "\n".join(expected))
    if shell.returncode != 0 or len(printed) != len(pairs):
        sys.exit(f"$ {pairs[len(printed) - 1][0]}\nfailed with {shell.returncode}:\n{printed[-1].strip()}")


def main():
    for language, example in EXAMPLES.items():
        if blocks(language) != [(ROOT / "client/examples" / example).read_text()]:
            sys.exit(f"docs/tutorial.md must hold one {language} block, client/examples/{example}; copy the file there")
    with tempfile.TemporaryDirectory(prefix="concert-tutorial.") as home:
        run(commands(), home)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""docs/architecture.md's list of the files that an op kind touches is what two of them do touch."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("proto", "policies", "kernels", "client", "daemon")
EXAMPLES = ROOT / "client/examples"  # a kind needs none
SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh", ".py", ".txt", ".proto"}


def listed(kind):
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("### An op kind, file by file", 1)[1]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    names = [name.replace("KIND", kind) for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return {file for name in names for file in files_of(name)}


def files_of(name):
    path = ROOT / name
    if path.is_dir():
        return {str(file.relative_to(ROOT)) for file in path.iterdir()}
    return {name}


def named_in(kind):
    """Files of the product that name the kind, in any of the ways in which names are written."""
    word = re.compile(kind.replace("_", "_?"), re.IGNORECASE)
    return {str(file.relative_to(ROOT)) for room in ROOMS for file in (ROOT / room).rglob("*")
            if file.suffix in SUFFIXES and EXAMPLES not in file.parents and word.search(file.read_text())}


problems = []
for kind in ("rms_norm", "gated_activation"):
    wanted, found = listed(kind), named_in(kind)
    problems += [f"{file} names {kind}; list it" for file in sorted(found - wanted)]
    problems += [f"{file} is listed, but does not name {kind}" for file in sorted(wanted - found)]
if problems:
    sys.exit("docs/architecture.md, An op kind, file by file:\n" + "\n".join(problems))

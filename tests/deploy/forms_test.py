#!/usr/bin/env python3
"""docs/architecture.md's forms of a GEMM and of a launch: each is defined where it says, and there are few."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("proto", "policies", "kernels", "client", "daemon")
MOST_OF_A_GEMM, MOST_OF_A_LAUNCH = 8, 3


def tables():
    text = (ROOT / "docs/architecture.md").read_text()
    section = re.split(r"^##", text.split("### What a GEMM and a launch are on their way", 1)[1], flags=re.MULTILINE)[0]
    return [[[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()[2:]]
            for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)]


def types_in(cell):
    return [name for name in re.findall(r"`(\w+(?:::\w+)*)`", cell)]


def sources(path):
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in (".h", ".hpp", ".cc", ".py")]


def defined(name, paths):
    """A::b is a member or a type b somewhere behind the definition of A."""
    outer, *members = name.split("::")
    patterns = [rf"\b(struct|class)( alignas\(\w+\))? {outer}\b"] + [rf"\b{member}\b" for member in members]
    texts = [file.read_text() for path in paths for file in sources(path)]
    return any(all(re.search(pattern, text) for pattern in patterns) for text in texts)


gemm, launch, others = tables()
problems = []
for forms, most, what in ((gemm, MOST_OF_A_GEMM, "GEMM"), (launch, MOST_OF_A_LAUNCH, "launch")):
    if len(forms) > most:
        problems.append(f"a {what} has {len(forms)} forms; {most} are the most")
    for form, where, _ in forms:
        paths = [ROOT / path for path in re.findall(r"`([^`]+)`", where)]
        problems += [f"{name} is not defined in {where}" for name in types_in(form) if not defined(name, paths)]
for _, types in others:
    problems += [f"{name} is defined nowhere" for name in types_in(types)
                 if not defined(name, [ROOT / room for room in ROOMS])]
if problems:
    sys.exit("docs/architecture.md, What a GEMM and a launch are on their way:\n" + "\n".join(problems))

"""docs/python.md: its blocks run, in order, and print what it says; and so does its benchmark."""

import doctest
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "python.md"


def test_the_manuals_blocks_run(daemon, capsys):
    text = MANUAL.read_text()
    names = {}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)  # not by -v
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert len(blocks) >= 12
    assert blocks[0][1] == (ROOT / "client" / "examples" / "minimal.py").read_text()
    for block in blocks:
        line = text[:block.start(1)].count("\n")
        if ">>>" in block[1]:
            test = doctest.DocTestParser().get_doctest(block[1], names, "manual", str(MANUAL), line)
            runner.run(test, clear_globs=False)
            names = test.globs
        else:
            exec(compile("\n" * line + block[1], str(MANUAL), "exec"), names)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out
    assert capsys.readouterr().out == "y[0] = 16\n"


def test_the_benchmark_runs(daemon):
    told = subprocess.run(
        [sys.executable, ROOT / "tests" / "bench" / "python_overhead.py", "--rounds=2"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "client" / "python")},
        check=True, capture_output=True, text=True, timeout=120).stdout
    assert len(re.findall(r"median +\d+\.\d\d   least +\d+\.\d\d$", told, re.MULTILINE)) == 4

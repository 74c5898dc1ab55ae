"""The package passes mypy --strict, so that what it tells users' type checkers is right."""

import pathlib
import subprocess
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "client" / "python"


def test_mypy(tmp_path):
    checked = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "concert",
                              "generate.py"], cwd=PACKAGE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr

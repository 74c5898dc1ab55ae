"""Who imports PyTorch: concert.torch only, which says what it lacks. Needs no PyTorch."""

import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "client" / "python"


def run(code, folder=None):
    paths = [str(PACKAGE)] if folder is None else [str(folder), str(PACKAGE)]
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})


def test_concert_imports_no_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    told = run("import concert, sys; assert 'torch' not in sys.modules", tmp_path)
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("stub, sentence", [
    ("raise ImportError('none')",
     "ImportError: concert.torch needs PyTorch 2.6 or newer and there is none: pip install torch"),
    ("__version__ = '2.5.1+cu121'",
     "ImportError: concert.torch needs PyTorch 2.6 or newer and this is 2.5.1+cu121: "
     "pip install --upgrade torch"),
])
def test_a_missing_or_old_one_is_said(tmp_path, stub, sentence):
    (tmp_path / "torch.py").write_text(stub)
    told = run("import concert.torch", tmp_path)
    assert told.stderr.splitlines()[-1] == sentence

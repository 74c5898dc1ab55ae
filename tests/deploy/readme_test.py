#!/usr/bin/env python3
"""README's example is the program that the build compiles."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
blocks = re.findall(r"^```cpp\n(.*?)^```", (root / "README.md").read_text(), re.DOTALL | re.MULTILINE)
program = (root / "client/examples/minimal.cc").read_text()
if blocks != [program]:
    sys.exit("README.md must hold one cpp block that equals client/examples/minimal.cc; "
             "copy the file there")

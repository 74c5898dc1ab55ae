#!/usr/bin/env python3
"""Draws docs/trace.png anew: the page of a trace, an op selected.

  picture.py BIN_DIR FILE.png [TRACE]   TRACE: of `concertctl trace`; unless given, of the demo's clients on the simulator
"""

import subprocess
import sys
import tempfile

import browser
import recording

FOUND = "group together"  # ops that share a launch, and why
ZOOM_OUT = 6


def main():
    programs, picture, *recorded = sys.argv[1:]
    if browser.find() is None:
        sys.exit("there is no Chromium; `tests/run --browser` installs one, $CONCERT_BROWSER names one")
    with tempfile.TemporaryDirectory(prefix="concert-picture.") as folder:
        trace = recorded[0] if recorded else recording.record(programs, folder, steps=1000)[0]
        page = f"{folder}/trace.html"
        subprocess.run([f"{programs}/concertctl", "trace", "html", trace, "--out", page], check=True,
                       env=recording.ENVIRONMENT, stdout=subprocess.DEVNULL)
        with browser.Browser(browser.find(), width=1200, height=640) as shown:
            shown.open(page)
            shown.run("document.getElementById('find').select()")
            shown.type(FOUND)
            # One of middle length: the longest are what went wrong.
            shown.run("""const micros = (op) => Number((/ ([\\d.]+) us,/.exec(op.innerText) || [0, 0])[1]);
                const found = Array.from(document.querySelectorAll('#results button'));
                found.sort((one, other) => micros(one) - micros(other))[found.length >> 1].click()""")
            shown.run("document.getElementById('find').select()")
            shown.type("")
            shown.key("Escape")  # out of the field; what is selected stays
            for _ in range(ZOOM_OUT):
                shown.key("s")
            with open(picture, "wb") as file:
                file.write(shown.picture())


if __name__ == "__main__":
    main()

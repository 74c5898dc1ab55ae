#!/usr/bin/env python3
"""Draws docs/top.svg anew: the screen of `concertctl top` while clients keep a simulated node busy.

  top_picture.py BIN_DIR FILE.svg
"""

import itertools
import re
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from pty_screen import PtyScreen  # noqa: E402
from sim_daemon import ENVIRONMENT, SimDaemon  # noqa: E402

ROWS, COLUMNS = 26, 100
INTERVAL_MS = 200
CLIENTS = (
    ("server-a", "32x256x128,32x128x256", 0),
    ("server-b", "16x192x192,16x512x128,16x128x128", 0),
    ("embedder", "64x128x128", 0),
    ("trainer", "128x256x256", 1),
    ("Köln", "16x64x64", 1),
)

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.4, 17, 14  # pixels
MARGIN = 12
BACKGROUND, PLAIN, BOLD = "#16181d", "#c8ccd4", "#ffffff"
COLOURS = {"red": "#f0616d", "green": "#7fc77f", "brown": "#e0b15a", "blue": "#6ea8fe", "magenta": "#c792ea",
           "cyan": "#5fc9c9"}  # as pyte calls them
BLOCKS = "▁▂▃▄▅▆▇█"  # drawn as rectangles, since fonts have them in other sizes


def look(cell):
    """The colours of a cell's character and of what is behind it."""
    colour = COLOURS.get(cell.fg, BOLD if cell.bold else PLAIN)
    return (BACKGROUND, PLAIN) if cell.reverse else (colour, None)


def text(row, column, columns, letters, colour):
    x, y = MARGIN + column * CELL_WIDTH, MARGIN + row * CELL_HEIGHT + FONT_SIZE - 1
    return (f'<text x="{x:.1f}" y="{y}" fill="{colour}" textLength="{columns * CELL_WIDTH:.1f}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(letters)}</text>')


def rectangle(row, column, columns, colour, share=1.0):
    height = CELL_HEIGHT * share
    return (f'<rect x="{MARGIN + column * CELL_WIDTH:.1f}" y="{MARGIN + (row + 1) * CELL_HEIGHT - height:.1f}" '
            f'width="{columns * CELL_WIDTH:.1f}" height="{height:.1f}" fill="{colour}"/>')


def draw_line(row, cells):
    """Runs of cells that look alike; of what stands in them, words by themselves, so that each begins where it should."""
    for (colour, behind), run in itertools.groupby(enumerate(cells), key=lambda entry: look(entry[1])):
        run = list(run)
        if behind:
            yield rectangle(row, run[0][0], len(run), behind)
        # The second cell of a wide character is empty: "\0" keeps its place.
        letters = "".join(cell.data[:1] or "\0" for _, cell in run)
        for at, letter in enumerate(letters):
            if letter in BLOCKS:
                yield rectangle(row, run[at][0], 1, colour, (BLOCKS.index(letter) + 1) / len(BLOCKS))
        for word in re.finditer(rf"[^ {BLOCKS}]+", letters):
            yield text(row, run[word.start()][0], len(word[0]), word[0].replace("\0", ""), colour)


def draw(lines):
    width, height = 2 * MARGIN + COLUMNS * CELL_WIDTH, 2 * MARGIN + ROWS * CELL_HEIGHT
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
           f'height="{height}" font-family="monospace" font-size="{FONT_SIZE}">')
    yield "<title>concertctl top on simulated GPUs</title>"
    yield f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>'
    for row, cells in enumerate(lines):
        yield from draw_line(row, cells)
    yield "</svg>"


def main():
    programs, picture = sys.argv[1:]
    running = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = SimDaemon(programs, folder)
        try:
            for client in CLIENTS:
                running.append(daemon.demo(*client))
            terminal = PtyScreen([f"{programs}/concertctl", "--socket", daemon.admin, "top", "-i", str(INTERVAL_MS)],
                                 ROWS, COLUMNS, ENVIRONMENT)
            terminal.wait_for(lambda shown: re.search(r"[▁-█]{80}", shown), "a past")
            Path(picture).write_text("\n".join(draw(terminal.cells())) + "\n", encoding="utf-8")
            terminal.kill()
        finally:
            for client in running:
                client.kill()
                client.wait()
            daemon.stop()


if __name__ == "__main__":
    main()

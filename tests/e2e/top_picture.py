#!/usr/bin/env python3
"""Draws docs/top.svg anew: the screen of `concertctl top` while clients keep a node busy.

  top_picture.py BIN_DIR FILE.svg [DEVICE]   DEVICE: sim, unless given, or cuda
"""

import itertools
import re
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from pty_screen import PtyScreen  # noqa: E402
from private_daemon import ENVIRONMENT, PrivateDaemon  # noqa: E402

ROWS, COLUMNS = 26, 100
INTERVAL_MS = 200
CLIENTS = {
    "sim": (
        ("server-a", "32x256x128,32x128x256", 0),
        ("server-b", "16x192x192,16x512x128,16x128x128", 0),
        ("embedder", "64x128x128", 0),
        ("trainer", "128x256x256", 1),
        ("Köln", "16x64x64", 1),
    ),
    "cuda": (
        ("server-a", "32x4096x1024,32x1024x4096", 0),
        ("server-b", "16x2048x2048,16x8192x2048,16x2048x8192", 0),
        ("embedder", "512x1024x1024", 0),
        ("trainer", "2048x4096x4096", 0),
        ("Köln", "8x1024x1024", 0),
    ),
}

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8, 16, 13.3  # pixels; a letter of most fonts is 0.6 of its size wide
MARGIN = 12
BACKGROUND, PLAIN, BOLD = "#16181d", "#c8ccd4", "#ffffff"
COLOURS = {"red": "#f0616d", "green": "#7fc77f", "brown": "#e0b15a", "blue": "#6ea8fe", "magenta": "#c792ea",
           "cyan": "#5fc9c9"}  # as pyte calls them
NUL = "\0"
BLOCKS = "▁▂▃▄▅▆▇█"  # drawn as paths, since fonts have them in other sizes
WORDS = re.compile(rf"[^ {BLOCKS}]+(?: {{1,2}}[^ {BLOCKS}]+)*")


def look(cell):
    """The colours of a cell's character and of what is behind it."""
    colour = COLOURS.get(cell.fg, BOLD if cell.bold else PLAIN)
    return (BACKGROUND, PLAIN) if cell.reverse else (colour, None)


def text(row, column, letters, colour):
    """In its cells, whatever the font: textLength. The second cell of a wide character is empty here: NUL."""
    x, y = MARGIN + column * CELL_WIDTH, MARGIN + row * CELL_HEIGHT + 12
    fill = "" if colour == PLAIN else f' fill="{colour}"'
    return (f'<text x="{x}" y="{y}"{fill} textLength="{len(letters) * CELL_WIDTH}">'
            f'{escape(letters.replace(NUL, ""))}</text>')


def columns(row, column, shares, colour):
    """As many cells beside each other, each full from below to its share."""
    bottom = MARGIN + (row + 1) * CELL_HEIGHT
    path = f"M{MARGIN + column * CELL_WIDTH} {bottom}"
    for share in shares:
        path += f"V{bottom - share * CELL_HEIGHT:g}h{CELL_WIDTH}"
    return f'<path d="{path}V{bottom}" fill="{colour}"/>'


def draw_line(row, cells):
    for (colour, behind), run in itertools.groupby(enumerate(cells), key=lambda entry: look(entry[1])):
        run = list(run)
        first = run[0][0]
        if behind:
            yield columns(row, first, [1] * len(run), behind)
        letters = "".join(cell.data[:1] or NUL for _, cell in run)
        for plot in re.finditer(f"[{BLOCKS}]+", letters):
            shares = [(BLOCKS.index(letter) + 1) / len(BLOCKS) for letter in plot[0]]
            yield columns(row, first + plot.start(), shares, colour)
        for words in WORDS.finditer(letters):
            yield text(row, first + words.start(), words[0], colour)


def draw(lines):
    width, height = 2 * MARGIN + COLUMNS * CELL_WIDTH, 2 * MARGIN + ROWS * CELL_HEIGHT
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'height="{height}" font-family="monospace" font-size="{FONT_SIZE}" fill="{PLAIN}">')
    yield "<style>text{white-space:pre}</style>"
    yield "<title>concertctl top</title>"
    yield f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>'
    for row, cells in enumerate(lines):
        yield from draw_line(row, cells)
    yield "</svg>"


def main():
    programs, picture, *device = sys.argv[1:]
    device = device[0] if device else "sim"
    running = []
    with tempfile.TemporaryDirectory() as folder:
        daemon = PrivateDaemon(programs, folder, device)
        try:
            for client in CLIENTS[device]:
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

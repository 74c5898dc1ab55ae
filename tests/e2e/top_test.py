#!/usr/bin/env python3
"""concertctl top in a pseudo-terminal, against a real concertd on the simulator: what is on the screen, what keys do, other
sizes of the window, and the end.

  top_test.py BIN_DIR

What stands on the screen when the daemon always says the same is compared with tests/e2e/top_screen.txt, to the cell and
its colour; CONCERT_UPDATE_GOLDEN=1 writes that file anew.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unicodedata
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from pty_screen import PtyScreen  # noqa: E402
from private_daemon import ENVIRONMENT, PrivateDaemon  # noqa: E402

GOLDEN = Path(__file__).resolve().parent / "top_screen.txt"
COLOURS = {"red", "green", "brown", "blue", "magenta", "cyan"}  # as pyte calls them


def open_session(daemon, name):
    """A session whose client calls itself `name`, up to 63 bytes, and does nothing: a Hello of proto/ring/control_abi.h."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(30)
    client.connect(daemon.socket)
    hello = struct.pack("<IHHII HHIQQ 64s", 0x54434E43, 1, 104, 1, 0, 1, 0, 0, 0, 0, name)
    client.send(hello)
    reply, fds, _, _ = socket.recv_fds(client, 4096, 64)
    for fd in fds:
        os.close(fd)
    status, = struct.unpack_from("<I", reply, 16)
    assert status == 0, reply[24:]
    return client


def listed(text):
    """The names of the sessions in the list, from the top."""
    lines = text.split("\n")
    titles = next(i for i, line in enumerate(lines) if line.startswith("SESSION "))
    at = lines[titles].index("CLIENT")
    names = []
    for line in lines[titles + 1:-1]:
        if line.strip():
            names.append(line[at:].split(" ")[0])
    return names


def letters(cells):
    """How each cell looks, a letter each: its colour's first, a capital one where it is bold; "*": bold in none; "#": reverse; "-": plain."""
    def letter(cell):
        if cell.reverse:
            return "#"
        if not cell.data.strip():  # of what colour is ncurses' choice
            return " "
        if cell.fg == "default":
            return "*" if cell.bold else "-"
        return cell.fg[0].upper() if cell.bold else cell.fg[0]
    return "\n".join("".join(letter(cell) for cell in line).rstrip() for line in cells)


class GoldenTest(unittest.TestCase):
    """Against an admin API that always says the same."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = f"{folder.name}/admin.sock"
        server = subprocess.Popen([BIN / "fixed_admin", self.socket], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        self.assertEqual(server.stdout.readline(), "serving\n")

    def test_every_cell(self):
        # The server falls silent after what it has to say.
        terminal = PtyScreen([BIN / "concertctl", "--socket", self.socket, "--timeout-ms", "60000", "top"], 24, 80,
                             ENVIRONMENT)
        self.addCleanup(terminal.kill)
        expected = GOLDEN.read_text() if GOLDEN.exists() else ""

        def shown():
            return f"{terminal.text()}\n\n{letters(terminal.cells())}\n"

        if os.environ.get("CONCERT_UPDATE_GOLDEN"):
            terminal.wait_for(lambda _: False, wait_s=2, fail=False)
            GOLDEN.write_text(shown())
            return
        terminal.wait_for(lambda _: shown() == expected, wait_s=20, fail=False)
        self.maxDiff = None
        self.assertEqual(shown(), expected)


class TopTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.daemon = PrivateDaemon(BIN, folder.name)
        self.addCleanup(self.daemon.stop)

    def top(self, rows=24, columns=80, arguments=(), environment=None):
        terminal = PtyScreen([BIN / "concertctl", "--socket", self.daemon.admin, "top", "-i", "100", *arguments],
                             rows, columns, {**ENVIRONMENT, **(environment or {})})
        self.addCleanup(terminal.kill)
        return terminal

    def sessions(self, *names):
        for name in names:
            self.addCleanup(open_session(self.daemon, name).close)

    def busy(self, name):
        client = self.daemon.demo(name)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)

    def quit(self, terminal):
        terminal.send("q")
        self.assertEqual(terminal.wait_for_end(), 0)

    def test_the_screen_at_80_columns(self):
        self.busy("worker")
        self.sessions(b"quiet")
        terminal = self.top()
        row = re.compile(r"^ +\d+ +\d+ worker +normal +[\d.]+[kM]? +[\d.]+[MGT]? +[\d.]+[kMG]? +(<1|\d+)%(?: +[\d.]+[um]?s){4}$",
                         re.MULTILINE)
        text = terminal.wait_for(lambda text: row.search(text) and "quiet" in text, "a busy session")
        lines = text.split("\n")
        self.assertRegex(lines[0], r"^concertd \S+ SIMULATED  policy auto  up \d+ s  ")
        self.assertRegex(lines[1], r"^GPU 0  concert simulator, 132 SMs +- of 8\.00 GiB  - W  - GHz  - C$")
        self.assertRegex(lines[2], r"^GPU time    \[[| ]+ (<1|\d+) %\]  SMs planned \[[| ]+ (<1|\d+) %\]$")
        self.assertRegex(lines[3], r"^bandwidth   \[[| ]+ [\d.]+ [kMG]?B/s +(<1|\d+) %\]  queue depth \[[| ]+ (\d+ of \d+|-)\]$")
        self.assertRegex(text, r"GPU 1 .*\nGPU time    \[ +-\]  SMs planned \[ +-\]\nbandwidth   \[ +-\]")
        self.assertRegex(text, r"\nSESSIONS 2\n")
        self.assertRegex(text, r"\n +\d+ +\d+ quiet +-( +-)+\n")
        self.assertEqual(lines[-1],
                         "q quit  ? help  s sort:GPU  r reverse  f session  u user  c class  h history")
        for percent in re.findall(r"(\d+) ?%", text):
            self.assertLessEqual(int(percent), 100, text)
        self.assertNotRegex(text, r"-\d|\b0\.0+ ?(us|ms|s)\b")
        terminal.wait_for(lambda text: "█" in text or "▁" in text, "a plot")
        self.assertTrue(COLOURS & {cell.fg for line in terminal.cells() for cell in line})
        self.quit(terminal)

    def test_keys_sort_filter_scroll_and_explain(self):
        self.sessions(*(f"client-{i:02}".encode() for i in range(20)))
        terminal = self.top()
        terminal.wait_for(lambda text: "\nSESSIONS 20: 1 to " in text, "the list")
        terminal.send("r")  # idle sessions stand in the order of their numbers
        terminal.send("SSSSS")
        text = terminal.wait_for(lambda text: "sort:CLIENT" in text)
        self.assertEqual(listed(text)[0], "client-00")
        terminal.send("r")
        terminal.wait_for(lambda text: listed(text)[0] == "client-19", "the other way round")
        terminal.send("r")
        terminal.wait_for(lambda text: listed(text)[0] == "client-00", "and back")
        terminal.send("\x1b[B")  # down
        terminal.wait_for(lambda text: listed(text)[0] == "client-01" and "SESSIONS 20: 2 to" in text, "scrolled by one")
        terminal.send("\x1b[4~")  # End
        terminal.wait_for(lambda text: listed(text)[-1] == "client-19", "the end")
        terminal.send("\x1b[1~")  # Home
        terminal.wait_for(lambda text: listed(text)[0] == "client-00", "the beginning")
        terminal.send("f")
        terminal.wait_for(lambda text: "session or part of its client's name: _" in text, "the prompt")
        terminal.send("CLIENT-1\r")
        terminal.wait_for(lambda text: "SESSIONS 10 of 20" in text and listed(text)[0] == "client-10", "the filter")
        terminal.send("c")
        terminal.wait_for(lambda text: "SESSIONS 0 of 20  CLIENT-1  class high" in text, "class high")
        terminal.send("\x1b")
        terminal.wait_for(lambda text: "SESSIONS 20: 1 to" in text, "no filter")
        terminal.send("uno-such-user\r")
        terminal.wait_for(lambda text: "this machine has no user 'no-such-user'" in text, "an error")
        terminal.send("\x1b")
        terminal.wait_for(lambda text: "q quit" in text, "the footer")
        terminal.send(f"u{os.getuid()}\r")
        terminal.wait_for(lambda text: f"SESSIONS 20 of 20: 1 to" in text and f"user {os.getuid()}" in text, "the user")
        terminal.send("u12345678\r")
        terminal.wait_for(lambda text: "SESSIONS 0 of 20  user 12345678" in text, "another user")
        terminal.send("?")
        terminal.wait_for(lambda text: "only sessions of this user" in text, "the help")
        terminal.send(" ")
        terminal.wait_for(lambda text: "SESSIONS" in text, "the list again")
        terminal.send("hh")
        terminal.wait_for(lambda text: re.search(r"^bandwidth$", text, re.MULTILINE), "the history of bandwidth")
        self.quit(terminal)

    def test_windows_of_any_size(self):
        self.sessions(b"only")
        terminal = self.top(50, 160)
        terminal.wait_for(lambda text: "CO-RUN" in text and "only" in text, "a large screen")
        for rows, columns, wanted in ((24, 80, "h history"), (5, 20, "q quit  ? help"), (3, 10, "concertd"), (1, 1, "~"),
                                      (24, 80, "SESSIONS 1"), (12, 200, "CO-RUN")):
            terminal.resize(rows, columns)
            terminal.wait_for(lambda text: wanted in text, f"{wanted} at {rows}x{columns}")
        self.quit(terminal)

    def test_a_small_screen_shows_a_session(self):
        self.sessions(b"only")
        terminal = self.top(5, 20)
        text = terminal.wait_for(lambda text: "only" in text and "first" not in text, "the session")
        self.assertRegex(text, r"^concertd .*\nSESSIONS 1\nSESSION CLIENT GPU\n +\d+ only +-\nq quit  \? help$")
        self.quit(terminal)

    def test_names_that_attack_the_terminal_do_nothing(self):
        names = [b"\x1b[2J\x1b[H\x1b]0;owned\x07", b"\xc2\x9b31mred", b"\r\nnew\x0bline", "\u8a13\u7df4\u5668".encode(),
                 b"e" + "\u0301".encode() * 20, "\u202egnorw".encode(), b"\xff\xfe" + b"x" * 61, b"w" * 63]
        self.sessions(*names)
        terminal = self.top(30, 80)
        text = terminal.wait_for(lambda text: f"SESSIONS {len(names)}\n" in text, "all sessions")
        text = terminal.wait_for(lambda text: "wwwww" in text, "the last of them")
        self.assertIn("訓練器", text.replace("訓 練 器", "訓練器"))
        self.assertIn("e\u0301".encode(), unicodedata.normalize("NFD", text).encode())
        self.assertIn("\\x1b[2J\\x1", text)
        self.assertNotIn("\u202e", text)
        lines = text.split("\n")
        self.assertRegex(lines[0], "^concertd ")
        self.assertRegex(lines[-1], "^q quit")
        titles = next(i for i, line in enumerate(lines) if line.startswith("SESSION "))
        cells = terminal.cells()
        at = lines[titles].index("CLASS")
        for row in range(titles + 1, titles + 1 + len(names)):  # whatever is in the name, what follows stands in its column
            self.assertEqual(cells[row][at].data, "-", lines[row])
        self.assertEqual(terminal.screen.title, "")
        self.quit(terminal)

    def test_no_color(self):
        self.busy("worker")
        terminal = self.top(environment={"NO_COLOR": "1"})
        terminal.wait_for(lambda text: re.search(r"worker +normal", text), "a busy session")
        self.assertEqual({cell.fg for line in terminal.cells() for cell in line}, {"default"})
        self.quit(terminal)

    def test_a_terminal_without_utf8_gets_ascii(self):
        self.busy("K\u00f6ln")
        terminal = self.top(environment={"LC_ALL": "C"})
        text = terminal.wait_for(lambda text: re.search(r"K\?ln +normal", text), "the client")
        self.assertTrue(text.isascii(), text)
        self.quit(terminal)

    def test_ends_with_its_count_the_daemon_or_a_signal(self):
        terminal = self.top(arguments=["-n", "2"])
        self.assertEqual(terminal.wait_for_end(), 0)
        terminal = self.top()
        terminal.wait_for(lambda text: "SESSIONS 0" in text)
        terminal.send("\x03")  # Ctrl-C
        self.assertEqual(terminal.wait_for_end(), -signal.SIGINT)
        terminal = self.top()
        terminal.wait_for(lambda text: "SESSIONS 0" in text)
        self.daemon.stop()
        self.assertEqual(terminal.wait_for_end(), 3, terminal.text())
        self.assertIn("concertctl: no concertd answers on", terminal.text().replace("\n", ""))

    def test_elsewhere_it_prints_tables(self):
        environment = {**ENVIRONMENT, "TERM": "no-such-terminal"}
        command = [BIN / "concertctl", "--socket", self.daemon.admin, "top", "-i", "50", "-n", "2"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=60).stdout
        self.assertEqual(len(re.findall(r"^GPU +OPS/S", printed, re.MULTILINE)), 2)
        self.assertNotIn("\x1b", printed)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""A program in a pseudo-terminal, and the screen that it draws there (by pyte; Debian: python3-pyte)."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte

TERM = "linux"  # which pyte understands in full
WAIT_S = 60  # for what must come: only a test that fails waits that long


class PtyScreen:
    """`recording` is what the program wrote, as asciinema keeps it: [seconds since the start, "o", text]."""

    def __init__(self, command, rows=24, columns=80, environment=None):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.rows, self.columns = rows, columns
        self.recording = []
        self.status = None  # as os.waitpid has it, once the program has ended
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {}), "TERM": TERM}
        self.started = time.monotonic()
        # The child waits until the terminal has its size.
        ready, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.close(go)
            os.read(ready, 1)
            os.execvpe(str(command[0]), [str(word) for word in command], environment)
        os.close(ready)
        self.resize(rows, columns)
        os.close(go)

    def resize(self, rows, columns):
        """The window gets another size; what stood on it is no longer known."""
        self.rows, self.columns = rows, columns
        self.screen.resize(rows, columns)
        self.screen.reset()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def text(self):
        """The screen, its lines without the spaces at their ends."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def read(self, timeout_s):
        """Takes what the program writes within this time. False: nothing, or it has ended."""
        if not select.select([self.fd], [], [], max(0, timeout_s))[0]:
            return False
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            if self.status is None:
                self.status = os.waitpid(self.pid, 0)[1]
            return False
        self.recording.append([round(time.monotonic() - self.started, 6), "o", data.decode("utf-8", "replace")])
        self.stream.feed(data)
        return True

    def wait_for(self, wanted, what="what is waited for", wait_s=WAIT_S, fail=True):
        """Returns the screen's text as soon as `wanted(text)` is true; without `fail` also when it will not be."""
        deadline = time.monotonic() + wait_s
        while not wanted(self.text()):
            if not self.read(deadline - time.monotonic()) and (self.status is not None or time.monotonic() >= deadline):
                if not fail:
                    break
                raise AssertionError(f"{what} is not on the screen (status {self.status}):\n{self.text()}")
        return self.text()

    def wait_for_end(self):
        """How the program ended: its exit code, or less than 0, the signal."""
        deadline = time.monotonic() + WAIT_S
        while self.status is None:
            if not self.read(deadline - time.monotonic()) and time.monotonic() >= deadline:
                raise AssertionError(f"the program does not end:\n{self.text()}")
        return os.waitstatus_to_exitcode(self.status)

    def kill(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)

    def cells(self):
        """Lines of (text, foreground, bold, reverse) cells."""
        return [[self.screen.buffer[row][column] for column in range(self.columns)] for row in range(self.rows)]

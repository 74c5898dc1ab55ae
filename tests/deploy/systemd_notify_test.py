#!/usr/bin/env python3
"""What concertd tells systemd (sd_notify(3)), heard on a socket as systemd's: that it is ready, that its dispatchers turn, that it
stops and how long that may take.

  systemd_notify_test.py BIN_DIR
"""

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from private_daemon import ENVIRONMENT, WAIT_S, PrivateDaemon, wait_for  # noqa: E402

BIN = Path(sys.argv.pop(1))
SILENCE_S = 2  # eight times what lies between two beats of a daemon that is well
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207  # linux/ptrace.h
WAIT_ALL = 0x40000000  # __WALL: of threads, too


class HeldThread:
    """A thread of a child of ours stands still, as one that hangs does; the others go on."""

    def __init__(self, pid, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        threads = {Path(folder, "comm").read_text().strip(): int(folder.name) for folder in Path(f"/proc/{pid}/task").iterdir()}
        self.thread = threads[name]

    def trace(self, request):
        if self.libc.ptrace(request, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {self.thread}")

    def __enter__(self):
        self.trace(PTRACE_SEIZE)
        self.trace(PTRACE_INTERRUPT)
        os.waitpid(self.thread, WAIT_ALL)

    def __exit__(self, *_):
        self.trace(PTRACE_DETACH)


class SystemdNotifyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.systemd.close)
        address = f"{folder.name}/notify"
        self.systemd.bind(address)
        self.daemon = PrivateDaemon(BIN, folder.name, flags=("--drain-s", "7"), environment={"NOTIFY_SOCKET": address})
        self.addCleanup(self.daemon.process.wait)
        self.addCleanup(self.daemon.process.kill)

    def message(self, timeout_s):
        """The next one, as {name: value}; none where no one comes."""
        self.systemd.settimeout(timeout_s)
        try:
            return dict(line.split("=", 1) for line in self.systemd.recv(4096).decode().splitlines())
        except TimeoutError:
            return {}

    def message_with(self, name):
        return wait_for(lambda: (told := self.message(WAIT_S)) and name in told and told, name)

    def is_silent_soon(self):
        """Whether beats end within WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if "WATCHDOG" not in self.message(SILENCE_S):
                return True
        return False

    def test_ready_comes_first_and_once(self):
        self.assertEqual(self.message(WAIT_S), {"READY": "1", "STATUS": "2 GPUs"})
        told = [self.message(WAIT_S) for _ in range(4)]
        self.assertFalse([one for one in told if "READY" in one], told)
        self.assertIn({"STATUS": "0 sessions, 2 GPUs"}, told)

    def test_a_dispatcher_that_stands_still_is_no_heartbeat(self):
        for _ in range(2):
            self.message_with("WATCHDOG")
        with HeldThread(self.daemon.process.pid, "gpu1"):
            self.assertTrue(self.is_silent_soon())
        self.message_with("WATCHDOG")

    def test_a_drain_may_take_longer_than_the_units_timeout(self):
        subprocess.run([BIN / "concertctl", "--socket", self.daemon.admin, "drain", "--drain-s", "600"], check=True,
                       env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        told = self.message_with("STOPPING")
        self.assertEqual(told["STATUS"], "draining")
        self.assertGreater(int(told["EXTEND_TIMEOUT_USEC"]), 600e6)
        self.assertEqual(self.daemon.process.wait(WAIT_S), 0)

    def test_sigterm_drains_for_as_long_as_is_configured(self):
        self.daemon.process.terminate()
        limit_us = int(self.message_with("STOPPING")["EXTEND_TIMEOUT_USEC"])
        self.assertGreater(limit_us, 7e6)
        self.assertLess(limit_us, 60e6)
        self.assertEqual(self.daemon.process.wait(WAIT_S), 0)


if __name__ == "__main__":
    unittest.main()

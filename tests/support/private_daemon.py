"""A concertd, on the simulator unless said otherwise, with a socket of its own, and clients that keep it busy."""

import os
import subprocess
import time
from pathlib import Path

WAIT_S = 60
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("CONCERT_") and name != "NO_COLOR"}


def wait_for(condition, what, seconds=WAIT_S):
    """What `condition` returns as soon as that is true; TimeoutError when it never is."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} in {seconds} s")
        time.sleep(0.02)
    return result


class PrivateDaemon:
    """`programs`: where concertd and concert_demo are; `folder`: for its files; `flags`: further ones of concertd;
    `environment`: what it has besides ENVIRONMENT."""

    def __init__(self, programs, folder, device="sim", flags=(), environment=None):
        self.programs = Path(programs)
        self.socket, self.admin, self.log = f"{folder}/concert.sock", f"{folder}/admin.sock", Path(folder, "log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [self.programs / "concertd", "--device", device, "--socket", self.socket, "--admin-socket", self.admin,
                 "--tune-store", f"{folder}/tuning.sqlite3", *flags], stdout=log, stderr=log,
                env=ENVIRONMENT | (environment or {}))
        wait_for(lambda: self.process.poll() is not None or "serving on" in self.log.read_text(), "concertd")
        if self.process.poll() is not None:
            raise RuntimeError(f"concertd did not start: {self.log.read_text()}")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def demo(self, name, layers="32x256x128,32x128x256", gpu=0, flags=(), **process):
        """A client that computes until it is killed; `process`: how subprocess starts it, such as user."""
        return subprocess.Popen(
            [self.programs / "concert_demo", "--socket", self.socket, "--name", name, "--steps", "100000000", "--gpu",
             str(gpu), "--layers", layers, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=ENVIRONMENT, **process)

"""Fixtures: a real concertd, on the simulator unless told otherwise, and sessions with it.

$CONCERT_BUILD is the folder of the build under test, build/release by default, or a bundle's.
$CONCERT_TEST_DEVICE: sim or cuda, the daemon's device; tests that are of one of them say so with
the markers below. $CONCERT_TEST_LIBRARY_PATH: where the daemon finds CUDA's libraries; this
process keeps to those of PyTorch.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client" / "python"))

BUILD = pathlib.Path(os.environ.get("CONCERT_BUILD", ROOT / "build" / "release"))
os.environ["CONCERT_LIBRARY"] = str(BUILD / "lib" / "libconcert.so.0")
DEVICE = os.environ.get("CONCERT_TEST_DEVICE", "sim")

import concert  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "sim_only: says nothing about a GPU, or would fail on one")
    config.addinivalue_line("markers", "cuda_only: needs a GPU that concertd can use")


def pytest_collection_modifyitems(items):
    for item in items:
        for marker, device in (("sim_only", "sim"), ("cuda_only", "cuda")):
            if item.get_closest_marker(marker) and DEVICE != device:
                item.add_marker(pytest.mark.skip(reason=f"for --device {device}"))


def daemon_environment():
    """CUDA's libraries for the daemon."""
    path = os.environ.get("CONCERT_TEST_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": path} if path else None


class Daemon:
    """A private concertd. Ended by stop() or kill()."""

    def __init__(self, folder: pathlib.Path, *arguments: str) -> None:
        self.socket = str(folder / "concert.sock")
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [BUILD / "bin" / "concertd", "--device", DEVICE, "--socket", self.socket,
                 "--admin-socket", str(folder / "admin.sock"),
                 "--tune-store", str(folder / "tuning.sqlite3"), *arguments],
                stdout=log, stderr=log, env=daemon_environment())
        # Bounded, and over as soon as it listens.
        for _ in range(1200):
            if "serving on" in self.log.read_text():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        pytest.fail(f"concertd did not start: {self.log.read_text()}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    """The daemon that tests share."""
    made = Daemon(tmp_path_factory.mktemp("daemon"))
    os.environ["CONCERT_SOCKET"] = made.socket
    yield made
    made.stop()


@pytest.fixture
def start_daemon(tmp_path):
    """Starts daemons of one test's own."""
    started = []

    def start(name="own", *arguments):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        started.append(Daemon(folder, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def session(daemon):
    with concert.connect(daemon.socket) as opened:
        yield opened


@pytest.fixture
def queue(session):
    with session.queue() as opened:
        yield opened

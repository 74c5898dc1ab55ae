#!/usr/bin/env python3
"""The first hour of a user who has a bundle, on the simulator: the quickstart leaves a daemon running; the Python package,
installed by pip as a wheel, reaches it with the lines that were printed; concertctl shows a client of theirs live, in its plans,
and in a trace and its page; and everything is gone when the last line that was printed says so.

  quickstart_test.py BUNDLE.tar.gz
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = "first-client"
# A server of the user's own: steps until its input ends.
PROGRAM = f"""
import sys, threading, concert, numpy as np
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
with concert.connect(name="{CLIENT}") as session, session.queue() as queue:
    x = session.array(np.full((16, 32), 0.5, np.float32))
    w = session.array(np.full((64, 32), 0.25, np.float32))
    y = session.zeros((16, 64), "fp32")
    step = concert.Gemm(x, w, y)
    while not ended.wait(0.002):
        queue.submit(step).wait()
    print(f"{{y.read()[0, 0]:g}}")
"""


def run(*command, **options):
    """What a command prints; the test is over where it fails."""
    told = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=60, **options)
    if told.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {told.returncode}:\n{told.stdout}")
    return told.stdout


def expect(pattern, text, what):
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        sys.exit(f"{what}: no {pattern!r} in\n{text}")
    return found


def installs_the_package(folder):
    """Into an environment of its own, from a copy, because setuptools writes beside the sources. Returns its Python."""
    # pip is the system's, as its setuptools: the test may not need a network.
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip", folder / "venv")
    python = folder / "venv/bin/python"
    source = shutil.copytree(ROOT / "client/python", folder / "package",
                             ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", source)
    where = run(python, "-c", "import concert; print(concert.__file__)", cwd=folder)
    expect(re.escape(str(folder / "venv")), where, "another package is imported")
    return python


@contextlib.contextmanager
def own_client(python):
    """Steps inside the block; its result must be right after it."""
    client = subprocess.Popen([python, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield
    result, _ = client.communicate(timeout=30)
    if client.returncode != 0 or result != "4\n":
        sys.exit(f"the client ended with {client.returncode} and the result {result!r}")


def top_shows_it(concertctl):
    """In a terminal of 24 rows, live, until ^C, which leaves the terminal as it was."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execv(concertctl, [concertctl, "top"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
    shown, interrupted = b"", False
    end = time.monotonic() + 30
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        if not ready:
            os.kill(child, 9)
            sys.exit(f"top {'does not end' if interrupted else 'shows no ' + CLIENT} within 30 s: {shown[-2000:]!r}")
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # its other end is closed
            break
        if CLIENT.encode() in shown and not interrupted:
            os.write(terminal, b"\x03")
            interrupted = True
    os.waitpid(child, 0)
    os.close(terminal)
    expect(r"\x1b\[\?1049l", shown.decode(), "top leaves its screen on the terminal")


def tools_show_it(bin_, folder):
    expect(r"^policy +auto", run(bin_ / "concertctl", "status"), "status")
    top_shows_it(str(bin_ / "concertctl"))
    expect(r"\d+ ops, \d+ plans", run(bin_ / "concertctl", "trace", "--seconds", "1", "--out", folder / "step.pftrace"), "trace")
    expect(r"step.html: [1-9]\d* ops", run(bin_ / "concertctl", "trace", "html", folder / "step.pftrace", cwd=folder), "page")
    expect(CLIENT, (folder / "step.html").read_text(), "the page of the trace")
    # The newest plans are the client's: nobody else is there.
    plans = json.loads(run(bin_ / "concertctl", "plans", "--last", "1", "--json"))
    expect("gemm", json.dumps(plans).lower(), "plans")


def everything_is_gone(stop):
    daemon = int(stop.split()[1])
    subprocess.run(["bash", "-c", stop], check=True, timeout=30)
    if pathlib.Path(f"/proc/{daemon}").exists() or pathlib.Path(os.environ["CONCERT_SOCKET"]).parent.exists():
        sys.exit(f"this leaves something behind: {stop}")


def main():
    for name in [name for name in os.environ if name.startswith("CONCERT_") or name in ("PYTHONPATH", "LD_LIBRARY_PATH")]:
        del os.environ[name]
    printed = run(ROOT / "deploy/quickstart", "--bundle", sys.argv[1], "--keep")
    stop = expect(r"^ *(kill \d+ && .* && rm -r .*)$", printed, "the quickstart")[1]
    try:
        expect("A modelled H200|time_sliced", printed, "what sharing gains")
        # Words that were printed for the user's shell: no more is needed.
        exports = expect(r"^ *export (CONCERT_SOCKET=\S+) (CONCERT_ADMIN_SOCKET=\S+)$", printed, "the quickstart")
        os.environ.update(pair.split("=", 1) for pair in exports.groups())
        bundle = pathlib.Path(os.environ["CONCERT_SOCKET"]).parent / "bundle"
        os.environ["CONCERT_LIBRARY"] = str(bundle / "lib/libconcert.so.0")
        with tempfile.TemporaryDirectory(prefix="concert-quickstart-test.") as name:
            folder = pathlib.Path(name)
            python = installs_the_package(folder)
            expect(r"^y\[0\] = 16$", run(python, ROOT / "client/examples/minimal.py", cwd=folder), "minimal.py")
            with own_client(python):
                tools_show_it(bundle / "bin", folder)
    except BaseException:
        subprocess.run(["bash", "-c", stop], check=False, timeout=30)
        raise
    everything_is_gone(stop)


if __name__ == "__main__":
    main()

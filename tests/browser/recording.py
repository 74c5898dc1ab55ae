"""A trace of the demo's clients on the simulator, recorded by the programs as they are shipped."""

import json
import os
import subprocess
import time

TIMEOUT_S = 120
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CONCERT_")}
CLIENTS = (
    ("--name", "server-a", "--layers", "32x128x64,32x64x128"),
    ("--name", "server-b", "--layers", "16x96x96,16x256x64,16x64x64", "--seed", "2"),
    ("--name", "all-reduce", "--layers", "16x64x64", "--rank", "0", "--ranks", "2"),
    ("--name", "all-reduce", "--layers", "16x64x64", "--rank", "1", "--ranks", "2"),
)


def wait_for(process, what):
    output, _ = process.communicate(timeout=TIMEOUT_S)
    if process.returncode != 0:
        raise RuntimeError(f"{what} failed: {output}")
    return output


def start(*command):
    return subprocess.Popen([str(word) for word in command], env=ENVIRONMENT, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_until_ready(daemon, concertctl):
    deadline = time.monotonic() + TIMEOUT_S
    while subprocess.run([*concertctl, "status"], env=ENVIRONMENT, capture_output=True, check=False).returncode != 0:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("concertd did not start")


def record(programs, folder, steps=50):
    """Writes a trace of clients that take so many steps to `folder`. Its path, and what concertctl says of it."""
    socket, admin, file = f"{folder}/concert.sock", f"{folder}/admin.sock", f"{folder}/recorded.pftrace"
    concertctl = [f"{programs}/concertctl", "--socket", admin]
    daemon = subprocess.Popen(
        [f"{programs}/concertd", "--device", "sim", "--sim-gpus", "1", "--socket", socket, "--admin-socket", admin,
         "--tune-store", f"{folder}/tuning.sqlite3", "--log-level", "error"], env=ENVIRONMENT)
    try:
        wait_until_ready(daemon, concertctl)
        tracing = start(*concertctl, "--json", "trace", "--seconds", 1, "--out", file)
        while tracing.poll() is None:  # whenever it begins, there is work
            clients = [start(f"{programs}/concert_demo", "--socket", socket, "--steps", steps, *client)
                       for client in CLIENTS]
            for client in clients:
                wait_for(client, "a client")
        return file, json.loads(wait_for(tracing, "concertctl trace"))
    finally:
        daemon.terminate()
        daemon.wait(TIMEOUT_S)

"""A concertd on the simulator, and the processes that attack it or tell what attacks do to others."""
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

# Users of their own, so that quotas per user tell them from the witnesses. No accounts are needed.
WITNESS_UID = 61000
FIRST_HOSTILE_UID = 61001
START_LIMIT_S = 60
STOP_LIMIT_S = 20


class Process:
    """A concert_hostile, killed at the end of a `with` if it is still there."""

    def __init__(self, program, mode, socket, uid, seconds, count=None):
        words = [program, mode, socket, str(uid), str(seconds)] + ([] if count is None else [str(count)])
        self.mode, self._unread = mode, b""
        self.complaints = []  # what an attacker saw that must not be; known once it has been killed
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # and what it has started
        except ProcessLookupError:
            pass
        self._process.wait()
        if self._process.stdout.closed:
            return
        while (line := self.line(1)) is not None:
            self.complaints += [line.removeprefix("wrong: ")] if line.startswith("wrong: ") else []
        self._process.stdin.close()
        self._process.stdout.close()

    def line(self, limit_s):
        """The next line it prints, None if there is none in time or at all."""
        end = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, end - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                return None
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def ready(self, limit_s):
        return self.line(limit_s) == "ready"

    def go(self):
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def cpu_s(self):
        """CPU time so far, of an ended process 0. Not from `stat`, which counts ticks of the clock: who wakes on a
        tick and sleeps before the next, as burners do, is hardly ever seen."""
        try:
            tasks = pathlib.Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
            return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
        except OSError:
            return 0.0


class Witness(Process):
    def __init__(self, program, mode, socket, seconds, uid=WITNESS_UID):
        super().__init__(program, mode, socket, uid, seconds)
        self._seconds = seconds

    def report(self):
        """What it measured. One that does not come back has been stopped for all of its time."""
        line = self.line(self._seconds + 5)
        if line is not None:
            return json.loads(line)
        whole_us = self._seconds * 1e6
        return {"count": 0, "p50_us": whole_us, "p99_us": whole_us, "max_us": whole_us, "failures": 1,
                "why": f"the witness {self.mode} did not come back"}


class Daemon:
    """Made anew for every measurement, so that no attack meets what the one before has left."""

    def __init__(self, bin_folder, settings=""):
        self._bin = pathlib.Path(bin_folder)
        self._folder = tempfile.TemporaryDirectory(prefix="concert-hostile.")
        folder = pathlib.Path(self._folder.name)
        folder.chmod(0o755)  # other users connect
        self.socket, self._admin = str(folder / "concert.sock"), str(folder / "admin.sock")
        (folder / "concert.toml").write_text(f'tune_store = "{folder}/tuning.sqlite3"\n{settings}')
        self._log = open(folder / "concertd.log", "w+")
        self._process = subprocess.Popen(
            [self._bin / "concertd", "--config", folder / "concert.toml", "--device", "sim", "--sim-gpus", "1",
             "--socket", self.socket, "--admin-socket", self._admin],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        end = time.monotonic() + START_LIMIT_S
        while self._ctl("status") is None:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"concertd does not start: {self.log()}")
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def log(self):
        self._log.seek(0)
        return self._log.read()[-2000:]

    def _ctl(self, *words):
        done = subprocess.run([self._bin / "concertctl", "--socket", self._admin, *words, "--json"],
                              capture_output=True, text=True, timeout=30)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def memory_mb(self):
        """Resident memory: its own, and what it shares with clients. Pages of program files, which the kernel drops
        and reads again as it likes, are left out. None of one that is ending."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")}
        return kib.get("RssAnon", 0) / 1024, kib.get("RssShmem", 0) / 1024

    def address_space_bytes(self):
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    def sessions_listed(self):
        """Sessions that it holds, or believes in although they have ended."""
        sessions, stats = self._ctl("sessions"), self._ctl("stats")
        if sessions is None or stats is None:
            return None
        believed = [one for one in stats.get("stats", stats).get("sessions", []) if not one.get("ended")]
        return max(len(sessions.get("sessions", [])), len(believed))

    def held(self):
        """What clients hold of quotas, as "7 buffers"; nothing if there are none. None if it does not say."""
        quotas = self._ctl("quotas")
        if quotas is None:
            return None
        return [f"{quota['used']} {quota['resource']}" for quota in quotas["quotas"] if int(quota.get("used", 0))]

    def stop(self):
        """SIGTERM. Its exit status; None if it does not end."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None

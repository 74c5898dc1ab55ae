"""A concertd whose metrics a Prometheus scrapes, both on free ports of 127.0.0.1 and with files in a folder of their own."""

import json
import math
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from private_daemon import ENVIRONMENT, PrivateDaemon, wait_for  # noqa: E402

PROMETHEUS = shutil.which("prometheus")


def on_free_port(start):
    """Calls start(port); again with another port where somebody else has taken it in between."""
    for attempts_left in reversed(range(5)):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        try:
            return start(port)
        except RuntimeError:
            if not attempts_left:
                raise


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


class MeteredDaemon(PrivateDaemon):
    """A PrivateDaemon with metrics."""

    def __init__(self, programs, folder, device="sim", flags=()):
        def start(port):
            self.address = f"127.0.0.1:{port}"
            super(MeteredDaemon, self).__init__(programs, folder, device, ("--metrics-port", str(port), *flags))
        on_free_port(start)

    def scrape(self):
        return get(f"http://{self.address}/metrics")


class Prometheus:
    """Scrapes one address every `scrape_ms`; `instance`: what it calls it, unless the address itself."""

    def __init__(self, folder, address, scrape_ms, instance=None):
        self.scrape_ms, self.log = scrape_ms, Path(folder, "prometheus.log")
        target = {"targets": [address], "labels": {"instance": instance} if instance else {}}
        interval = f"{scrape_ms}ms"
        self.settings = Path(folder, "prometheus.yml")
        self.settings.write_text(json.dumps({  # which is YAML, too
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [{"job_name": "concert", "static_configs": [target]}]}))
        self.data = Path(folder, "prometheus")
        on_free_port(self.start)

    def start(self, port):
        self.url = f"http://127.0.0.1:{port}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [PROMETHEUS, "--config.file", self.settings, "--storage.tsdb.path", self.data, "--web.listen-address",
                 f"127.0.0.1:{port}"], stdout=log, stderr=log, env=ENVIRONMENT)
        wait_for(lambda: self.process.poll() is not None or self.is_ready(), "Prometheus")
        if self.process.poll() is not None:
            raise RuntimeError(f"Prometheus did not start: {self.log.read_text()}")

    def is_ready(self):
        try:
            return bool(get(self.url + "/-/ready"))
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def ask(self, path, **parameters):
        """The data of an answer of the HTTP API; ValueError with its sentence where it refuses."""
        try:
            return json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]
        except urllib.error.HTTPError as refusal:
            raise ValueError(f"{parameters}: {refusal.read().decode()}") from refusal

    def label_values(self, selector, label):
        return self.ask(f"label/{label}/values", **{"match[]": selector})

    def last_scrape(self):
        """When the last sample was taken that can be asked for, in seconds since 1970; 0: there is none."""
        found = self.ask("query", query="timestamp(concert_sessions)")["result"]
        return float(found[0]["value"][1]) if found else 0

    def query_range(self, expression, start, end, step_s):
        """Pairs of labels and {time: value}, of values that are numbers: 0 / 0 is none."""
        found = self.ask("query_range", query=expression, start=start, end=end, step=step_s)["result"]
        return [(series["metric"],
                 {time: float(value) for time, value in series["values"] if math.isfinite(float(value))})
                for series in found]

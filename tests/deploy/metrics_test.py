#!/usr/bin/env python3
"""/metrics of a running concertd, and what is built on it: alert rules, dashboard and the table in operations.md.

  metrics_test.py BIN_DIR

What needs promtool (Debian: prometheus) is left out where it is not installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import dashboard
from metered_node import MeteredDaemon, wait_for

BIN = Path(sys.argv.pop(1))
ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/concert.rules.yml"
RULES_TEST = ROOT / "tests/deploy/concert_rules_test.yml"
PROMTOOL = shutil.which("promtool")


def samples(text):
    """{(name, labels): value}"""
    found = re.findall(r"^(concert_\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
    return {(name, labels): float(value) for name, labels, value in found}


def an_op_waited(text):
    """The first ones of a client may have been launched as soon as they came."""
    return any(name == "concert_user_queue_wait_seconds_total" and value > 0
               for (name, _), value in samples(text).items())


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.daemon = MeteredDaemon(BIN, cls.folder.name, flags=("--sim-gpus", "1"))
        client = cls.daemon.demo("metered")
        try:
            cls.text = wait_for(lambda: an_op_waited(text := cls.daemon.scrape()) and text, "op that waited")
        finally:
            client.kill()
            client.wait()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()
        cls.folder.cleanup()

    def test_a_client_is_there_while_it_is_connected_and_then_in_its_users_figures(self):
        uid = os.getuid()
        during = samples(self.text)
        sessions = {labels for name, labels in during if name == "concert_session_ops_total"}
        self.assertEqual(len(sessions), 1, self.text)
        self.assertIn(f'uid="{uid}"', sessions.pop())
        user = f'uid="{uid}",gpu="0"'
        for figure in ("ops", "gpu_seconds", "moved_bytes", "flops", "queue_wait_seconds"):
            self.assertGreater(during[f"concert_user_{figure}_total", user], 0, figure)
        self.assertEqual(during["concert_queue_wait_seconds_count", 'gpu="0"'] +
                         sum(value for (name, _), value in during.items() if name == "concert_failed_ops_total"),
                         during["concert_user_ops_total", user])
        text = wait_for(lambda: "concert_session_" not in (text := self.daemon.scrape()) and text, "end of the session")
        self.assertGreaterEqual(samples(text)["concert_user_ops_total", user], during["concert_user_ops_total", user])

    def test_what_is_built_on_metrics_names_those_that_there_are(self):
        known = {name for name, _ in samples(self.text)} | set(re.findall(r"^# TYPE (\w+)", self.text, re.MULTILINE))
        manual = (ROOT / "docs/operations.md").read_text()
        for path, text in ((RULES, RULES.read_text()), (dashboard.FILE, dashboard.FILE.read_text()), ("operations.md", manual)):
            for name in set(re.findall(r"\bconcert_[a-z_]+", text)) - {"concert_rules_test"}:
                if name.endswith(("_", "_demo")):
                    continue
                self.assertIn(name, known, path)
        for family in re.findall(r"^# TYPE concert_(?:user_|session_)?(\w+)", self.text, re.MULTILINE):
            self.assertIn(family, manual)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed")
    def test_promtool_finds_no_fault(self):
        own = "".join(line + "\n" for line in self.text.splitlines() if "concert_" in line)
        check = subprocess.run([PROMTOOL, "check", "metrics"], input=own, capture_output=True, text=True, timeout=60)
        self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))
        intervals = dashboard.intervals(scrape_ms=15000, step_ms=15000)
        rules = [{"record": f"panel{i}", "expr": re.sub(r"\$__rate_interval", intervals["__rate_interval"], expression)}
                 for i, (_, expression) in enumerate(dashboard.targets())]
        panels = Path(self.folder.name, "panels.yml")
        panels.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        shutil.copy(RULES, self.folder.name)
        shutil.copy(RULES_TEST, self.folder.name)
        for command in (("check", "rules", panels), ("check", "rules", RULES.name), ("test", "rules", RULES_TEST.name)):
            done = subprocess.run([PROMTOOL, *command], cwd=self.folder.name, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_dashboards_panels_do_not_overlap(self):
        panels = dashboard.load()["panels"]
        cells = [(x, y) for panel in panels for place in [panel["gridPos"]]
                 for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
        self.assertEqual(len(cells), len(set(cells)))
        self.assertLess(max(x for x, _ in cells), 24)
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))


if __name__ == "__main__":
    unittest.main()

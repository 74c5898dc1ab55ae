#!/usr/bin/env python3
"""The dashboard of deploy/grafana/concert.json, asked of a real Prometheus that scrapes a concertd, and its picture.

  dashboard_test.py BIN_DIR

What needs prometheus or matplotlib (Debian: prometheus, python3-matplotlib) is left out where it is not installed.
"""

import dataclasses
import importlib.util
import math
import os
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree

import dashboard
import dashboard_picture
from metered_node import PROMETHEUS, MeteredDaemon, Prometheus, wait_for

BIN = Path(sys.argv.pop(1))
SCRAPE_MS, STEP_S = 500, 1
TITLES = [panel["title"] for panel in dashboard.load()["panels"]]


@unittest.skipUnless(PROMETHEUS, "prometheus is not installed")
class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.daemon = MeteredDaemon(BIN, folder.name)
        cls.addClassCleanup(cls.daemon.stop)
        cls.prometheus = Prometheus(folder.name, cls.daemon.address, SCRAPE_MS)
        cls.addClassCleanup(cls.prometheus.stop)
        cls.begin, clients = math.floor(time.time()), []
        try:
            cls.run_clients(clients)
            wait_for(lambda: all(panel.series for panel in cls.read()), "data in every panel")
            cls.read()  # all of it after the failure, which the panels before the last to show it may have missed
        except TimeoutError:
            pass  # test_every_panel_has_data says in which
        finally:
            for client in clients:
                client.kill()
                client.wait()

    @classmethod
    def run_clients(cls, running):
        """Two servers, and two ranks of which one is killed as soon as all are on the dashboard, which fails the other."""
        ranks = [("--rank", str(rank), "--ranks", "2", "--reduce-elements", "64") for rank in range(2)]
        running += [cls.daemon.demo("server-a"), cls.daemon.demo("server-b")]
        running += [cls.daemon.demo("trainer", "16x32x32", gpu, flags) for gpu, flags in enumerate(ranks)]
        by_session = TITLES.index("GPU time by session")
        wait_for(lambda: len(cls.read()[by_session].series) == len(running), "four sessions at work")
        running[-1].kill()

    @classmethod
    def read(cls):
        cls.shown = range(cls.begin, math.ceil(time.time()) + 1, STEP_S)
        cls.panels = dashboard.read(cls.prometheus, cls.shown[0], cls.shown[-1], STEP_S)
        return cls.panels

    def series(self, title):
        """{name: values}"""
        panel = self.panels[TITLES.index(title)]
        return {series.name: list(series.points.values()) for series in panel.series}

    def test_every_panel_has_data(self):
        self.assertEqual([panel.title for panel in self.panels], TITLES)
        self.assertEqual([panel.title for panel in self.panels if not panel.series], [])

    def test_panels_show_what_ran(self):
        user, node = f"uid {os.getuid()}", self.daemon.address
        for title in ("GPU time by user", "Floating-point operations", "Bytes moved", "Ops"):
            self.assertEqual(list(self.series(title)), [user], title)
            self.assertGreater(max(self.series(title)[user]), 0, title)
        for title in ("GPU time by session", "Queue wait by session"):
            names = [re.sub(r" \(\d+\)$", "", name) for name in self.series(title)]
            self.assertEqual(sorted(names), ["server-a", "server-b", "trainer", "trainer"], title)
        busy = self.series("GPU time by GPU")
        self.assertEqual(sorted(busy), [f"{node} GPU 0", f"{node} GPU 1"])
        self.assertLessEqual(max(map(max, busy.values())), 1)
        self.assertEqual(max(self.series("Sessions")["sessions"]), 4)
        self.assertEqual(set(self.series("GPUs that work")["GPUs"]), {2})
        self.assertEqual(list(self.series("Failed ops")), ["CANCELLED"])
        self.assertGreater(max(self.series("Ops that fail")["ops"]), 0)

    def test_no_variable_is_left(self):
        variables = dashboard.variables_of(dashboard.load(), self.prometheus, 1000 * STEP_S)
        self.assertEqual(variables["instance"], self.daemon.address.replace(".", "\\\\."))
        self.assertEqual(variables["gpu"], "(0|1)")
        self.assertEqual(variables["__rate_interval"], "2000ms")
        for title, expression in dashboard.targets():
            self.assertNotIn("$", dashboard.substitute(expression, variables), title)
        with self.assertRaises(KeyError):
            dashboard.substitute("up{job=\"$jobs\"}", variables)

    def test_a_query_that_prometheus_refuses_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "parse error"):
            self.prometheus.query_range("sum(concert_sessions", self.shown[0], self.shown[-1], STEP_S)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_the_picture_has_every_panel(self):
        panels = [*self.panels[:-1], dataclasses.replace(self.panels[-1], series=[])]
        picture = ElementTree.fromstring(dashboard_picture.picture(panels, self.shown))
        words = " ".join(" ".join(picture.itertext()).split())
        for expected in (*TITLES, "simulated H200", f"uid {os.getuid()}", "server-a (", "CANCELLED"):
            self.assertIn(expected, words)
        self.assertEqual(words.count("no data on the simulator"), 1)


class FileTest(unittest.TestCase):
    def test_what_has_no_limit_does_not_turn_red_at_80_as_grafana_would_have_it(self):
        for panel in dashboard.load()["panels"]:
            defaults = panel["fieldConfig"]["defaults"]
            if panel["type"] == "stat" and defaults["unit"] == "short":
                self.assertEqual([step["color"] for step in defaults["thresholds"]["steps"]], ["green"], panel["title"])


class DrawingTest(unittest.TestCase):
    def test_numbers_have_units_and_few_digits(self):
        for value, unit, expected in (
                (0, "percentunit", "0 %"), (0.01234, "percentunit", "1.23 %"), (17.5, "percentunit", "1750 %"), (4, "short", "4"),
                (0.00025, "s", "250 µs"), (1.5, "s", "1.50 s"), (2.5e9, "flops", "2.50 GFLOP/s"), (0.25, "ops", "0.25 ops/s"),
                (999e3, "Bps", "999 kB/s")):
            self.assertEqual(dashboard_picture.written(value, unit), expected)

    def test_a_line_loses_only_points_that_do_not_show(self):
        line = [(0, 0), (1, 0.1), (2, 0), (3, 5), (4, 0), (5, 0), (6, 0)]
        self.assertEqual(dashboard_picture.thinned(line, 0.2), [(0, 0), (2, 0), (3, 5), (4, 0), (6, 0)])


if __name__ == "__main__":
    unittest.main()

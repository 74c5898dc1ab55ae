#!/usr/bin/env python3
"""How hostile_suite.py judges, and that the published table is that of its result file."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from attacks import ATTACKS, BY_NAME, JUDGED
from attacks_table import render
from hostile_suite import harm_to_latency, lasting_harm

RESULTS = pathlib.Path(__file__).parents[3] / "docs/benchmarks/attacks.json"


def report(p50_us, p99_us=500, max_us=600):
    return {"count": 100, "p50_us": p50_us, "p99_us": p99_us, "max_us": max_us, "failures": 0, "why": ""}


def one_round(p50_us=200, p99_us=500, connect_us=900, beside_us=200, alone_us=50, **changes):
    attack = {"copy": report(p50_us, p99_us), "connect": report(300, 500, connect_us), "alive": True, "exit": 0,
              "forgotten": 0, "serves": True, "set_up": True, "left": [], "complaints": [], "held_mb": 3, "after_mb": 4}
    return {"attack": attack | changes, "burners": {"copy": report(beside_us), "connect": report(300)},
            "alone": {"copy": report(alone_us, 400), "connect": report(300)}}


class JudgementTest(unittest.TestCase):
    def harm(self, *rounds):
        return harm_to_latency(BY_NAME["refuse"], rounds) + lasting_harm(BY_NAME["refuse"], rounds, False)

    def test_nothing_is_harm_within_the_bounds(self):
        self.assertEqual(self.harm(one_round(p50_us=400, p99_us=10_500, connect_us=100_000, held_mb=64)), [])

    def test_each_bound(self):
        for changes, said in (({"p50_us": 401}, "2.0 times"), ({"p99_us": 10_501}, "p99 of copy is 10.0 ms above"),
                              ({"connect_us": 100_001}, "locked out for 100 ms"), ({"held_mb": 65}, "65 MB"),
                              ({"after_mb": 65}, "65 MB"), ({"forgotten": 3}, "3 sessions are listed"),
                              ({"left": ["7 buffers", "1 sessions"]}, "7 buffers, 1 sessions are held"),
                              ({"complaints": ["a wrong"]}, "an attacker saw: a wrong"),
                              ({"serves": False}, "serves nobody"), ({"exit": 1}, "did not end well"),
                              ({"set_up": False}, "had to wait"),
                              ({"alive": False, "exit": -6, "log": "why"}, "status -6: why"),
                              ({"copy": report(200) | {"failures": 2, "why": "bad"}}, "2 ops went wrong")):
            with self.subTest(changes):
                harm = self.harm(one_round(**changes))
                self.assertEqual(len(harm), 1)
                self.assertIn(said, harm[0])

    def test_latencies_are_those_of_most_rounds(self):
        good, bad = one_round(), one_round(p50_us=5_000)
        self.assertEqual(self.harm(good, bad, good), [])
        self.assertEqual(len(self.harm(bad, good, bad)), 1)

    def test_the_slowest_round_is_the_yardstick_of_p50(self):
        self.assertEqual(self.harm(one_round(beside_us=60), one_round(beside_us=100), one_round(beside_us=60)), [])
        self.assertEqual(len(self.harm(one_round(beside_us=60))), 1)

    def test_who_is_as_fast_as_alone_is_not_harmed(self):
        self.assertEqual(self.harm(one_round(beside_us=50, alone_us=110)), [])
        self.assertIn("3.6 times that beside burners", self.harm(one_round(beside_us=55, alone_us=50))[0])
        self.assertIn("2.2 times that alone", self.harm(one_round(beside_us=50, alone_us=90))[0])

    def test_nobody_is_locked_out_in_any_round_and_memory_holds_in_every(self):
        for changes in ({"connect_us": 1_000_000}, {"held_mb": 400}):
            self.assertEqual(len(self.harm(one_round(), one_round(**changes), one_round())), 1)


class TableTest(unittest.TestCase):
    def test_what_is_not_judged_has_a_reason(self):
        for attack in ATTACKS:
            self.assertEqual(attack.judged == JUDGED, not attack.unjudged_why, attack.name)

    def test_the_published_table_is_that_of_its_file(self):
        self.assertEqual(RESULTS.with_suffix(".md").read_text(), render(json.loads(RESULTS.read_text())))

    def test_every_attack_is_published(self):
        self.assertEqual(list(json.loads(RESULTS.read_text())["attacks"]), [attack.name for attack in ATTACKS])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The file of random sets is what random_scenarios.py makes, and other seeds make other sets."""
import pathlib
import sys
import unittest

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))
import random_scenarios


class RandomScenariosTest(unittest.TestCase):
    def test_the_file_is_what_the_script_writes(self):
        self.assertEqual((FOLDER / "scenarios" / "unseen.json").read_text(), random_scenarios.text(60, 60))

    def test_sets_keep_to_their_limits(self):
        for seed in range(20):
            made = random_scenarios.scenarios(seed, 12)
            self.assertNotEqual(made, random_scenarios.scenarios(seed + 1, 12), f"seed {seed}")
            for scenario in made:
                self.assertLessEqual(random_scenarios.flops(scenario["gemms"]), random_scenarios.MAX_FLOPS)
                count = sum(gemm.get("count", 1) for gemm in scenario["gemms"])
                self.assertTrue(2 <= count <= 8, f"seed {seed}: {scenario}")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The files of random sets are what random_scenarios.py makes, and sets keep to the limits of their class."""
import pathlib
import sys
import unittest

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))
import random_scenarios

LIMITS = random_scenarios.LIMITS


def fits(kind, gemm):
    limits = LIMITS[kind]
    within = all(limits["nk"][0] <= gemm[key] <= limits["nk"][1] for key in ("n", "k"))
    whole = kind == "large" or all(gemm[key] % limits["unit"] == 0 for key in ("n", "k"))
    return limits["m"][0] <= gemm["m"] <= limits["m"][1] and within and whole


class RandomScenariosTest(unittest.TestCase):
    def test_the_files_are_what_the_script_writes(self):
        for kind, seed in random_scenarios.SEEDS.items():
            file = FOLDER / "scenarios" / f"random-{kind}.json"
            self.assertEqual(file.read_text(), random_scenarios.text(kind, seed, 60), kind)

    def test_sets_keep_to_the_limits_of_their_class(self):
        for seed in range(20):
            for kind, limits in LIMITS.items():
                made = random_scenarios.scenarios(kind, seed, 12)
                self.assertNotEqual(made, random_scenarios.scenarios(kind, seed + 1, 12), f"seed {seed}")
                for scenario in made:
                    gemms = scenario["gemms"]
                    where = f"seed {seed}: {scenario}"
                    self.assertLessEqual(random_scenarios.flops(gemms), limits["flops"], where)
                    low, high = limits["count"]
                    self.assertTrue(low <= random_scenarios.gemm_count(gemms) <= high, where)
                    kinds = [next((k for k in ("large", "small", "tiny") if fits(k, gemm)), None) for gemm in gemms]
                    if kind == "mixed":
                        self.assertTrue("large" in kinds and None not in kinds and len(set(kinds)) > 1, where)
                    else:
                        self.assertTrue(all(fits(kind, gemm) for gemm in gemms), where)

    def test_fp8_operands_have_rows_that_every_library_takes(self):
        for kind in LIMITS:
            for scenario in random_scenarios.scenarios(kind, 1, 60):
                for gemm in scenario["gemms"]:
                    if "dtype" in gemm:
                        self.assertEqual((gemm["n"] % 16, gemm["k"] % 16), (0, 0), scenario)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The tables that report.py makes of result files. Plots need matplotlib, which a build machine may lack."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import report

HEADER = {"gpu": "a GPU", "gpus": 1, "device": "cuda", "policy": "auto", "rounds": 40, "commit": "abc", "date": "today"}


def times(**forms):
    return {form: {"p50": us, "p10": us, "p90": us} for form, us in forms.items()}


def gemm_result():
    scenario = {"name": "x", "bound_us": 8.0, "max_rel_error": 2e-3, "plan": "group of 3 | one launch",
                "predicted_us": 9.5, "planned_us": 10.5, "oracle": {"form": "forced_group", "p50": 9.0},
                "within_3_percent": False,
                "times_us": times(concert=10.0, serial=30.0, streams=20.0, goldyloc=15.0, forced_group=9.0, isolated=25.0,
                                  isolated_local=50.0, isolated_graph=20.0)}
    return {"suite": "gemm", "header": HEADER | {"baselines": ["serial", "streams"], "policies": ["goldyloc"]},
            "scenarios": [scenario], "summary": {"roofline_share": 0.8, "prediction_error": 0.24}}


class ReportTest(unittest.TestCase):
    def test_the_best_baseline_is_no_policy(self):
        result = gemm_result()
        self.assertEqual(report.speedups_of(result, result["scenarios"][0]),
                         {"serial": 3.0, "streams": 2.0, "goldyloc": 1.5, "best_baseline": 2.0})

    def test_gemm_has_times_isolated_batches_and_plans(self):
        text = "\n".join(report.table(gemm_result()))
        self.assertIn("| x | 10.0 | 30.0 | 20.0 | 15.0 | 9.0 | 8.0 | 3.00 | 2.00 | 1.50 | 2.00 | 80 % | 2.0e-03 |", text)
        self.assertIn("| x | 25.0 (25.0–25.0) | 50.0 (50.0–50.0) | 20.0 (20.0–20.0) | 2.00 | 0.80 |", text)
        self.assertIn("| x | 9.5 | 10.5 | forced_group | group of 3 / one launch |", text)
        self.assertIn("geomean 0.80", text)
        self.assertIn("within 24 % (median), batches within 5 %.", text)

    def test_a_file_without_names_of_baselines_compares_with_everybody(self):
        result = gemm_result()
        del result["header"]["baselines"]
        self.assertEqual(report.rivals_of(result), ["serial", "streams", "goldyloc"])

    def test_tenants_have_a_row_per_client(self):
        alone = [{"p50": 40.0, "p99": 50.0}] * 2
        scenario = {"name": "y", "clients": 2, "max_rel_error": 1e-3,
                    "times_us": times(concert=2.0, time_sliced=14.0),
                    "throughput_per_s": {"concert": 500000.0, "time_sliced": 71428.6},
                    "latency_us": {"concert": [{"p50": 60.0, "p99": 75.0}, {"p50": 61.0, "p99": 76.0}]},
                    "solo_latency_us": {"concert": alone},
                    "unavailable": [{"name": "mps", "why": "client 1 of 2 failed; GPU: 7 MiB free"}]}
        result = {"suite": "tenants", "header": HEADER | {"baselines": ["time_sliced", "mps"]},
                  "scenarios": [scenario], "summary": {}}
        text = "\n".join(report.table(result))
        self.assertIn("| y | 2.00 | 14.00 | – | 500000 | 71429 | – | 7.00 | – | 1.0e-03 |", text)
        self.assertIn("| y | 1 | 61 / 76 (50) | – | – |", text)
        self.assertIn("- `y` has no mps: client 1 of 2 failed.\n", text)


if __name__ == "__main__":
    unittest.main()

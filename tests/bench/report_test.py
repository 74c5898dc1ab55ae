#!/usr/bin/env python3
"""The tables that report.py makes of result files. Plots need matplotlib, which a build machine may lack."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import report
import report_data

try:
    import matplotlib
except ImportError:
    matplotlib = None

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

    def test_what_is_lost_comes_before_what_is_gained(self):
        result = gemm_result()
        result["scenarios"][0]["times_us"] |= times(streams=9.0, isolated_graph=20.0)
        text = "\n".join(report.table(result))
        lost = text.index("| `x` |  | one batch at a time | isolated_graph | 0.80× |")
        self.assertLess(lost, text.index("| `x` |  | batches in flight | streams | 0.90× |"))
        self.assertLess(lost, text.index("Over `serial`: geomean 3.00×"))

    def test_a_loss_is_no_policys_and_no_tie(self):
        result = gemm_result()
        result["scenarios"][0]["times_us"] |= times(goldyloc=1.0, forced_group=1.0, streams=9.9, isolated_graph=24.9)
        self.assertEqual(report_data.losses_of(result), [])

    def test_modelled_results_and_quick_looks_say_so_first(self):
        result = gemm_result()
        self.assertEqual(report.table(result)[0], "# Suite `gemm`")
        result["header"] |= {"device": "sim", "rounds": 2}
        lines = report.table(result)
        self.assertEqual(lines[0], "# Suite `gemm` (modelled H200, results computed on this CPU; quick look of 2 rounds)")
        self.assertTrue(lines[2].startswith("**Modelled H200, results computed on this CPU"), lines[2])

    def test_of_unequal_clients_each_counts_alike_and_every_loser_is_named(self):
        result = tenants_result()
        speedups = report_data.speedups_of(result, result["scenarios"][0])
        self.assertAlmostEqual(speedups["mps"], 2.0)  # 8x and 0.5x
        text = "\n".join(report.table(result))
        self.assertIn("| `y` | large, low | throughput | mps | 0.50× |", text)
        self.assertIn("| `y` | large, low | p99 | mps | 0.40× |", text)
        self.assertNotIn("| small, high |", text.split("## All of it")[0])
        self.assertIn("| y | 2.00 (1.90–2.10) | – | 14.00 (13.00–15.00) | – | 2.00 | 1.0e-03 |", text)
        self.assertIn("| y | 1 × small, high | concert | 60 (58–62) | 75 (70–90) | 50 |  |", text)
        self.assertIn("- `y` has no time_sliced: client 1 of 2 failed.\n", text)

    def test_steps_have_rates_and_lose_to_no_form_of_concert(self):
        result = steps_result()
        text = "\n".join(report.table(result))
        self.assertIn("| y | 8000 | 5000 | 10000 | 16000 | 50 % | 1.60 | 0.80 | 9.0e-03 |", text)
        self.assertIn("Weights are shared in `y`: the bound has them once; they are there once, sealed, in concert", text)
        self.assertIn("| y | 2 × s | mps | 180 (178–182) |", text)
        self.assertIn("| y | 28.2 (at most 36.5) | 2.0 (at most 2.5) | 3.0 | 9.0 | 0.5 |", text)
        self.assertEqual([loss.over for loss in report_data.losses_of(result)], [])
        self.assertAlmostEqual(report_data.speedups_of(result, result["scenarios"][0])["best_baseline"], 1.6)
        result["scenarios"][0]["kept_of_alone"] = {"concert": [0.7, 0.65], "ops": [0.8, 0.8]}
        text = "\n".join(report.table(result))
        self.assertIn("| y | 2 × s | concert | 120 (118–122) | 130 (125–145) | – | 65 % |  |", text)
        self.assertIn("| y | 2 × s | mps | 180 (178–182) | 220 (215–235) | – | – | 1.60 |", text)

    def test_c3_has_shares_of_the_ideal_and_its_worst_first(self):
        result = c3_result()
        text = "\n".join(report.table(result))
        self.assertIn("| `slow` |  | GEMM and collective | priority | 0.83× |", text)
        self.assertIn("| all_gather on 2 GPUs | 2 | 62 % | 50 % | 71 % | 62 % |", text)
        self.assertLess(text.index("| slow | 120.0 | 160.0 | 100.0 | 80.0 | 50.0 | 80.0 | 50 % | 50 % |"),
                        text.index("| fast | 100.0 | 160.0 | 120.0 | 80.0 | 50.0 | 80.0 | 75 % | 75 % |"))
        self.assertIn("| slow | form_ce | 1.17 | 120.0 | 103.0 |", text)
        self.assertIn("| fast | all_gather by ce | GEMMs / SMs | 90.0 | 100.0 | 10 % |", text)
        self.assertIn("- `fast` has no conccl: no windows.", text)

    def test_a_share_needs_something_to_gain(self):
        scenario = c3_result()["scenarios"][0] | {"ideal_us": 200.0}
        self.assertIsNone(report_data.share(scenario, 100.0, "ideal_us"))

    def test_collectives_have_a_table_for_each_kind(self):
        text = "\n".join(report.table(collectives_result()))
        self.assertIn("### all_reduce, 2 GPUs", text)
        self.assertIn("| 64 KiB | 16.0 | 32.0 | 2.00 | 0.1 | 4.1 | 2.0 | 40.0 | 20.0 | 0.50 | 1.50 | 18.0 | 36.0 | 2.00 |",
                      text)
        self.assertIn("- Beside GEMMs, until both are over, over NCCL: geomean 1.50×, worst 1.50× (`all_reduce-64KiB`).", text)
        self.assertIn("| `all_reduce-64KiB` |  | beside GEMMs | nccl | 0.50× |", text)
        self.assertEqual(len(report_data.losses_of(collectives_result())), 1)

    def test_both_are_over_when_the_later_one_is_run_by_run(self):
        scenario = collectives_result()["scenarios"][0]
        self.assertEqual(report_data.both_over_speedup(scenario), 75 / 50)
        run_by_run = scenario | {"both_us": times(concert=60.0, nccl=78.0)}
        self.assertEqual(report_data.both_over_speedup(run_by_run), 78 / 60)
        self.assertIsNone(report_data.both_over_speedup(scenario | {"both_us": times(concert=60.0)}))

    @unittest.skipIf(matplotlib is None, "needs matplotlib")
    def test_both_have_plots_of_a_size_to_publish(self):
        for result in (c3_result(), collectives_result()):
            with tempfile.TemporaryDirectory() as folder:
                report.write(result, pathlib.Path(folder) / "x", plots=True)
                self.assertGreater((pathlib.Path(folder) / "x.svg").stat().st_size, 0)

    def test_old_tenants_lose_to_their_own_graphs_alone(self):
        scenario = tenants_result()["scenarios"][0]
        del scenario["class"], scenario["client_names"]
        scenario["solo_latency_us"] = {"concert": [{"p50": 50.0, "p99": 60.0}, {"p50": 40.0, "p99": 60.0}],
                                       "time_sliced": [{"p50": 40.0, "p99": 60.0}, {"p50": 40.0, "p99": 50.0}]}
        result = tenants_result() | {"scenarios": [scenario]}
        del result["header"]["laps"]
        alone = [loss for loss in report_data.losses_of(result) if "alone" in loss.who]
        self.assertEqual(alone, [("y", "client 0 alone", "chain", "its own CUDA graph (time_sliced)", 0.8)])
        self.assertTrue(report_data.is_quick_look(result), "it had one to eight laps")


def c3_result():
    def scenario(name, concert, priority):
        return {"name": name, "class": "all_gather on 2 GPUs", "gpus": 2, "max_rel_error": 1e-3, "ideal_us": 80.0,
                "bound_us": 80.0, "oracle": {"form": "form_ce", "p50": 103.0}, "within_3_percent": False,
                "times_us": times(concert=concert, serial=160.0, priority=priority, form_ce=103.0, gemm_alone=80.0,
                                  collective_alone=50.0)}
    fast = scenario("fast", 100.0, 120.0) | {"predicted_us": 90.0, "prediction_error": 0.1, "plan": "GEMMs | SMs",
                                             "collective_plan": "all_gather by ce",
                                             "unavailable": [{"name": "conccl", "why": "no windows; NCCL 2.26"}]}
    return {"suite": "c3", "header": HEADER | {"baselines": ["serial", "priority"], "forms": ["form_ce"]},
            "scenarios": [fast, scenario("slow", 120.0, 100.0)], "summary": {}}


def collectives_result():
    scenario = {"name": "all_reduce-64KiB", "kind": "all_reduce", "class": "all_reduce", "bytes": 65536, "gpus": 2,
                "bound_us": 0.1, "max_rel_error": 0.0,
                "times_us": times(concert=16.0, nccl=32.0, concert_8_sms=18.0, nccl_8_ctas=36.0),
                "beside_us": times(concert=40.0, nccl=20.0), "gemms_beside_us": times(concert=50.0, nccl=75.0),
                "busbw_gb_per_s": {"concert": 4.1, "nccl": 2.0}, "beside_busbw_gb_per_s": {"concert": 1.6, "nccl": 3.3}}
    return {"suite": "collectives", "header": HEADER | {"baselines": ["nccl"]}, "scenarios": [scenario],
            "summary": {"beside": {"geomean": 0.5, "worst": 0.5, "worst_scenario": "all_reduce-64KiB"}}}


def tenants_result():
    def latency(p50, p99):
        return {"p50": p50, "p99": p99, "p50_p10": p50 - 2, "p50_p90": p50 + 2, "p99_p10": p99 - 5, "p99_p90": p99 + 15}
    scenario = {"name": "y", "class": "shared", "clients": 2, "client_names": ["small, high", "large, low"],
                "max_rel_error": 1e-3,
                "times_us": {"concert": {"p50": 2.0, "p10": 1.9, "p90": 2.1}, "mps": {"p50": 14.0, "p10": 13.0, "p90": 15.0}},
                "client_throughput_per_s": {"concert": [8000.0, 500.0], "mps": [1000.0, 1000.0]},
                "latency_us": {"concert": [latency(60.0, 75.0), latency(100.0, 100.0)],
                               "mps": [latency(480.0, 500.0), latency(30.0, 40.0)]},
                "solo_latency_us": {"concert": [latency(40.0, 50.0)] * 2},
                "unavailable": [{"name": "time_sliced", "why": "client 1 of 2 failed; GPU: 7 MiB free"}]}
    return {"suite": "tenants", "header": HEADER | {"baselines": ["time_sliced", "mps"], "laps": 20, "lap_ms": 50},
            "scenarios": [scenario], "summary": {}}


def steps_result():
    def latency(p50, p99):
        return {"p50": p50, "p99": p99, "p50_p10": p50 - 2, "p50_p90": p50 + 2, "p99_p10": p99 - 5, "p99_p90": p99 + 15}
    scenario = {"name": "y", "class": "shared", "clients": 2, "client_names": ["s", "s"], "max_rel_error": 9e-3,
                "times_us": {"concert": {"p50": 125.0}, "mps": {"p50": 200.0}, "ops": {"p50": 100.0}},
                "throughput_per_s": {"concert": 8000.0, "mps": 5000.0, "ops": 10000.0},
                "client_throughput_per_s": {"concert": [4000.0] * 2, "mps": [2500.0] * 2, "ops": [5000.0] * 2},
                "latency_us": {"concert": [latency(120.0, 130.0)] * 2, "mps": [latency(180.0, 220.0)] * 2,
                               "ops": [latency(90.0, 100.0)] * 2},
                "bound_steps_per_s": 16000.0, "share_of_bound": {"concert": 0.5}, "weights": "shared",
                "weights_are": "once, sealed, in concert and ops; a copy for each client in the other modes",
                "programs": {"registering_ms": [20.0, 36.5], "first_run_ms": [1.5, 2.5], "arena_bytes": 3 << 20,
                             "slot_bytes": 9 << 20, "workspace_bytes": 1 << 19}}
    return {"suite": "steps", "header": HEADER | {"baselines": ["mps"], "policies": ["ops"], "laps": 20, "lap_ms": 100},
            "scenarios": [scenario], "summary": {}}


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""What publish.py refuses and writes, and that docs/benchmarks says what its result files do."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import at_a_glance
import headlines
import publish
import report_data
import report_parts

try:
    import matplotlib
except ImportError:
    matplotlib = None


def result(**header):
    return {"schema": 1, "suite": "overhead", "summary": {},
            "header": {"gpu": "NVIDIA H200", "gpus": 1, "device": "cuda", "policy": "auto", "rounds": 40,
                       "commit": "0123456789abcdef", "date": "2026-01-02T03:04:05Z"} | header,
            "scenarios": [{"name": "idle", "local_us": {"p50": 10.0, "p90": 11.0, "p99": 12.0},
                           "ring_us": {"p50": 12.5, "p90": 12.0, "p99": 12.1},
                           "added_us": {"p50": 2.5, "p90": 1.0, "p99": 0.1}}]}


class PublishTest(unittest.TestCase):
    def test_the_published_page_and_tables_say_what_the_files_do(self):
        self.assertEqual(publish.stale(publish.DOCS), [], "run tests/bench/publish.py")

    def test_sentences_written_by_hand_say_what_the_files_do(self):
        results = publish.results_in(publish.DOCS)
        self.assertEqual(headlines.unsaid(publish.ROOT, results), [])
        self.assertLessEqual(set(headlines.OF_FILE), set(results), "no such file")
        report_data.named(results["overhead-h200"], "seven_busy")["added_us"]["p50"] = 1234.5
        self.assertEqual(headlines.unsaid(publish.ROOT, results),
                         ["docs/benchmarks/README.md does not say: Beside seven busy clients it adds 1234.5 µs"])

    def test_the_front_page_has_each_question_with_its_worst_and_losses_in_bold(self):
        results = publish.results_in(publish.DOCS)
        rows = at_a_glance.rows_of(results)
        self.assertEqual({row.of for row in rows}, set(at_a_glance.OF_FILE))
        table = at_a_glance.table(results)
        for row in rows:
            self.assertTrue(row.ratios, row.what)
            self.assertIn(f"| {row.what} | {row.against} |", table)
        self.assertIn("**0.67×** |", table)
        rates = report_data.named(results["steps-h200"], "high-beside-low")["client_throughput_per_s"]
        rates["concert"] = [2 * rate for rate in rates["concert"]]
        self.assertIn("| 1.34× |", at_a_glance.table(results))
        self.assertNotIn("**0.67×** |", at_a_glance.table(results))

    def test_a_figure_that_the_files_do_not_have_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            docs = self.documents(folder)
            self.assertIn("0.80×", (docs / "README.md").read_text(encoding="utf-8"))
            self.assertEqual([path for path in publish.stale(docs) if path.endswith("README.md")], [])
            text = (docs / "README.md").read_text(encoding="utf-8")
            (docs / "README.md").write_text(text.replace("0.80×", "0.99×"), encoding="utf-8")
            self.assertIn(str(docs / "README.md"), publish.stale(docs))

    def test_what_flatters_or_cannot_be_had_again_is_refused(self):
        self.assertEqual(publish.objection(result(), False), "")
        for header, why in (({"device": "sim"}, "modelled"), ({"rounds": 2}, "quick look"),
                            ({"commit": "012-dirty"}, "012-dirty"), ({"commit": "unknown"}, "unknown")):
            self.assertIn(why, publish.objection(result(**header), False))
        self.assertEqual(publish.objection(result(rounds=2), True), "")
        failed = result() | {"summary": {"failed": [{"name": "idle"}]}}
        self.assertIn("idle", publish.objection(failed, True))

    def part(self, name, ratio, **header):
        scenario = {"name": name, "class": "shared", "speedup_over": {"mps": ratio, "best_baseline": ratio}}
        summary = {"scenarios": 1, "failed": [], "skipped": [], "lost_to_best_baseline": [name] if ratio < 1 else [],
                   "client_losses": [{"scenario": name, "speedup": ratio}] if ratio < 1 else [], "tolerance": 0.02}
        return result(wall_s=100, gpu_id=name, **header) | {"suite": "steps", "summary": summary, "scenarios": [scenario]}

    def test_parts_of_a_suite_become_one_result(self):
        self.assertEqual([report_parts.suite_stem(path) for path in ("x/steps.json", "steps.1.json", "steps-more.12.json")],
                         ["steps", "steps", "steps-more"])
        first, second = self.part("a", 2.0), self.part("b", 0.5)
        self.assertEqual(report_parts.joined([first]), first)
        whole = report_parts.joined([first, second])
        self.assertEqual([scenario["name"] for scenario in whole["scenarios"]], ["a", "b"])
        self.assertEqual([part["gpu_id"] for part in whole["header"]["parts"]], ["a", "b"])
        self.assertEqual(whole["header"]["wall_s"], 200)
        self.assertEqual(whole["summary"]["speedup_over"]["mps"],
                         {"geomean": 1.0, "best": 2.0, "worst": 0.5, "worst_scenario": "b"})
        self.assertEqual(whole["summary"]["by_class"], {"shared": {"best_baseline": 1.0, "mps": 1.0}})
        self.assertEqual(whole["summary"]["lost_to_best_baseline"], ["b"])
        self.assertEqual(whole["summary"]["scenarios"], 2)

    def test_parts_that_were_not_measured_alike_are_refused(self):
        with self.assertRaisesRegex(ValueError, "differ in commit"):
            report_parts.joined([self.part("a", 2.0), self.part("b", 2.0, commit="f" * 40)])
        with self.assertRaisesRegex(ValueError, r"in common: \['a'\]"):
            report_parts.joined([self.part("a", 2.0), self.part("a", 2.0)])

    def test_nothing_is_published_where_parts_cannot_be_joined(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as docs:
            for name, content in (("overhead", result()), ("steps.1", self.part("a", 2.0)),
                                  ("steps.2", self.part("b", 2.0, commit="f" * 40))):
                (pathlib.Path(folder) / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
            with self.assertRaisesRegex(SystemExit, "parts of steps differ in commit"):
                publish.publish(pathlib.Path(folder), pathlib.Path(docs), False)
            self.assertEqual(list(pathlib.Path(docs).iterdir()), [])

    def test_a_file_is_named_after_its_gpus(self):
        self.assertEqual(publish.published_name("gemm", result()), "gemm-h200")
        self.assertEqual(publish.published_name("c3", result(gpus=8)), "c3-h200x8")
        self.assertEqual(publish.published_name("gemm-h200", result()), "gemm-h200")
        self.assertEqual(publish.published_name("gemm", result(gpu="NVIDIA H100 80GB HBM3")), "gemm-h100")
        self.assertEqual(publish.published_name("gemm", result(gpu="NVIDIA A100-SXM4-80GB")), "gemm-a100")

    @unittest.skipIf(matplotlib is None, "needs matplotlib")
    def test_one_command_writes_everything(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as results:
            docs = self.documents(folder)
            (pathlib.Path(results) / "overhead.json").write_text(json.dumps(result(), indent=4), encoding="utf-8")
            publish.publish(pathlib.Path(results), docs, allow_quick_look=False)
            (docs / "README.md").write_text(publish.pages(docs, publish.results_in(docs))[docs / "README.md"], encoding="utf-8")
            self.assertEqual(publish.stale(docs), [])
            self.assertLess((docs / "overhead-h200.svg").stat().st_size, 40_000)

    def documents(self, folder):
        """A folder like docs/benchmarks with one file."""
        docs = pathlib.Path(folder)
        (docs / "overhead-h200.json").write_text(report_data.dump(result()), encoding="utf-8")
        (docs / "README.md").write_text("".join(publish.BLOCK.format(name, "") for name in ("losses", "files")),
                                        encoding="utf-8")
        (docs / "README.md").write_text(publish.pages(docs, publish.results_in(docs))[docs / "README.md"], encoding="utf-8")
        return docs


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of the training scripts: test_training.py PREDICT_COSTS. What needs scikit-learn is skipped without it."""

import contextlib
import glob
import hashlib
import io
import math
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import fit_costs
import store

try:
    import degrees
    import train_degree
except ImportError as error:
    degrees = train_degree = None
    MISSING = str(error)
else:
    MISSING = ""

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = sorted(glob.glob(os.path.join(HERE, "data", "*_store.jsonl.gz")))
PREDICT = None


def row(degree, form, median_us, m=64, **more):
    return {"m": m, "n": 128, "k": 256, "batch": 1, "dtype": "bf16", "sm_budget": 0, "degree": degree, "form": form,
            "median_us": median_us, **more}


def committed(path):
    with open(os.path.join(HERE, "../..", path), encoding="utf-8") as file:
        return file.read()


class StoreTest(unittest.TestCase):
    def test_best_variant_of_an_export_counts_and_exports_are_compared_by_their_ratios(self):
        rows = [row("solo", "single", 10.0, export="a"), row("two", "streams", 8.0, export="a"),
                row("two", "streams", 5.0, export="a"), row("solo", "single", 40.0, export="b"),
                row("two", "streams", 20.0, export="b"), row("two", "streams", 1.0, sm_budget=64)]
        times = store.times(rows)[store.Problem(64, 128, 256)]
        self.assertAlmostEqual(times["solo", "single"], 20.0)
        self.assertAlmostEqual(times["two", "streams"], 10.0)

    def test_streams_times_are_solo_and_co_run_sets_on_streams_only(self):
        times = {("solo", "single"): 4.0, ("solo", "streams"): 5.0, ("two", "streams"): 3.0, ("eight", "group"): 1.0}
        self.assertEqual(store.streams_times(times), {1: 4.0, 2: 3.0})

    def test_a_line_that_is_no_row_is_named(self):
        for text in ('{"m": 1}', "[]", "x", '{"m": 0, "n": 1, "k": 1, "degree": "two", "form": "streams", '
                     '"median_us": 1}', '{"m": 1, "n": 1, "k": 1, "degree": "six", "form": "streams", "median_us": 1}'):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write("\n" + text)
                file.flush()
                with self.assertRaisesRegex(SystemExit, re.escape(file.name) + ":2: not a row"):
                    store.read([file.name])


    def test_the_committed_data_are_what_the_committed_model_was_trained_on(self):
        digest = hashlib.sha256()
        for path in DATA:
            digest.update(store.text_of(path).encode())
        self.assertIn(digest.hexdigest(), committed("policies/models/degree_h200.h"))
        self.assertGreater(len(store.read(DATA)), 500)


class FitCostsTest(unittest.TestCase):
    def test_finds_a_constant_that_made_the_times(self):
        predictor = fit_costs.Predictor(PREDICT)
        self.addCleanup(predictor.close)
        shapes = [(16 * i, 512 * i, 1024, 1, "bf16", count) for i in range(1, 5) for count in (2, 8)]
        unmeasured = [fit_costs.Measured((gemm,), form, 1.0) for gemm in shapes for form in ("single", "streams")]
        truth = {**fit_costs.todays_constants(), "handover_us": 4.0}
        times = [fit_costs.math.exp(error) for error in predictor.errors(unmeasured, truth)]
        measured = [one._replace(time_us=time_us) for one, time_us in zip(unmeasured, times)]
        before = fit_costs.objective(measured, predictor.errors(measured, {}))
        fitted = fit_costs.fit(predictor, measured, 400, seed=1)
        after = fit_costs.objective(measured, predictor.errors(measured, fitted))
        self.assertLess(after, before / 4)

    def test_the_loss_is_what_the_form_predicted_fastest_takes_more(self):
        def of(form, count, time_us, predicted_us):
            return fit_costs.Measured(((64, 128, 256, 1, "bf16", count),), form, time_us), math.log(predicted_us / time_us)
        pairs = [of("single", 1, 4, 5), of("streams", 2, 6, 9), of("group", 2, 9, 7), of("group", 4, 10, 12)]
        self.assertEqual(list(fit_costs.losses(*zip(*pairs))), [9 / 6 - 1, 0])


class ReportTest(unittest.TestCase):
    @unittest.skipIf(MISSING, MISSING)
    def test_names_the_best_form(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            train_degree.report(store.times([row("solo", "single", 4.0), row("eight", "group", 1.0),
                                             row("two", "streams", 3.0)]))
        self.assertRegex(out.getvalue(), r"64x128x256 bf16 +group/eight +1\.00 +4\.00 +2 ")


@unittest.skipIf(MISSING, MISSING)
class DegreesTest(unittest.TestCase):
    def test_running_together_must_save_enough_to_be_labelled_best(self):
        self.assertEqual(degrees.label_of({1: 10.0, 2: 9.6}), 1)
        self.assertEqual(degrees.label_of({1: 10.0, 2: 9.4, 4: 9.3}), 4)

    def test_a_sample_per_depth_offers_the_degrees_that_depth_allows(self):
        times = store.times([row("solo", "single", 4.0), row("two", "streams", 3.0), row("eight", "streams", 2.0)])
        self.assertEqual([(s.depth, s.label) for s in degrees.samples_of(times)], [(1, 1), (2, 2), (4, 2), (8, 8)])

    def test_learns_that_small_gemms_want_others(self):
        rows = []
        for m in (16, 32, 64, 2048, 4096, 8192):
            gain = {16: (0.9, 0.7, 0.4), 32: (0.9, 0.7, 0.4), 64: (0.8, 0.6, 0.5)}.get(m, (1.1, 1.2, 1.3))
            rows.append(row("solo", "single", float(m), m))
            rows += [row(degree, "streams", m * ratio, m) for degree, ratio in zip(("two", "four", "eight"), gain)]
        model = degrees.Model(degrees.samples_of(store.times(rows)), 132)
        self.assertEqual(model.predict(store.Problem(24, 128, 256), 8), 8)
        self.assertEqual(model.predict(store.Problem(6000, 128, 256), 8), 1)
        self.assertAlmostEqual(sum(model.probabilities(store.Problem(24, 128, 256), 8)), 1)


@unittest.skipIf(MISSING, MISSING)
class CommittedModelTest(unittest.TestCase):
    def test_is_what_the_committed_data_give(self):
        header = committed("policies/models/degree_h200.h")
        self.assertIn(train_degree.hash_of(DATA), header)
        samples = degrees.samples_of(store.times(store.read(DATA)))
        model = degrees.Model(samples, 132)
        # Degrees only: the last digits of the coefficients depend on the versions of the libraries.
        fixture = committed(train_degree.FIXTURE)
        cases = re.findall(r"\{\{(\d+), (\d+), (\d+), (\d+), Dtype::kBf16\}, (\d+), (\d+),", fixture)
        self.assertGreater(len(cases), 40)
        for m, n, k, batch, depth, degree in (map(int, case) for case in cases):
            self.assertEqual(model.predict(store.Problem(m, n, k, batch), depth), degree, (m, n, k, batch, depth))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    PREDICT = sys.argv.pop(1)
    unittest.main()

#!/usr/bin/env python3
"""Trains the concurrency-degree model of the policy `goldyloc` from exports of the tuning store.

  train_degree.py EXPORT.jsonl... --gpu H200            writes policies/models/degree_h200.h and the test's fixture
  train_degree.py EXPORT.jsonl... --report              prints the best form and degree of every problem (the oracle)
  train_degree.py EXPORT.jsonl... --gpu H200 --dry-run  prints the cross-validated scores only
"""

import argparse
import datetime
import hashlib
import os
import textwrap

import degrees
import store

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
FIXTURE = "tests/unit/policies/degree_fixture.h"
# Besides the shapes trained on: sizes far from them, batches, other dtypes, and sizes of 1.
FIXTURE_EXTRAS = [store.Problem(1, 1, 1), store.Problem(16, 16, 4096), store.Problem(333, 479, 70),
                  store.Problem(64, 128, 128, 12), store.Problem(512, 1024, 1024, 1, "fp32"),
                  store.Problem(8192, 8192, 8192), store.Problem(8192, 28672, 8192)]


def hash_of(paths):
    """Of what the exports say, however they are compressed."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(store.text_of(path).encode())
    return digest.hexdigest()


def array(values, indent=8):
    """A braced list of numbers that give back the same doubles, in lines of at most 100 columns."""
    numbers = ", ".join(repr(float(value)) for value in values)
    return "{" + ("\n" + " " * indent).join(textwrap.wrap(numbers, 96 - indent)) + "}"


def model_header(model, scores, arguments, samples):
    name = arguments.gpu.lower()
    guard = f"CONCERT_POLICIES_MODELS_DEGREE_{name.upper()}_H_"
    classes = [int(c) for c in model.regression.classes_]
    # A degree that no sample had can never win.
    row_of = {degree: (model.regression.intercept_[i], model.regression.coef_[i]) for i, degree in enumerate(classes)}
    never = (-1e9, [0.0] * len(model.scaler.mean_))
    rows = [row_of.get(degree, never) for degree in degrees.DEGREES]
    coefficients = ",\n        ".join(array(row, 9) for _, row in rows)
    shapes = len({sample.problem for sample in samples})
    return f"""// Written by policies/training/train_degree.py: train again rather than edit.
// clang-format off
#ifndef {guard}
#define {guard}

#include "policies/baselines/degree_model.h"

namespace concert::policies {{

inline constexpr DegreeModel kDegreeModel{arguments.gpu} = {{
    .gpu = "{arguments.gpu}",
    .date = "{arguments.date}",
    .source =
        "{hash_of(arguments.exports)}",
    .shapes = {shapes},
    .samples = {len(samples)},
    .cv_accuracy = {scores.accuracy:.4f},
    .cv_mean_loss = {scores.mean_loss:.4f},
    .mean = {array(model.scaler.mean_)},
    .scale = {array(model.scaler.scale_)},
    .intercept = {array(intercept for intercept, _ in rows)},
    .coefficient = {{{{
        {coefficients}}}}},
}};

}}  // namespace concert::policies

#endif  // {guard}
"""


def fixture_header(model, samples, sm_count):
    dtype_names = {"bf16": "kBf16", "fp16": "kFp16", "fp32": "kFp32"}
    lines = []
    for problem in sorted({sample.problem for sample in samples}) + FIXTURE_EXTRAS:
        if problem.dtype not in dtype_names:
            continue
        for depth in (2, 5, 64):
            shape = f"{{{problem.m}, {problem.n}, {problem.k}, {problem.batch}, Dtype::{dtype_names[problem.dtype]}}}"
            lines.append(f"    {{{shape}, {depth}, {model.predict(problem, depth)},\n"
                         f"     {array(model.probabilities(problem, depth))}}},")
    body = "\n".join(lines)
    return f"""// Written by policies/training/train_degree.py: what scikit-learn predicts with the model that it
// wrote to policies/models.
// clang-format off
#ifndef CONCERT_TESTS_UNIT_POLICIES_DEGREE_FIXTURE_H_
#define CONCERT_TESTS_UNIT_POLICIES_DEGREE_FIXTURE_H_

#include "policies/baselines/degree_model.h"

namespace concert::policies {{

struct DegreeCase {{
  Problem problem;
  int depth;
  int degree;
  DegreeScores probabilities;
}};

inline constexpr int kDegreeCaseSmCount = {sm_count};
inline constexpr DegreeCase kDegreeCases[] = {{
{body}
}};

}}  // namespace concert::policies

#endif  // CONCERT_TESTS_UNIT_POLICIES_DEGREE_FIXTURE_H_
"""


def report(times_by_problem):
    """What is best for every problem of which more than one way was measured."""
    print(f"{'problem':<28} {'best':<16} {'us/GEMM':>9} {'x solo':>7} {'streams degree':>15}   measured")
    for problem, of_problem in times_by_problem.items():
        if len(of_problem) < 2:
            continue
        (degree, form), best_us = min(of_problem.items(), key=lambda item: item[1])
        solo_us = of_problem[("solo", "single")]
        streams = store.streams_times(of_problem)
        every = ", ".join(f"{form}/{degree} {time_us:.2f}"
                          for (degree, form), time_us in sorted(of_problem.items(), key=lambda item: item[1]))
        print(f"{str(problem):<28} {form + '/' + degree:<16} {best_us:>9.2f} {solo_us / best_us:>7.2f} "
              f"{min(streams, key=streams.get):>15}   {every}")


def write(path, text):
    with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", nargs="+")
    parser.add_argument("--gpu", default="H200", help="part of the header's name")
    parser.add_argument("--sm-count", type=int, default=132)
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if not arguments.gpu.isalnum():
        parser.error(f"--gpu {arguments.gpu}: letters and digits only, it becomes part of a C++ name")

    times_by_problem = store.times(store.read(arguments.exports))
    if arguments.report:
        report(times_by_problem)
        return
    samples = degrees.samples_of(times_by_problem)
    try:
        scores = degrees.leave_one_shape_out(samples, arguments.sm_count)
        model = degrees.Model(samples, arguments.sm_count)
    except ValueError as error:
        raise SystemExit(f"cannot train: {error}") from error
    print(f"{len(samples)} samples of {scores.folds} shapes; leave-one-shape-out: accuracy {scores.accuracy:.3f}, "
          f"mean loss {scores.mean_loss:.2%}, worst {scores.worst_loss:.2%} "
          f"({scores.worst.problem} at depth {scores.worst.depth})")
    if arguments.dry_run:
        return
    write(f"policies/models/degree_{arguments.gpu.lower()}.h", model_header(model, scores, arguments, samples))
    write(FIXTURE, fixture_header(model, samples, arguments.sm_count))


if __name__ == "__main__":
    main()

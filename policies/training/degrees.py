"""The multinomial logistic regression behind the policy `goldyloc`: features, labels, fit, cross-validation.

features() computes what DegreeFeaturesOf in policies/baselines/degree_model.cc does; goldyloc_test holds the two together.
"""

import math
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import store

DEGREES = (1, 2, 4, 8)
DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1}
TILE = 128
# Running together that saves less than this of the time is not worth it: medians of the same GEMM measured on two days differ by
# as much (64x1536x4096: 70.2 and 74.8 us for eight).
MIN_SAVING = 0.05
# Inverse strength of the L2 penalty. Of 1, 3, 10 and 30, the one with the least mean loss in cross-validation, so that
# the published loss is a little too good.
INVERSE_PENALTY = 3.0


def features(problem, sm_count, depth):
    m, n, k = problem.m, problem.n, problem.k
    tiles = math.ceil(m / TILE) * math.ceil(n / TILE) * problem.batch
    bytes_per_flop = DTYPE_BYTES[problem.dtype] * (m * k + n * k + m * n) / (2 * m * n * k)
    return [math.log2(m), math.log2(n), math.log2(k), math.log2(tiles),
            *(math.log2(math.ceil(tiles * degree / sm_count)) for degree in DEGREES),
            math.log2(bytes_per_flop), math.log2(min(depth, DEGREES[-1]))]


class Sample(NamedTuple):
    problem: store.Problem
    depth: int
    times: dict  # {degree: us per GEMM} of the degrees that the depth allows
    label: int

    @property
    def stake(self):
        """Weight: what choosing wrongly can cost, so that near ties do not steer the fit."""
        return 0.01 + max(self.times.values()) / min(self.times.values()) - 1

    def loss(self, degree):
        """By how much the time at `degree`, or the next one measured below, exceeds the best degree's."""
        measured = max(d for d in self.times if d <= max(degree, 1))
        return self.times[measured] / min(self.times.values()) - 1


def label_of(times):
    best = min(times, key=times.get)
    return best if times[best] <= (1 - MIN_SAVING) * times[1] else 1


def samples_of(times_by_problem):
    """One sample per problem and queue depth, of the problems whose solo and co-run times are known."""
    samples = []
    for problem, of_problem in times_by_problem.items():
        times = {degree: time_us for degree, time_us in store.streams_times(of_problem).items() if degree in DEGREES}
        if len(times) < 2:
            continue
        for depth in DEGREES:
            allowed = {degree: time_us for degree, time_us in times.items() if degree <= depth}
            samples.append(Sample(problem, depth, allowed, label_of(allowed)))
    return samples


class Model:
    """Standardised features into a softmax regression."""

    def __init__(self, samples, sm_count):
        self.sm_count = sm_count
        labels = [sample.label for sample in samples]
        if len(set(labels)) < 3:
            raise ValueError(f"only the degrees {sorted(set(labels))} are ever best: measure more shapes")
        stakes = np.array([sample.stake for sample in samples])
        self.scaler = StandardScaler()
        self.regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=20000)
        scaled = self.scaler.fit_transform([features(s.problem, sm_count, s.depth) for s in samples])
        self.regression.fit(scaled, labels, sample_weight=stakes / stakes.mean())

    def _scaled(self, problem, depth):
        return self.scaler.transform([features(problem, self.sm_count, depth)])

    def predict(self, problem, depth):
        return int(self.regression.predict(self._scaled(problem, depth))[0])

    def probabilities(self, problem, depth):
        """One per degree; 0 for a degree that no sample had."""
        by_class = dict(zip(self.regression.classes_, self.regression.predict_proba(self._scaled(problem, depth))[0]))
        return [float(by_class.get(degree, 0.0)) for degree in DEGREES]


class CrossValidation(NamedTuple):
    accuracy: float
    mean_loss: float
    worst_loss: float
    worst: Sample
    folds: int


def leave_one_shape_out(samples, sm_count):
    """Scores on shapes left out of the fit. Depth 1 offers no choice and is not counted."""
    problems = sorted({sample.problem for sample in samples})
    outcomes = []
    for held_out in problems:
        model = Model([sample for sample in samples if sample.problem != held_out], sm_count)
        for sample in samples:
            if sample.problem == held_out and len(sample.times) > 1:
                degree = min(model.predict(held_out, sample.depth), sample.depth)
                outcomes.append((sample.loss(degree), degree == sample.label, sample))
    losses = [loss for loss, _, _ in outcomes]
    worst_loss, _, worst = max(outcomes, key=lambda outcome: outcome[0])
    return CrossValidation(float(np.mean([right for _, right, _ in outcomes])), float(np.mean(losses)), worst_loss,
                           worst, len(problems))

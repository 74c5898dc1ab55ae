"""The kinds from advance on, against numpy, and what is refused."""

import numpy as np
import pytest

import concert


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_advance(session, queue, index):
    counters = session.array(np.array([0, 9, 10, 3, -7]), index)
    slots = session.array(np.array([4, 0, 1, -1, 2]), "int64")
    queue.advance(counters, 10, slots=slots).wait()
    np.testing.assert_array_equal(counters.read(), [1, 10, 10, 3, 1])
    queue.advance(counters, 10).wait()
    np.testing.assert_array_equal(counters.read(), [2, 10, 10, 4, 2])


def test_what_does_not_fit_is_refused_at_once(session, queue):
    counters = session.zeros((4,), "int32")
    for bad, sentence in [
        (lambda: queue.advance(session.zeros((4,), "fp32"), 9), "counters is FP32"),
        (lambda: queue.advance(session.zeros((4, 2), "int32"), 9), "counters has shape (4, 2)"),
        (lambda: queue.advance(counters, 9, slots=session.zeros((3,), "int32")),
         "slots has shape (3,)"),
        (lambda: queue.advance(counters, 2**32), "counter_max is 4294967296"),
        (lambda: queue.advance(counters, -1), "counter_max is -1"),
    ]:
        with pytest.raises(concert.InvalidArgument) as caught:
            bad()
        assert sentence in str(caught.value)


def test_what_the_daemon_refuses(session, queue):
    counters = session.zeros((4,), "int32")
    with pytest.raises(concert.InvalidArgument, match="counter_max is 0"):
        queue.advance(counters, 0).wait()
    with pytest.raises(concert.InvalidArgument, match="counters overlaps slots"):
        queue.advance(counters, 1, slots=counters).wait()

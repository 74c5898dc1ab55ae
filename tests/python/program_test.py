"""Programs: what they compute, and what is refused."""

import numpy as np
import pytest

import concert

from gemm_test import numbers


@pytest.fixture
def layer(session):
    """y = (x * w^T) * x, with the product in the arena; and its w."""
    w = numbers(8, 8)
    program = session.program()
    x, y = program.binding((4, 8), "fp32"), program.binding((4, 8), "fp32")
    product = program.arena((4, 8), "fp32")
    weights = session.array(w)
    program.queue.gemm(x, weights, product)
    program.queue.multiply(product, x, y)
    program.end()
    weights.buffer.close()  # the program has it
    return program, w


def test_runs_take_what_they_are_given(session, queue, layer):
    program, w = layer
    for _ in range(3):
        x = numbers(4, 8)
        given, result = session.array(x), session.zeros((4, 8), "fp32")
        queue.run(program, given, result).wait()
        np.testing.assert_allclose(result.read(), (x @ w.T) * x, rtol=1e-5)
        np.testing.assert_array_equal(given.read(), x)


def test_a_run_may_be_kept_and_submitted_again(session, queue, layer):
    program, w = layer
    x = numbers(4, 8)
    tensor = session.array(x)
    run = concert.Run(program, tensor, tensor)  # in place
    queue.submit(run)
    queue.submit(run).wait()
    once = (x @ w.T) * x
    np.testing.assert_allclose(tensor.read(), (once @ w.T) * once, rtol=1e-4)


def test_a_run_may_have_fewer_rows(session, queue):
    program = session.program()
    x, y = program.binding((4, 8), "fp32"), program.binding((4, 8), "fp32")
    program.queue.multiply(x, x, y)
    program.rows(4, 1, 2)
    program.end()
    numbers_in = numbers(4, 8)
    given = session.array(numbers_in)
    for rows, computed in ((0, 4), (1, 1), (2, 2), (3, 4)):
        result = session.zeros((4, 8), "fp32")
        queue.run(program, given, result, rows=rows).wait()
        wanted = numbers_in * numbers_in
        wanted[computed:] = 0
        np.testing.assert_allclose(result.read(), wanted, rtol=1e-5)
    with pytest.raises(concert.InvalidArgument, match="rows is 5; the program has at most 4"):
        queue.run(program, given, given, rows=5)


def test_a_closed_program_cannot_be_run(session, queue, layer):
    program, _ = layer
    x = session.zeros((4, 8), "fp32")
    run = concert.Run(program, x, x)
    ticket = queue.submit(run)
    program.close()
    ticket.wait()
    with pytest.raises(concert.FailedPrecondition, match="the program is closed"):
        queue.submit(run)


def test_the_error_names_the_op(session):
    program = session.program()
    x, a, w = program.arena((4, 8), "fp32"), session.zeros((4, 8)), session.zeros((8, 8))
    out, indices = session.zeros((4, 8)), session.zeros(4, "int32")
    program.queue.gemm(a, w, out)
    program.queue.argmax(x, indices)
    with pytest.raises(concert.InvalidArgument, match="op 1, argmax: x reads 128 bytes at offset 0 "
                       "of arena slot 0, of which no op before it has written all"):
        program.end()


def test_bad_bindings_are_refused(session, queue, layer):
    program, _ = layer
    x = session.zeros((4, 8), "fp32")
    with pytest.raises(concert.InvalidArgument, match="1 bindings are given; the program has 2"):
        queue.run(program, x)
    for bad in (session.zeros((8, 4), "fp32"), session.zeros((4, 8), "bf16"),
                session.zeros((4, 16), "fp32")[:, :8]):
        with pytest.raises(concert.InvalidArgument, match="binding 1 has shape"):
            queue.run(program, x, bad)


def test_slots_have_no_memory(layer):
    program, _ = layer
    with pytest.raises(concert.FailedPrecondition, match="a slot of a program has no memory"):
        program._bindings[0].read()


def test_waits_belong_to_runs(session, queue):
    program = session.program()
    x = session.zeros((4, 8), "fp32")
    ticket = queue.copy(x, session.zeros((4, 8), "fp32"))
    with pytest.raises(concert.InvalidArgument, match="an op of a program has no waits"):
        program.queue.copy(x, session.zeros((4, 8), "fp32"), waits=[ticket])

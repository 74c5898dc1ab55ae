"""What calls say of arguments of a wrong kind: the argument, the value and what to do."""

import numpy as np
import pytest

import concert
from concert import Activation, CollectiveKind, Priority


@pytest.fixture
def tensors(session):
    return [session.zeros((8, 8), "fp32") for _ in range(3)]


HOST = np.zeros((8, 8), np.float32)


@pytest.mark.parametrize("place, name", enumerate("awd"))
def test_a_gemm_names_the_operand_that_is_an_array(queue, tensors, place, name):
    given = [HOST if i == place else tensor for i, tensor in enumerate(tensors)]
    said = rf"^{name} is a numpy.ndarray of shape \(8, 8\); it must be a concert.Tensor: Session.array"
    for make in (queue.gemm, concert.Gemm):
        with pytest.raises(TypeError, match=said):
            make(*given)
    with pytest.raises(TypeError, match="^c is a list"):
        queue.gemm(*tensors, c=[1.0])
    queue.gemm(*tensors).wait()


def test_other_ops_do_as_well(session, queue, tensors):
    x, y, out = tensors
    for call, said in ((lambda: queue.rms_norm(x, HOST[0], out), "weight is a numpy.ndarray"),
                       (lambda: queue.layer_norm(x, None, out), "weight is None"),
                       (lambda: queue.add(x, HOST, out), "y is a numpy.ndarray"),
                       (lambda: queue.copy(HOST, out), "src is a .* concert.Tensor or concert.Buffer"),
                       (lambda: queue.sample(x, HOST), "indices is a numpy.ndarray"),
                       (lambda: queue.sample(x, session.zeros((8,), "int32"), temperature="hot"),
                        "temperature is a str"),
                       (lambda: queue.multiply(x, y, 3), "out is a int")):
        with pytest.raises(TypeError, match="^" + said):
            call()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        concert.RmsNorm(x, y)


def test_a_run_names_the_binding(session, queue, tensors):
    program = session.program()
    given = program.binding((8, 8), "fp32")
    program.queue.add(given, tensors[0], tensors[1])
    program.end()
    with pytest.raises(TypeError, match=r"^bindings\[0\] is a numpy.ndarray of shape \(8, 8\)"):
        queue.run(program, HOST)


def test_what_is_none_of_a_kind_is_told_which_there_are(session, queue, tensors):
    x, y, out = tensors
    wide = session.zeros((8, 16), "fp32")
    for call, said in ((lambda: session.queue(priority="high"), "priority is 'high'; it must be one of .*Priority.HIGH"),
                       (lambda: queue.gemm(x, y, out, activation="silu"), "activation is 'silu'.*Activation.SILU"),
                       (lambda: queue.gated_activation(wide, out, activation="silu"), "activation is 'silu'"),
                       (lambda: queue.gated_activation(wide, out, activation=99), "activation is 99"),
                       (lambda: concert.connect(fallback="cublas"), "fallback is 'cublas'.*Fallback.CUBLAS")):
        with pytest.raises(concert.InvalidArgument, match=said):
            call()
    communicator = session.join("arguments", 0, 1)
    with pytest.raises(concert.InvalidArgument, match="reduction is 'sum'.*Reduction.SUM"):
        queue.all_reduce(communicator, x, reduction="sum")
    with pytest.raises(concert.InvalidArgument, match="kind is 'barrier'"):
        concert.Collective("barrier", communicator)
    assert session.queue(priority=1).priority is Priority.HIGH
    queue.gemm(x, y, out, activation=Activation.SILU).wait()
    queue.submit(concert.Collective(CollectiveKind.BARRIER, communicator)).wait()

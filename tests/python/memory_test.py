"""Buffers and tensors, and their exchange with other array libraries."""

import ctypes
import fcntl
import gc
import os
import subprocess
import types
import weakref

import numpy as np
import pytest

import concert
from concert import Dtype, _cuda, _dlpack


def test_buffers_read_and_write(session):
    buffer = session.allocate(16)
    assert buffer.read() == bytes(16)
    buffer.write(b"abcd", offset=4)
    buffer.write(np.arange(4, dtype=np.uint8), offset=12)
    assert buffer.read(2, 6) == b"\0\0abcd"
    assert buffer.read(12) == bytes(range(4))
    for use in (lambda: buffer.read(8, 9), lambda: buffer.read(-1),
                lambda: buffer.write(b"xx", 15)):
        with pytest.raises(concert.InvalidArgument, match="do not fit in the buffer of 16 bytes"):
            use()
    with pytest.raises(concert.InvalidArgument, match="offset is -4"):
        buffer.write(b"x", offset=-4)
    with pytest.raises(concert.InvalidArgument, match="make it contiguous"):
        buffer.write(np.arange(8, dtype=np.uint8)[::2])


def test_what_is_too_much_is_refused(session):
    with pytest.raises(concert.Error, match="bytes"):
        session.allocate(2**50)
    with pytest.raises(concert.InvalidArgument, match="needs 32 bytes; the buffer has 16"):
        session.allocate(16).tensor((2, 4), "fp32")
    with pytest.raises(concert.InvalidArgument, match="dtype is int16"):
        session.array(np.arange(3, dtype=np.int16))
    with pytest.raises(concert.InvalidArgument, match="an array of int32 cannot become FP32"):
        session.array(np.arange(3, dtype=np.int32), "fp32")


def test_views_share_memory_and_outlive_their_buffer(session):
    tensor = session.zeros((4, 6), "fp32")
    view, part = tensor.numpy(), tensor[1:, 2:4].numpy()
    view[...] = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(part, view[1:, 2:4])
    np.testing.assert_array_equal(tensor[2].read(), view[2])
    np.testing.assert_array_equal(np.asarray(tensor[3, 1:4]), view[3, 1:4])
    np.testing.assert_array_equal(tensor.reshape(2, 12)[1].read(), view.reshape(2, 12)[1])
    tensor.buffer.close()
    assert view[3, 5] == 23  # still mapped
    with pytest.raises(concert.FailedPrecondition, match="the buffer is closed"):
        tensor.numpy()


def test_sealed_weights_are_read_by_ops_and_have_no_memory_here(session):
    rng = np.random.default_rng(1)
    values = rng.integers(-8, 8, (6, 16)).astype(np.float32)
    weights, twin = session.array(values), session.array(values)
    a, d = session.array(rng.integers(-8, 8, (4, 16)).astype(np.float32)), session.zeros((4, 6), "fp32")
    weights.buffer.seal()
    twin.buffer.seal()
    queue = session.queue()
    queue.gemm(a, twin, d).wait()
    np.testing.assert_array_equal(d.read(), a.read() @ values.T)
    for use in (weights.read, weights.numpy, lambda: weights.write(values),
                lambda: weights.buffer.address):
        with pytest.raises(concert.FailedPrecondition, match="a sealed buffer has no memory"):
            use()
    with pytest.raises(concert.FailedPrecondition, match="is sealed already"):
        weights.buffer.seal()
    with pytest.raises(concert.FailedPrecondition, match="dst lies in buffer .* is sealed"):
        queue.copy(a, weights[:4]).wait()
    weights.buffer.close()
    with pytest.raises(concert.FailedPrecondition, match="the buffer is closed"):
        weights.buffer.seal()


def test_a_buffer_with_views_is_not_sealed(session):
    tensor = session.array(np.arange(6, dtype=np.float32))
    view = tensor.numpy()
    exported = np.from_dlpack(tensor)
    for _ in range(2):
        with pytest.raises(concert.FailedPrecondition, match="let go of them first"):
            tensor.buffer.seal()
        assert view[5] == 5 and exported[5] == 5
        exported = exported[:6]
    del view
    with pytest.raises(concert.FailedPrecondition, match="let go of them first"):
        tensor.buffer.seal()
    del exported
    gc.collect()
    tensor.buffer.seal()


def mappings():
    with open("/proc/self/maps") as file:
        return sum("memfd" in line for line in file)


def test_a_buffers_memory_is_returned_with_its_last_view(session):
    gc.collect()
    before = mappings()
    tensor = session.zeros((1024,), "fp32")
    view = tensor.numpy()
    tensor.buffer.close()
    del tensor
    assert mappings() == before + 1
    del view
    assert mappings() == before


@pytest.mark.parametrize("index, wanted", [
    (np.s_[1], (6, 8)), (np.s_[-1, 2], (8,)), (np.s_[1:3, ::2, 3], (2, 3)), (np.s_[5:1], (0, 6, 8)),
])
def test_indices_are_numpys(session, index, wanted):
    values = np.arange(4 * 6 * 8, dtype=np.float32).reshape(4, 6, 8)
    tensor = session.array(values)[index]
    assert tensor.shape == wanted
    np.testing.assert_array_equal(tensor.numpy(), values[index])


def test_bad_views(session):
    tensor = session.zeros((4, 6), "fp32")
    for index in (4, (0, 6), (0, 0, 0), slice(None, None, -1)):
        with pytest.raises(IndexError):
            tensor[index]
    with pytest.raises(concert.InvalidArgument, match="must be contiguous"):
        tensor[:, :2].read()
    with pytest.raises(concert.InvalidArgument, match="24 elements, not 25"):
        tensor.reshape(5, 5)
    with pytest.raises(concert.InvalidArgument, match=r"shape \(6, 4\) and the tensor \(4, 6\)"):
        tensor.write(np.zeros((6, 4), np.float32))
    with pytest.raises(concert.InvalidArgument):
        concert.Tensor(tensor.buffer, 0, (4, 6), (-6, 1), Dtype.FP32)


def test_bf16_rounds_to_nearest_even():
    given = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -0.0, np.inf, 3.4e38,
                      np.nan], np.float32)
    wanted = np.array([1, 1, 1 + 2**-6, 1 + 2**-7, -0.0, np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(concert.from_bf16(concert.to_bf16(given)), wanted)


def test_memory_of_the_client(session, queue):
    fd = os.memfd_create("client", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 8192)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with session.import_memory(concert.Memory.MEMFD, 16, fd=fd, offset=4096) as buffer:
        four = session.array(np.arange(4, dtype=np.float32))
        queue.copy(four, buffer.tensor((4,), "fp32")).wait()
        assert np.frombuffer(os.pread(fd, 16, 4096), np.float32).tolist() == [0, 1, 2, 3]
    os.close(fd)
    with pytest.raises(concert.InvalidArgument, match="fd is -1"):
        session.import_memory(concert.Memory.MEMFD, 16)
    with pytest.raises(concert.InvalidArgument, match="ipc_handle has 3 bytes; it must have 64"):
        session.import_memory(concert.Memory.CUDA_IPC, 16, ipc_handle=b"abc")
    with pytest.raises(concert.FailedPrecondition, match="the daemon runs on simulated GPUs"):
        session.import_memory(concert.Memory.CUDA_POINTER, 16, pointer=1 << 20)


class MemoryOfOurs:
    """Registers a memfd, and is its owner."""

    def __init__(self, values):
        self.fd = os.memfd_create("client", os.MFD_ALLOW_SEALING)
        os.write(self.fd, values.tobytes())
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.bytes = values.nbytes

    def buffer(self, session):
        return session.import_memory(concert.Memory.MEMFD, self.bytes, fd=self.fd, owner=self)

    def __del__(self):
        os.close(self.fd)


def test_an_op_keeps_the_owner_of_its_memory(session, queue):
    values, y = np.arange(4, dtype=np.float32), session.zeros((4,), "fp32")
    ours = MemoryOfOurs(values)
    alive = weakref.ref(ours)
    op = concert.Copy(ours.buffer(session).tensor((4,), "fp32"), y)
    del ours
    gc.collect()
    assert alive() is not None
    queue.submit(op).wait()
    np.testing.assert_array_equal(y.read(), values)
    del op
    gc.collect()
    assert alive() is None


def test_the_owner_of_sealed_memory_is_let_go(session, queue):
    values, y = np.arange(4, dtype=np.float32), session.zeros((4,), "fp32")
    ours = MemoryOfOurs(values)
    alive, buffer = weakref.ref(ours), ours.buffer(session)
    op = concert.Copy(buffer.tensor((4,), "fp32"), y)
    del ours
    buffer.seal()
    assert alive() is None
    queue.submit(op).wait()  # from the daemon's memory
    np.testing.assert_array_equal(y.read(), values)


def test_a_program_keeps_the_owners_of_its_memory(session, queue):
    values = [np.eye(4, dtype=np.float32) * factor for factor in (1, 2, 3)]
    ours = [MemoryOfOurs(one) for one in values]
    alive = [weakref.ref(one) for one in ours]
    program = session.program()
    x, y = program.binding((4, 4), "fp32"), program.binding((4, 4), "fp32")
    between = [program.arena((4, 4), "fp32") for _ in range(2)]
    for i, one in enumerate(ours):
        program.queue.gemm([x, *between][i], one.buffer(session).tensor((4, 4), "fp32"),
                           [*between, y][i])
    program.end()
    del ours, one
    given, result = session.array(values[0]), session.zeros((4, 4), "fp32")
    run = concert.Run(program, given, result)
    del program, x, y, between
    gc.collect()
    assert all(one() is not None for one in alive)
    queue.submit(run).wait()
    np.testing.assert_array_equal(result.read(), 6 * values[0])
    del run
    gc.collect()
    assert all(one() is None for one in alive)


def test_dlpack_to_numpy(session):
    tensor = session.array(np.arange(12, dtype=np.float32).reshape(3, 4))
    array = np.from_dlpack(tensor[1:, ::2])
    np.testing.assert_array_equal(array, [[4, 6], [8, 10]])
    tensor.numpy()[1, 0] = 40
    assert array[0, 0] == 40
    tensor.buffer.close()
    assert array[0, 0] == 40  # the memory lives as long as the array
    assert len(_dlpack._exported) == 1
    del array
    assert not _dlpack._exported
    with pytest.raises(concert.FailedPrecondition, match="the buffer is closed"):
        np.from_dlpack(tensor)


def test_a_capsule_that_nobody_takes_is_freed(session):
    capsule = session.zeros((2,), "bf16").__dlpack__()
    assert len(_dlpack._exported) == 1
    del capsule
    session.zeros((2,), "bf16").buffer.close()
    assert not _dlpack._exported


def test_a_consumer_that_refuses_tells_why_and_keeps_nothing(session):
    before = mappings()
    tensors = [session.zeros((4,), "bf16") for _ in range(2)]  # which numpy does not know
    for tensor in tensors:
        with pytest.raises((BufferError, RuntimeError), match="nsupported dtype"):
            np.from_dlpack(tensor)
    tensors[0].buffer.seal()
    tensors[1].buffer.close()
    assert not _dlpack._exported and not _dlpack._offered
    assert mappings() == before


class Offer:
    """A tensor whose capsule was made before."""

    def __init__(self, capsules):
        self.capsules = capsules

    def __dlpack__(self, **_):
        return self.capsules.pop()


def test_a_capsule_that_somebody_has_is_not_swept(session):
    tensor, other = session.array(np.arange(4, dtype=np.float32)), session.zeros((4,), "fp32")
    offered = [tensor.__dlpack__()]
    taken = np.from_dlpack(tensor)
    other.buffer.close()
    with pytest.raises(concert.FailedPrecondition, match="let go of them first"):
        tensor.buffer.seal()
    assert len(_dlpack._exported) == 2 and list(_dlpack._offered.values())[0][0] is offered[0]
    np.testing.assert_array_equal(np.from_dlpack(Offer(offered)), taken)
    del taken
    tensor.buffer.seal()


def test_dlpack_makes_no_copies(session):
    tensor = session.zeros((2,), "fp32")
    for options in (dict(copy=True), dict(dl_device=(_dlpack.CUDA, 0))):
        with pytest.raises(BufferError, match="concert shares memory"):
            tensor.__dlpack__(**options)
    assert tensor.__dlpack__(dl_device=(_dlpack.CPU, 0), copy=False)


class OnCuda:
    """What a tensor of another library looks like; its memory is the host's."""

    def __init__(self, shape=(2, 3), code=2, bits=32, device=(_dlpack.CUDA, 1)):
        self.elements = (ctypes.c_int64 * 8)()
        self.device, self.shape, self.kind, self.stream = device, shape, (code, bits), None

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.stream = stream
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        managed = _dlpack._DLManagedTensor()
        managed.tensor = _dlpack._DLTensor(ctypes.addressof(self.elements), *self.device,
                                           len(self.shape), *self.kind, 1, shape, None, 8)
        return _dlpack._offer(managed, shape)


def test_what_is_read_of_a_dlpack_tensor():
    array = OnCuda()
    found = _dlpack.describe(array)
    assert array.stream == -1  # nobody has to wait for anything
    assert found.pointer == ctypes.addressof(array.elements) + 8
    assert (found.shape, found.strides, found.dtype, found.ordinal) == ((2, 3), None, Dtype.FP32, 1)
    assert found.owner[0] is array and _dlpack._exported
    del found
    _dlpack.sweep()
    assert not _dlpack._exported


def test_what_is_read_of_a_cuda_array_interface():
    array = types.SimpleNamespace(__cuda_array_interface__={
        "shape": (4, 2), "strides": (32, 2), "typestr": "<f2", "data": (4096, False), "version": 3})
    found = _dlpack.describe(array)
    assert (found.pointer, found.shape, found.strides, found.dtype) == (4096, (4, 2), (16, 1),
                                                                        Dtype.FP16)


@pytest.mark.parametrize("array, error, sentence", [
    (np.zeros(3, np.float32), concert.InvalidArgument,
     "the ndarray is in the host, and only memory of a CUDA device can be imported; Session.array"),
    (OnCuda(), concert.FailedPrecondition,
     "the OnCuda is on a CUDA device and the daemon runs on simulated GPUs; copy it to the host"),
    (OnCuda(device=(10, 0)), concert.InvalidArgument, "the OnCuda is in a ROCm device"),
    (OnCuda(code=0, bits=16), concert.InvalidArgument, "DLPack type 0 with 16 bits"),
    ([1, 2], concert.InvalidArgument, "a list has neither __dlpack__ nor"),
    (types.SimpleNamespace(__cuda_array_interface__={"typestr": "<i2"}), concert.InvalidArgument,
     "the SimpleNamespace has typestr <i2"),
])
def test_what_cannot_be_imported(session, array, error, sentence):
    with pytest.raises(error, match=sentence):
        session.import_array(array)


def test_what_is_registered_of_a_cuda_tensor(session, monkeypatch):
    """Up to the call into the library, which needs a GPU: the daemon's GPU 1 is ordinal 0 here."""
    monkeypatch.setattr(_cuda, "uuids", lambda: (session.gpus[1].uuid,))
    monkeypatch.setattr(session, "backend", concert.Backend.CUDA)
    asked = []

    def register(memory, bytes, *, gpu, pointer, owner):
        asked.append((memory, bytes, gpu, pointer, owner))
        return session.allocate(bytes, gpu)

    monkeypatch.setattr(session, "import_memory", register)
    rows_with_gaps = types.SimpleNamespace(__dlpack_device__=lambda: (_dlpack.CUDA, 0))
    source = session.zeros((5, 8), "fp16")[1:4, :6]
    with monkeypatch.context() as patch:  # its capsule, as if it were on a CUDA device
        patch.setattr(_dlpack, "device_of", lambda tensor: (_dlpack.CUDA, 0))
        rows_with_gaps.__dlpack__ = lambda stream: _dlpack.export(source, None, None)
        tensor = session.import_array(rows_with_gaps)
    (memory, bytes, gpu, pointer, owner), = asked
    assert (memory, bytes, gpu) == (concert.Memory.CUDA_POINTER, (2 * 8 + 6) * 2, 1)
    assert pointer == source.buffer.address + source.offset
    assert owner[0] is rows_with_gaps and tensor.buffer.gpu == 1
    assert (tensor.shape, tensor.strides, tensor.dtype) == ((3, 6), (8, 1), Dtype.FP16)
    with pytest.raises(concert.InvalidArgument, match=r"shape \(0, 3\); there is nothing"):
        session.import_array(OnCuda(shape=(0, 3), device=(_dlpack.CUDA, 0)))


def test_a_simulated_tensor_has_no_cuda_interface(session):
    assert not hasattr(session.zeros((2,), "fp32"), "__cuda_array_interface__")


class OneCudaGpu:
    """A session's view of a CUDA node, for what needs no GPU."""

    backend = concert.Backend.CUDA
    gpus = (types.SimpleNamespace(index=0, uuid=b"B" * 16),)


def cuda_tensor(dtype=Dtype.FP32, shape=(4, 6)):
    handle = types.SimpleNamespace(check=lambda: handle)
    buffer = types.SimpleNamespace(session=OneCudaGpu, gpu=0, bytes=4096, address=1 << 20,
                                   _handle=handle)
    return concert.Tensor(buffer, 0, shape, None, dtype)


def test_the_cuda_array_interface_of_a_cuda_tensor():
    assert cuda_tensor()[1:, 2:].__cuda_array_interface__ == {
        "shape": (3, 4), "typestr": "<f4", "data": ((1 << 20) + 32, False), "strides": (24, 4),
        "version": 3}
    with pytest.raises(AttributeError, match="has no BF16; use DLPack"):
        cuda_tensor(Dtype.BF16).__cuda_array_interface__
    with pytest.raises(concert.FailedPrecondition, match="numpy needs memory of the host"):
        cuda_tensor().numpy()


def test_ordinals_are_found_by_uuid(tmp_path, monkeypatch):
    """Against a libcuda that knows two GPUs, the second of which is the daemon's."""
    source = tmp_path / "cuda.c"
    source.write_text(r"""
        #include <string.h>
        int cuInit(unsigned flags) { return flags; }
        int cuDeviceGetCount(int* count) { *count = 2; return 0; }
        int cuDeviceGet(int* device, int ordinal) { *device = ordinal + 5; return 0; }
        int cuDeviceGetUuid(char* uuid, int device) {
          memset(uuid, 'A' + device - 5, 16);
          return 0;
        }
        int cuPointerGetAttribute(int* value, int attribute, unsigned long long pointer) {
          *value = attribute == 9 ? (int)(pointer >> 32) : 0;
          return 0;
        }
    """)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1"], check=True)
    opened = ctypes.CDLL(str(tmp_path / "libcuda.so.1"))
    monkeypatch.setattr(_cuda.ctypes, "CDLL", lambda name: opened)
    _cuda.uuids.cache_clear()
    try:
        assert cuda_tensor().__dlpack_device__() == (_dlpack.CUDA, 1)
        assert concert.Session._gpu_of(OneCudaGpu, 1) == 0
        assert _cuda.ordinal_of_pointer((3 << 32) + 16) == 3
        with pytest.raises(concert.InvalidArgument, match="device 0 .* is none of the daemon's"):
            concert.Session._gpu_of(OneCudaGpu, 0)
        with pytest.raises(concert.InvalidArgument, match="CUDA device 2 does not exist here"):
            _cuda.uuid_of(2)
        with pytest.raises(concert.FailedPrecondition, match="check CUDA_VISIBLE_DEVICES"):
            _cuda.ordinal_of(b"C" * 16)
    finally:
        _cuda.uuids.cache_clear()


def test_a_consumer_without_the_gil_may_free(session):
    """As PyTorch does: it takes the capsule and calls the deleter from C++."""
    capsule = session.zeros((2,), "bf16").__dlpack__()
    address = _dlpack._pointer_of(id(capsule), b"dltensor")
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = b"used_dltensor"
    assert rename(capsule, name) == 0
    deleter = _dlpack._DLManagedTensor.from_address(address).deleter
    del capsule
    assert len(_dlpack._exported) == 1  # it is the consumer's by now
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)  # ctypes releases the GIL
    assert not _dlpack._exported

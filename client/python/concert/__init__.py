"""concert: hand GEMMs and collectives to concertd, which schedules a node's GPUs.

    import concert

    with concert.connect() as session, session.queue() as queue:
        y = session.zeros((64, 256), "fp32")
        queue.gemm(x, w, y, activation=concert.Activation.SILU).wait()

Five verbs: connect, register (buffers and tensors), submit (ops to queues), wait (for tickets),
close. Everything that is opened is a context manager. Errors are exceptions with the library's code
and sentence. docs/python.md of the project is the manual.
"""

from ._abi import (Activation, Backend, Code, CollectiveKind, Dtype, ElementwiseFunction, Fallback,
                   Memory, Priority, Reduction)
from ._dtypes import from_bf16, to_bf16
from ._errors import (Cancelled, DeadlineExceeded, Error, FailedPrecondition, Internal,
                      InvalidArgument, NotFound, PermissionDenied, ResourceExhausted, Unavailable,
                      Unimplemented)
from ._library import __version__
from ._ops import Collective, Communicator, Copy, Gemm, Op
from ._program import Program, Run
from ._queue import Queue
from ._row_ops import (Advance, Argmax, AttentionDecode, AttentionPrefill, Elementwise, Embedding,
                       GatedActivation, LayerNorm, Quantize, RmsNorm, RopeAppend, Sample)
from ._session import Gpu, Session, UserTimeline, connect
from ._tensor import Buffer, Tensor
from ._ticket import Ticket

# As users import and catch them, in tracebacks, too.
for _error in (Error, *Error.__subclasses__()):
    _error.__module__ = "concert"

__all__ = [
    "Activation", "Advance", "Argmax", "AttentionDecode", "AttentionPrefill", "Backend", "Buffer",
    "Cancelled", "Code", "Collective", "CollectiveKind", "Communicator", "Copy", "DeadlineExceeded",
    "Dtype", "Elementwise", "ElementwiseFunction", "Embedding", "Error", "FailedPrecondition",
    "Fallback",
    "GatedActivation", "Gemm", "Gpu", "Internal", "InvalidArgument", "LayerNorm", "Memory",
    "NotFound", "Op", "PermissionDenied", "Priority", "Program", "Quantize", "Queue", "Reduction",
    "ResourceExhausted", "RmsNorm", "RopeAppend", "Run", "Sample", "Session", "Tensor", "Ticket",
    "Unavailable", "Unimplemented", "UserTimeline", "__version__", "connect", "from_bf16", "to_bf16",
]

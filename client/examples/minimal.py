# One GEMM through concertd: y = silu(x * w^T).
import concert
import numpy as np

with concert.connect() as session, session.queue(priority=concert.Priority.HIGH) as queue:
    x = session.array(np.full((64, 128), 0.5, np.float32))
    w = session.array(np.full((256, 128), 0.25, np.float32))
    y = session.zeros((64, 256), "fp32")
    done = queue.gemm(x, w, y, activation=concert.Activation.SILU)
    done.wait()  # or done.wait(stream): the CUDA stream waits, this thread does not
    print(f"y[0] = {y.read()[0, 0]:g}")  # silu(128 * 0.5 * 0.25) = 16

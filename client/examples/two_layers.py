# Two layers of a network on two queues: y = relu(x * w1^T), then z = y * w2^T.
import concert
import numpy as np

with concert.connect(name="tutorial") as session, session.queue() as first, session.queue() as second:
    x = session.array(np.full((64, 128), 0.5, np.float32))
    w1 = session.array(np.full((256, 128), 0.25, np.float32))
    w2 = session.array(np.full((32, 256), 1 / 256, np.float32))
    y, z = session.zeros((64, 256), "fp32"), session.zeros((64, 32), "fp32")

    y_done = first.gemm(x, w1, y, activation=concert.Activation.RELU)
    second.gemm(y, w2, z, waits=[y_done]).wait()
    print(f"z[0] = {z.read()[0, 0]:g}")

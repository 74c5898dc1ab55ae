// One GEMM through concertd: y = silu(x * w^T).
#include <concert/concert.hpp>
#include <cstdio>
#include <vector>

int main() {
  concert::Session session = concert::Session::Connect().value();
  concert::Queue queue = session.CreateQueue({.gpu = 0, .priority = concert::kHigh}).value();

  constexpr uint32_t m = 64, n = 256, k = 128;
  concert::Buffer x = session.Allocate(m * k * sizeof(float)).value();
  concert::Buffer w = session.Allocate(n * k * sizeof(float)).value();
  concert::Buffer y = session.Allocate(m * n * sizeof(float)).value();
  x.Write(std::vector<float>(m * k, 0.5f).data(), x.bytes()).Check();
  w.Write(std::vector<float>(n * k, 0.25f).data(), w.bytes()).Check();

  concert::Ticket done = queue.Gemm({.m = m, .n = n, .k = k, .a = x, .w = w, .d = y,
                                     .dtype = concert::kFp32, .activation = concert::kSilu});
  done.Wait().Check();  // or done.WaitOn(cuda_stream): the stream waits, this thread does not

  float first = 0;
  y.Read(&first, sizeof(first)).Check();
  std::printf("y[0] = %g\n", first);  // silu(128 * 0.5 * 0.25) = 16
}

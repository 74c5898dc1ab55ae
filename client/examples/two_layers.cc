// Two layers of a network on two queues: y = relu(x * w1^T), then z = y * w2^T.
#include <concert/concert.hpp>
#include <cstdio>
#include <utility>
#include <vector>

// A matrix of `count` equal numbers.
concert::Buffer Matrix(concert::Session& session, uint32_t count, float value) {
  concert::Buffer buffer = session.Allocate(count * sizeof(float)).value();
  buffer.Write(std::vector<float>(count, value).data(), buffer.bytes()).Check();
  return buffer;
}

int main() {
  concert::Result<concert::Session> connected =
      concert::Session::Connect({.client_name = "tutorial"});
  if (!connected.ok()) {
    std::fprintf(stderr, "%s\n", connected.status().ToString().c_str());
    return 1;
  }
  concert::Session session = std::move(connected).value();
  concert::Queue first = session.CreateQueue({.gpu = 0}).value();
  concert::Queue second = session.CreateQueue({.gpu = 0}).value();

  constexpr uint32_t rows = 64, inputs = 128, hidden = 256, outputs = 32;
  concert::Buffer x = Matrix(session, rows * inputs, 0.5f);
  concert::Buffer w1 = Matrix(session, hidden * inputs, 0.25f);
  concert::Buffer w2 = Matrix(session, outputs * hidden, 1.0f / 256);
  concert::Buffer y = session.Allocate(rows * hidden * sizeof(float)).value();
  concert::Buffer z = session.Allocate(rows * outputs * sizeof(float)).value();

  // Ops of one queue run in order. Ops of two queues run at the same time unless one waits.
  concert::Ticket y_done = first.Gemm({.m = rows,
                                       .n = hidden,
                                       .k = inputs,
                                       .a = x,
                                       .w = w1,
                                       .d = y,
                                       .dtype = concert::kFp32,
                                       .activation = concert::kRelu});
  concert::Ticket z_done = second.Gemm(
      {.m = rows, .n = outputs, .k = hidden, .a = y, .w = w2, .d = z, .dtype = concert::kFp32},
      {.waits = {y_done}});
  z_done.Wait().Check();
  float result = 0;
  z.Read(&result, sizeof(result)).Check();
  std::printf("z[0] = %g\n", result);  // relu(128 * 0.5 * 0.25) = 16; 256 * 16 / 256 = 16

  // An op that cannot be done fails alone and says why; the queue goes on.
  concert::Ticket bad = first.Gemm({.m = rows, .n = hidden, .k = 0, .a = x, .w = w1, .d = y});
  std::printf("%s\n", bad.Wait().ToString().c_str());
}

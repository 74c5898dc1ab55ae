// An NVML with one GPU, as nvml.h declares it, for the test that opens it: says what it was told
// to.
#include <cstring>

namespace {

constexpr int kOk = 0, kNotSupported = 3, kNotFound = 6;  // nvmlReturn_t
constexpr char kUuid[] = "GPU-01000000-0000-0000-0000-0000000000ff";

struct Memory {
  unsigned long long total, free, used;
};

int users = 0;
int questions = 0;
bool has_power = true;
int gpu = 0;  // its address is the handle

int Answer(void* handle, unsigned* out, unsigned value, bool known = true) {
  if (handle != &gpu || !known) return kNotSupported;
  *out = value;
  return kOk;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int FakeNvmlUsers() { return users; }
int FakeNvmlQuestions() { return questions; }
void FakeNvmlSetPower(bool has) { has_power = has; }

int nvmlInit_v2() {
  ++users;
  return kOk;
}
int nvmlShutdown() {
  --users;
  return kOk;
}
const char* nvmlErrorString(int) { return "an error"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (std::strcmp(uuid, kUuid) != 0) return kNotFound;
  *handle = &gpu;
  return kOk;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  ++questions;
  if (handle != &gpu) return kNotSupported;
  *memory = {.total = 141ull << 30, .free = 129ull << 30, .used = 12ull << 30};
  return kOk;
}
int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  return Answer(handle, milliwatts, 412'500, has_power);
}
int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* milliwatts) {
  return Answer(handle, milliwatts, 700'000);
}
int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* mhz) {
  return Answer(handle, mhz, type == 1 ? 1980 : 3201, type == 1 || type == 2);
}
int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* celsius) {
  return Answer(handle, celsius, 54, sensor == 0);
}

}  // extern "C"
#pragma GCC visibility pop

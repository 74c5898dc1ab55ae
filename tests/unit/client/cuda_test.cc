// What a session does with CUDA in the client's process, on a real GPU against a fake daemon:
// stream waits and signals on the shared pages, imports, device memory. Skips without a GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/src/cuda/api.h"
#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"
#include "tests/support/test_device.h"

namespace concert {
namespace {

using client::cuda::Api;
using test::FakeDaemon;

#define ASSERT_CUDA(call) ASSERT_EQ(call, CUDA_SUCCESS)

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    concert_error error;
    if (client::cuda::LoadApi(&api_, &error) != CONCERT_OK) CONCERT_END_WITHOUT_GPU(error.message);
    int count = 0;
    if (api_->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
      CONCERT_END_WITHOUT_GPU("no GPU");
    CUuuid uuid;
    CUcontext context;
    ASSERT_CUDA(api_->cuDeviceGet(&device_, 0));
    ASSERT_CUDA(api_->cuDeviceGetUuid(&uuid, device_));
    ASSERT_CUDA(api_->cuDevicePrimaryCtxRetain(&context, device_));
    ASSERT_CUDA(api_->cuCtxPushCurrent(context));
    ASSERT_CUDA(api_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
    FakeDaemon::Options options;
    options.edit_hello = [uuid](concert_hello_reply& reply) {
      reply.gpus[0].device = 2;
      std::memcpy(reply.gpus[0].uuid, &uuid, sizeof(uuid));
    };
    daemon_ = std::make_unique<FakeDaemon>(std::move(options));
    session_ =
        Session::Connect({.socket_path = daemon_->path(), .fallback = Fallback::kNone}).value();
    queue_ = session_.CreateQueue().value();
  }

  void TearDown() override {
    if (stream_ != nullptr) api_->cuStreamDestroy(stream_);
  }

  const Api* api_ = nullptr;
  CUdevice device_ = 0;
  CUstream stream_ = nullptr;
  std::unique_ptr<FakeDaemon> daemon_;
  Session session_;
  Queue queue_;
};

TEST_F(CudaTest, AStreamWaitsForATicketInReadOnlyMemory) {
  const Ticket ticket = queue_.Copy({.bytes = 8});
  const Status status = ticket.WaitOn(stream_);
  if (status.code() == CONCERT_UNIMPLEMENTED) GTEST_SKIP() << status.message();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(api_->cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  daemon_->Reach(0, 1);
  ASSERT_CUDA(api_->cuStreamSynchronize(stream_));
}

TEST_F(CudaTest, AStreamSignalsAndWaitsForAUserTimeline) {
  UserTimeline gate = session_.CreateUserTimeline().value();
  UserTimeline done = session_.CreateUserTimeline().value();
  ASSERT_TRUE(gate.At(3).WaitOn(stream_).ok());
  const Status status = done.SignalOn(stream_, 5);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(done.At(5).Done());
  ASSERT_TRUE(gate.Signal(3).ok());
  EXPECT_TRUE(done.At(5).Wait(std::chrono::seconds(10)).ok());
  EXPECT_EQ(daemon_->user_timeline(1), 5u);
}

TEST_F(CudaTest, ImportsAPointerInsideAnAllocation) {
  CUdeviceptr base = 0;
  ASSERT_CUDA(api_->cuMemAlloc(&base, 8 << 20));
  Buffer buffer = session_.Import(reinterpret_cast<void*>(base + 4096), 100).value();
  concert_import_buffer request;
  std::memcpy(&request, daemon_->Requests(CONCERT_CONTROL_IMPORT_BUFFER).at(0).data(),
              sizeof(request));
  EXPECT_EQ(request.kind, CONCERT_IMPORT_CUDA_IPC);
  EXPECT_EQ(request.offset, 4096u);
  EXPECT_EQ(request.bytes, 100u);
  EXPECT_GE(request.allocation_bytes, 8u << 20);
  EXPECT_EQ(buffer.Address().value(), reinterpret_cast<void*>(base + 4096));
  ASSERT_TRUE(buffer.Write("concert", 7, 93).ok());
  char back[7];
  ASSERT_CUDA(api_->cuMemcpyDtoH(back, base + 4096 + 93, 7));
  EXPECT_EQ(std::string(back, 7), "concert");
  api_->cuMemFree(base);
}

TEST_F(CudaTest, MapsAndReadsVmmMemory) {
  const auto symbol = [](const char* name) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
  };
  const auto create = reinterpret_cast<decltype(&cuMemCreate)>(symbol("cuMemCreate"));
  const auto export_handle = reinterpret_cast<decltype(&cuMemExportToShareableHandle)>(
      symbol("cuMemExportToShareableHandle"));
  constexpr size_t kBytes = 2 << 20;  // the allocation granularity
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  CUmemGenericAllocationHandle handle;
  int fd = -1;
  ASSERT_CUDA(create(&handle, kBytes, &properties, 0));
  ASSERT_CUDA(export_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  concert_import import = {};
  import.memory = CONCERT_MEMORY_CUDA_VMM;
  import.fd = fd;
  import.offset = 512;
  import.bytes = 1024;
  import.allocation_bytes = kBytes;
  {
    Buffer one = session_.Import(import).value(), two = session_.Import(import).value();
    close(fd);
    ASSERT_TRUE(one.Write("concert", 7, 1000).ok());
    char back[7] = {};
    const Status status = two.Read(back, 7, 1000);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::string(back, 7), "concert") << "two mappings of the same memory";
  }
  api_->cuMemRelease(handle);
}

}  // namespace
}  // namespace concert

#include "kernels/cuda_api/kernel_image.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

// Embedded by concert_embed_kernels.
extern "C" const unsigned char concert_image_fallback_gemm[];
extern "C" const unsigned char concert_image_epilogue[];
extern "C" const unsigned char concert_image_local_collective[];
extern "C" const unsigned char concert_image_group_kernel[];
extern "C" const unsigned char concert_image_repack[];

namespace concert::kernels::cuda {
namespace {

constexpr const char* kDtypeNames[kDtypeCount] = {"bf16", "fp16", "fp32"};
constexpr const char* kWidthNames[2] = {"scalar", "vector"};

}  // namespace

absl::StatusOr<KernelImage> KernelImage::Load(const Driver& driver, int gpu) {
  KernelImage image;
  image.driver_ = &driver;
  image.gpu_ = gpu;
  if (absl::Status status = image.LoadModules(gpu); !status.ok()) return status;
  if (absl::Status status = image.FindAll(); !status.ok()) return status;
  return image;
}

KernelImage& KernelImage::operator=(KernelImage&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(gpu_, other.gpu_);
  std::swap(fallback_gemm_, other.fallback_gemm_);
  std::swap(epilogue_, other.epilogue_);
  std::swap(local_collective_, other.local_collective_);
  std::swap(group_kernel_, other.group_kernel_);
  std::swap(repack_, other.repack_);
  std::swap(table_, other.table_);
  return *this;
}

KernelImage::~KernelImage() {
  for (CUmodule module : {fallback_gemm_, epilogue_, local_collective_, group_kernel_, repack_}) {
    if (module != nullptr) driver_->cuModuleUnload(module);
  }
}

absl::Status KernelImage::LoadModules(int gpu) {
  const Driver& d = *driver_;
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuModuleLoadData, &fallback_gemm_,
                                 concert_image_fallback_gemm);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuModuleLoadData, &epilogue_, concert_image_epilogue);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuModuleLoadData, &local_collective_,
                                 concert_image_local_collective);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuModuleLoadData, &repack_, concert_image_repack);
  // Machine code for compute capability 9.0 and nothing else: wgmma exists nowhere else.
  CUdevice device;
  int major = 0, minor = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuDeviceGet, &device, gpu);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuDeviceGetAttribute, &major,
                                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuDeviceGetAttribute, &minor,
                                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (major != 9 || minor != 0) return absl::OkStatus();
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuModuleLoadData, &group_kernel_,
                                 concert_image_group_kernel);
  return absl::OkStatus();
}

absl::Status KernelImage::Find(CUmodule module, const char* name, CUfunction& function) const {
  return driver_->ToStatus(driver_->cuModuleGetFunction(&function, module, name),
                           absl::StrCat("cuModuleGetFunction(", name, ")").c_str(), gpu_);
}

absl::Status KernelImage::FindAll() {
  absl::Status status;
  const auto find = [&](CUmodule module, const std::string& name, CUfunction& function) {
    status.Update(Find(module, name.c_str(), function));
  };
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    const std::string suffix = absl::StrCat("_", kDtypeNames[dtype]);
    find(fallback_gemm_, "fallback_gemm" + suffix, table_.fallback_gemm[dtype]);
    for (int wide = 0; wide < 2; ++wide) {
      const std::string full = absl::StrCat(suffix, "_", kWidthNames[wide]);
      find(epilogue_, "epilogue" + full, table_.epilogue[dtype][wide]);
      find(local_collective_, "all_reduce" + full, table_.all_reduce[dtype][wide]);
      find(local_collective_, "reduce_scatter" + full, table_.reduce_scatter[dtype][wide]);
    }
  }
  find(fallback_gemm_, "fallback_gemm_fp8_bf16", table_.fallback_gemm_fp8[0]);
  find(fallback_gemm_, "fallback_gemm_fp8_fp16", table_.fallback_gemm_fp8[1]);
  find(repack_, "concert_repack", table_.repack);
  if (group_kernel_ != nullptr) {
    constexpr const char* kFootprints[] = {"wide", "narrow", "pairs"};
    constexpr const char* kDtypes[] = {"bf16", "fp16", "e4m3"};
    for (size_t i = 0; i < table_.group.size(); ++i) {
      for (size_t j = 0; j < table_.group[i].size(); ++j) {
        find(group_kernel_, absl::StrCat("concert_group_", kFootprints[i], "_", kDtypes[j]),
             table_.group[i][j]);
      }
    }
  }
  for (int log_bytes : {1, 2, 4}) {
    const std::string suffix = absl::StrCat("_", 1 << log_bytes);
    find(local_collective_, "all_gather" + suffix, table_.all_gather[log_bytes]);
    find(local_collective_, "all_to_all" + suffix, table_.all_to_all[log_bytes]);
    find(local_collective_, "broadcast" + suffix, table_.broadcast[log_bytes]);
  }
  return status;
}

}  // namespace concert::kernels::cuda

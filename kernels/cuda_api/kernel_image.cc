#include "kernels/cuda_api/kernel_image.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention_decode/attention_kernel_args.h"
#include "kernels/attention_prefill/prefill_tile.h"
#include "kernels/skinny/skinny_args.h"

// One row for each fatbin that concert_embed_kernels embeds.
#define CONCERT_IMAGES(X) \
  X(attention_decode)     \
  X(attention_prefill)    \
  X(binding_copies)       \
  X(digest)               \
  X(fallback_gemm)        \
  X(epilogue)             \
  X(local_collective)     \
  X(peer_kernels) X(repack) X(group_kernel) X(row_kernel) X(skinny_kernel) X(step_kernel)

#define X(name) extern "C" const unsigned char concert_image_##name[];
CONCERT_IMAGES(X)
#undef X

namespace concert::kernels::cuda {
namespace {

constexpr const char* kDtypeNames[kDtypeCount] = {"bf16", "fp16", "fp32"};
constexpr const char* kWidthNames[2] = {"scalar", "vector"};

struct Image {
  std::string_view name;
  const unsigned char* bytes;
};
#define X(name) Image{#name, concert_image_##name},
const std::array kImages = {CONCERT_IMAGES(X)};
#undef X
static_assert(std::tuple_size_v<decltype(kImages)> == KernelImage::kImageCount);

// Wgmma and registers that change hands exist on compute capability 9.0 and nowhere else, so these
// have machine code for that alone.
constexpr std::string_view kGroupKernel = "group_kernel";
constexpr std::string_view kSkinnyKernel = "skinny_kernel";
constexpr std::string_view kStepKernel = "step_kernel";
// Bulk copies exist from there on.
constexpr std::string_view kPeerKernels = "peer_kernels";

bool RunsOn(std::string_view image, int major, int minor) {
  if (image == kGroupKernel || image == kSkinnyKernel || image == kStepKernel)
    return major == 9 && minor == 0;
  return image != kPeerKernels || major >= 9;
}

// Collects functions of modules, and the first error.
class Finder {
 public:
  Finder(const Driver& driver, int gpu, std::span<const CUmodule> modules)
      : driver_(driver), gpu_(gpu), modules_(modules) {}

  // `image` that was not loaded has none.
  void Find(std::string_view image, const std::string& name, CUfunction& function) {
    CUmodule module = nullptr;
    for (size_t i = 0; i < kImages.size(); ++i)
      module = kImages[i].name == image ? modules_[i] : module;
    if (module == nullptr) return;
    status_.Update(driver_.ToStatus(driver_.cuModuleGetFunction(&function, module, name.c_str()),
                                    absl::StrCat("cuModuleGetFunction(", name, ")").c_str(), gpu_));
  }
  // One for each dtype and width.
  void Find(std::string_view image, const char* name,
            std::array<std::array<CUfunction, 2>, kDtypeCount>& functions) {
    for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
      for (int wide = 0; wide < 2; ++wide) {
        Find(image, absl::StrCat(name, "_", kDtypeNames[dtype], "_", kWidthNames[wide]),
             functions[dtype][wide]);
      }
    }
  }
  // Lets it have so many bytes of dynamic shared memory, which beyond 48 KB none has by itself.
  void AllowShared(CUfunction function, uint32_t bytes) {
    if (function == nullptr) return;
    status_.Update(driver_.ToStatus(
        driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(bytes)),
        "cuFuncSetAttribute", gpu_));
  }
  const absl::Status& status() const { return status_; }

 private:
  const Driver& driver_;
  const int gpu_;
  const std::span<const CUmodule> modules_;
  absl::Status status_;
};

void FindGroupKernels(Finder& finder, KernelTable& table) {
  constexpr const char* kFootprints[] = {"wide", "narrow", "pairs"};
  constexpr const char* kDtypes[] = {"bf16", "fp16", "e4m3"};
  for (size_t i = 0; i < table.group.size(); ++i) {
    for (size_t j = 0; j < table.group[i].size(); ++j) {
      finder.Find(kGroupKernel, absl::StrCat("concert_group_", kFootprints[i], "_", kDtypes[j]),
                  table.group[i][j]);
    }
  }
}

void FindSkinnyKernels(Finder& finder, KernelTable& table) {
  for (size_t i = 0; i < table.skinny.size(); ++i) {
    const auto columns = static_cast<uint32_t>(32 * (i + 1));
    finder.Find(kSkinnyKernel, absl::StrCat("concert_skinny_", columns), table.skinny[i]);
    finder.AllowShared(table.skinny[i], SkinnySharedBytes(columns));
  }
}

void FindAttentionKernels(Finder& finder, KernelTable& table) {
  for (const uint32_t head_dim : kHeadDims) {
    const size_t i = HeadDimIndex(head_dim);
    const std::string dim = absl::StrCat(head_dim);
    finder.Find("attention_decode", "concert_attention_combine_" + dim, table.attention_combine[i]);
    for (const bool narrow : {false, true}) {
      const std::string name = absl::StrCat(dim, narrow ? "_e4m3" : "");
      CUfunction& decode = table.attention_decode[narrow][i];
      CUfunction& prefill = table.attention_prefill[narrow][i];
      finder.Find("attention_decode", "concert_attention_decode_" + name, decode);
      finder.AllowShared(
          decode, AttentionSharedBytes(head_dim, narrow ? 1 : 2, MostAttentionWarps(head_dim)));
      finder.Find("attention_prefill", "concert_attention_prefill_" + name, prefill);
      finder.AllowShared(prefill, PrefillSharedBytes(head_dim));
    }
  }
}

void FindFallbackGemms(Finder& finder, KernelTable& table) {
  for (const bool gated : {false, true}) {
    const std::string name = gated ? "fallback_gated_gemm_" : "fallback_gemm_";
    for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
      finder.Find("fallback_gemm", absl::StrCat(name, kDtypeNames[dtype]),
                  table.fallback_gemm[gated][dtype]);
    }
    finder.Find("fallback_gemm", name + "fp8_bf16", table.fallback_gemm_fp8[gated][0]);
    finder.Find("fallback_gemm", name + "fp8_fp16", table.fallback_gemm_fp8[gated][1]);
  }
}

void FindPeerKernels(Finder& finder, KernelTable& table) {
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    const std::string name = kDtypeNames[dtype];
    finder.Find(kPeerKernels, "peer_small_reduce_" + name, table.peer_small_reduce[dtype]);
    finder.Find(kPeerKernels, "peer_reduce_" + name, table.peer_reduce[dtype]);
    finder.Find(kPeerKernels, "peer_all_reduce_" + name, table.peer_all_reduce[dtype]);
    const bool wide = dtype == DtypeIndex(policies::Dtype::kFp32);
    finder.Find(kPeerKernels, wide ? "peer_small_move_4" : "peer_small_move_2",
                table.peer_small_move[dtype]);
  }
  finder.Find(kPeerKernels, "peer_push", table.peer_push);
}

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
  std::swap(modules_, other.modules_);
  std::swap(table_, other.table_);
  return *this;
}

KernelImage::~KernelImage() {
  for (CUmodule module : modules_) {
    if (module != nullptr) driver_->cuModuleUnload(module);
  }
}

absl::Status KernelImage::LoadModules(int gpu) {
  const Driver& d = *driver_;
  CUdevice device;
  int major = 0, minor = 0;
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuDeviceGet, &device, gpu);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuDeviceGetAttribute, &major,
                                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuDeviceGetAttribute, &minor,
                                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  for (size_t i = 0; i < kImages.size(); ++i) {
    if (!RunsOn(kImages[i].name, major, minor)) continue;
    CONCERT_RETURN_IF_DRIVER_ERROR(d, gpu, cuModuleLoadData, &modules_[i], kImages[i].bytes);
  }
  return absl::OkStatus();
}

absl::Status KernelImage::FindAll() {
  Finder finder(*driver_, gpu_, modules_);
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    finder.Find("epilogue", absl::StrCat("epilogue_of_sums_", kDtypeNames[dtype]),
                table_.epilogue_of_sums[dtype]);
  }
  FindFallbackGemms(finder, table_);
  finder.Find("epilogue", "epilogue", table_.epilogue);
  finder.Find("local_collective", "all_reduce", table_.all_reduce);
  finder.Find("local_collective", "reduce_scatter", table_.reduce_scatter);
  for (int log_bytes : {1, 2, 4}) {
    const std::string suffix = absl::StrCat("_", 1 << log_bytes);
    finder.Find("local_collective", "all_gather" + suffix, table_.all_gather[log_bytes]);
    finder.Find("local_collective", "all_to_all" + suffix, table_.all_to_all[log_bytes]);
    finder.Find("local_collective", "broadcast" + suffix, table_.broadcast[log_bytes]);
  }
  FindPeerKernels(finder, table_);
  finder.Find("digest", "concert_digest", table_.digest);
  finder.Find("digest", "concert_compare", table_.compare);
  finder.Find("repack", "concert_repack", table_.repack);
  FindGroupKernels(finder, table_);
  finder.Find("row_kernel", "concert_rows", table_.rows);
  finder.Find("binding_copies", "concert_copy_bindings", table_.copy_bindings);
  for (size_t i = 0; i < table_.step.size(); ++i)
    finder.Find(kStepKernel, absl::StrCat("concert_step_", 8 << i), table_.step[i]);
  FindSkinnyKernels(finder, table_);
  FindAttentionKernels(finder, table_);
  return finder.status();
}

}  // namespace concert::kernels::cuda

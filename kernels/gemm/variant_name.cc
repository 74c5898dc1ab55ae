#include "kernels/gemm/variant_name.h"

#include "absl/strings/str_cat.h"

namespace concert::kernels {
namespace {

void AppendTile(const policies::Variant& variant, std::string& name) {
  if (variant.tile_m == 0) {
    if (variant.tile_id != 0) absl::StrAppend(&name, " tile id ", variant.tile_id);
    return;
  }
  absl::StrAppend(&name, " tile ", variant.tile_m, "x", variant.tile_n);
  if (variant.tile_k != 0) absl::StrAppend(&name, "x", variant.tile_k);
}

void AppendCluster(const policies::Variant& variant, std::string& name) {
  if (variant.cluster_m != 0) {
    absl::StrAppend(&name, " cluster ", variant.cluster_m, "x", variant.cluster_n);
  } else if (variant.cluster_id != 0) {
    absl::StrAppend(&name, " cluster id ", variant.cluster_id);
  }
}

}  // namespace

std::string VariantName(const policies::Variant& variant) {
  using Source = policies::Variant::Source;
  if (variant.source == Source::kNone) return "default";
  std::string name = variant.source == Source::kCublasLt
                         ? absl::StrCat("cublaslt ", variant.algo_id)
                         : std::string("group");
  AppendTile(variant, name);
  AppendCluster(variant, name);
  const auto append = [&name](const char* what, int value) {
    if (value != 0) absl::StrAppend(&name, " ", what, " ", value);
  };
  append("stages", variant.stages);
  append("split", variant.split_k);
  append("reduction", variant.reduction);
  append("swizzle", variant.swizzle);
  append("inner", variant.inner_id);
  append("custom", variant.custom);
  if (variant.sm_budget == 0) return absl::StrCat(name, " of all SMs");
  return absl::StrCat(name, " of ", variant.sm_budget, " SMs");
}

}  // namespace concert::kernels

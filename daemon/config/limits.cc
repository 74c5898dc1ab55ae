#include "daemon/config/limits.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

uint64_t SettingOf(std::string_view key, const Config& config) {
  const auto settings = AllSettings();
  const auto setting = std::find_if(settings.begin(), settings.end(),
                                    [&](const Setting& row) { return row.key == key; });
  CONCERT_CHECK(setting != settings.end());
  return static_cast<uint64_t>(config.*std::get<int64_t Config::*>(setting->member));
}

}  // namespace

Limits LimitsOf(const Config& config) {
  Limits limits;
  for (const ResourceInfo& info : AllResources()) {
    Limit& limit = limits[info.resource];
    if (!info.setting.empty()) limit.per_user = SettingOf(info.setting, config);
    if (!info.setting_all.empty()) limit.in_all = SettingOf(info.setting_all, config);
  }
  // A buffer needs a handle: who allows more of the one means the other, too.
  Limit& handles = limits[Resource::kBufferHandles];
  handles.per_user = std::max(handles.per_user, limits[Resource::kBuffers].per_user);
  handles.in_all = std::max(handles.in_all, handles.per_user);
  return limits;
}

}  // namespace concert::daemon

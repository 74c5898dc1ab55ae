#include "daemon/admin/caller.h"

#include "absl/strings/str_cat.h"

namespace concert::daemon::admin {

std::string CallerOf(std::string_view user_agent) {
  constexpr size_t kLongest = 128;
  std::string_view caller = user_agent.substr(0, user_agent.find("grpc-"));
  while (caller.ends_with(' ')) caller.remove_suffix(1);
  return caller.empty() ? "somebody who gives no name" : std::string(caller.substr(0, kLongest));
}

void LogCall(const grpc::ServerContextBase& context, std::string_view what) {
  static LogLimiter* const limiter = new LogLimiter(20, 100);
  const auto& metadata = context.client_metadata();
  const auto agent = metadata.find("user-agent");
  const std::string caller = CallerOf(
      agent == metadata.end() ? std::string_view()
                              : std::string_view(agent->second.data(), agent->second.size()));
  LogLimited(*limiter, LogLevel::kInfo,
             absl::StrCat(caller, " asks for ", absl::string_view(what.data(), what.size())),
             {{"CONCERT_CALLER", caller}});
}

}  // namespace concert::daemon::admin

#include "daemon/admin/admin_server.h"

#include <grp.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/admin/admin_service.h"
#include "daemon/admin/tuning_service.h"

namespace concert::daemon {
namespace {

constexpr char kAdminGroup[] = "concert-admin";
constexpr mode_t kSocketUmask = 0117;  // leaves 0660
constexpr int kMaxMessageBytes = 1 << 20;
constexpr int kMaxThreads = 8;
constexpr std::chrono::milliseconds kGrace{200};

bool SomeoneListens(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool listens =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return listens;
}

// gRPC unlinks whatever socket is in its way, a live one too.
absl::Status CheckSocketPath(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.front() != '/' || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("admin_socket is '", path,
                                                   "'; it must be an absolute path of at most ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (SomeoneListens(address)) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process serves ", path,
                     "; stop that concertd or set admin_socket to another path"));
  }
  return absl::OkStatus();
}

// Without the group, or without the right to give files to it, only the daemon's own user gets in.
void ShareWithAdminGroup(const std::string& path) {
  group entry{};
  group* found = nullptr;
  char buffer[4096];
  if (getgrnam_r(kAdminGroup, &entry, buffer, sizeof(buffer), &found) != 0 || found == nullptr)
    return;
  if (chown(path.c_str(), static_cast<uid_t>(-1), found->gr_gid) != 0) return;
}

}  // namespace

struct AdminServer::Impl {
  Impl(std::string path, DaemonControl& control, Telemetry& telemetry, TuningControl* tuning)
      : socket_path(std::move(path)), service(control, telemetry) {
    if (tuning != nullptr) tuning_service.emplace(*tuning);
  }

  const std::string socket_path;
  // They outlive the server, whose calls use them.
  admin::AdminService service;
  std::optional<admin::TuningService> tuning_service;
  std::unique_ptr<grpc::Server> server;
};

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AdminServer::~AdminServer() { Stop(); }

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& socket_path,
                                                                DaemonControl& control,
                                                                Telemetry& telemetry,
                                                                TuningControl* tuning) {
  if (const absl::Status status = CheckSocketPath(socket_path); !status.ok()) return status;
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto impl = std::make_unique<Impl>(socket_path, control, telemetry, tuning);
  grpc::ResourceQuota quota("concert-admin");
  quota.SetMaxThreads(kMaxThreads);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
  builder.RegisterService(&impl->service);
  if (impl->tuning_service) builder.RegisterService(&*impl->tuning_service);
  const mode_t old_umask = umask(kSocketUmask);
  impl->server = builder.BuildAndStart();
  umask(old_umask);
  if (impl->server == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve the admin API on ", socket_path,
                     "; check that its directory exists and is writable"));
  }
  ShareWithAdminGroup(socket_path);
  impl->server->GetHealthCheckService()->SetServingStatus(v1::AdminService::service_full_name(),
                                                          true);
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

void AdminServer::Stop() {
  if (impl_->server == nullptr) return;
  impl_->server->GetHealthCheckService()->Shutdown();
  impl_->service.StopWatches();
  impl_->server->Shutdown(std::chrono::system_clock::now() + kGrace);
  impl_->server.reset();
  unlink(impl_->socket_path.c_str());
}

}  // namespace concert::daemon

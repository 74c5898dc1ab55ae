#include "daemon/admin/admin_server.h"

#include <grp.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/admin/admin_service.h"
#include "daemon/admin/tuning_service.h"
#include "daemon/service/unix_socket.h"

namespace concert::daemon {
namespace {

constexpr char kAdminGroup[] = "concert-admin";
constexpr mode_t kSocketUmask = 0117;  // leaves 0660
constexpr int kMaxMessageBytes = 1 << 20;
constexpr int kMaxThreads = 8;
// For streams to end with their status. A client on a busy machine takes more than 200 ms to read
// what it was sent.
constexpr std::chrono::milliseconds kGrace{1000};

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
  Impl(std::unique_ptr<UnixSocketPath> path, DaemonControl& control, Telemetry& telemetry,
       TuningControl* tuning)
      : socket(std::move(path)), service(control, telemetry) {
    if (tuning != nullptr) tuning_service.emplace(*tuning);
  }

  std::unique_ptr<UnixSocketPath> socket;
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
  absl::StatusOr<std::unique_ptr<UnixSocketPath>> socket =
      UnixSocketPath::Claim("admin_socket", socket_path);
  if (!socket.ok()) return socket.status();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto impl = std::make_unique<Impl>(*std::move(socket), control, telemetry, tuning);
  grpc::ResourceQuota quota("concert-admin");
  quota.SetMaxThreads(kMaxThreads);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // gRPC removes whatever socket is at the path that it binds, before and after: there it must not
  // be the one that clients know.
  builder.AddListeningPort("unix:" + impl->socket->private_path(),
                           grpc::InsecureServerCredentials());
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
  ShareWithAdminGroup(impl->socket->private_path());
  if (const absl::Status status = impl->socket->Publish(); !status.ok()) {
    impl->server->Shutdown(std::chrono::system_clock::now());
    return status;
  }
  // For the whole server (the empty name) and for our service.
  const bool serving = control.Info().degraded.empty();
  grpc::HealthCheckServiceInterface* const health = impl->server->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(v1::AdminService::service_full_name(), serving);
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

void AdminServer::Stop() {
  if (impl_->server == nullptr) return;
  impl_->server->GetHealthCheckService()->Shutdown();
  impl_->service.StopStreams();
  impl_->server->Shutdown(std::chrono::system_clock::now() + kGrace);
  impl_->server.reset();
  impl_->socket.reset();
}

}  // namespace concert::daemon

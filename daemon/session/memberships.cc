// Ranks join communicators, and leave them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/session/server.h"

namespace concert::daemon {
namespace {

// Communicators of one session: every one is looked up by its ops.
constexpr size_t kMaxMemberships = 256;

absl::Status IssuerIsBehind() {
  return absl::ResourceExhaustedError(
      "collectives: their thread leaves its messages unread; try again, and if that lasts, a GPU's "
      "driver may hang");
}

}  // namespace

void Server::HandleJoinCommunicator(Session& session, Packet& packet) {
  const auto request = packet.as<concert_join_communicator>();
  concert_join_communicator_reply reply{};
  const absl::StatusOr<Communicators::Joined> joined = Join(session, request);
  if (!joined.ok()) return Send(session, packet, joined.status(), reply);
  const Membership membership{.handle = joined->communicator << 8 | request.rank,
                              .communicator = joined->communicator,
                              .rank = request.rank,
                              .ranks = request.ranks};
  const int gpu = static_cast<int>(request.gpu);
  if (!joined->complete) {
    reply.communicator = Enter(session, membership, gpu);
    return Send(session, packet, absl::OkStatus(), reply);
  }
  BeginErrand<absl::Status>(
      session, packet, [&node = engine_.node(), gpus = joined->gpus] { return node.Connect(gpus); },
      [this, &session, membership, gpu](absl::Status status) {
        concert_join_communicator_reply answer{};
        if (status.ok() && session.state != Session::State::kOpen)
          status = absl::CancelledError("the session has ended");
        if (status.ok()) {
          answer.communicator = Enter(session, membership, gpu);
        } else {
          LeaveRanks(membership.communicator, membership.rank);
        }
        EndErrand(session, status, answer);
      });
}

// Among the ranks. The issuer knows of it from here on, so that it learns of ranks that leave while
// GPUs are connected.
absl::StatusOr<Communicators::Joined> Server::Join(Session& session,
                                                   const concert_join_communicator& request) {
  if (!HasRing(session, request.gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu is ", request.gpu, ", which this session has no ring on"));
  }
  if (session.memberships.size() >= kMaxMemberships) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the session is in ", kMaxMemberships, " communicators and may join no more; leave some"));
  }
  const int gpu = static_cast<int>(request.gpu);
  if (absl::Status status = MayBegin(gpu); !status.ok()) return status;
  if (to_issuer_.late() > 0) return IssuerIsBehind();
  const Charge charge{Resource::kMemberships};
  if (absl::Status status = session.account->ChargeAll({&charge, 1}); !status.ok()) return status;
  absl::StatusOr<Communicators::Joined> joined =
      communicators_.Join(session.uid, TextOf(request.name), request.rank, request.ranks, gpu);
  if (!joined.ok()) {
    session.account->Release(Resource::kMemberships);
    return joined;
  }
  IssuerMessage join(IssuerMessage::Type::kJoin);
  join.communicator = joined->communicator;
  join.rank = request.rank;
  join.join = {
      .ranks = request.ranks, .account = session.account, .session = session.id, .gpu = gpu};
  // Never late: the first part must not overtake it.
  if (to_issuer_.TryPush(join)) return joined;
  session.account->Release(Resource::kMemberships);
  LeaveRanks(joined->communicator, request.rank);
  return IssuerIsBehind();
}

// The session may submit for the rank.
uint32_t Server::Enter(Session& session, const Membership& membership, int gpu) {
  session.memberships.emplace_back(membership, gpu);
  DispatcherMessage message(DispatcherMessage::Type::kAddMembership, session.id);
  message.membership = membership;
  Tell(gpu, message);
  return membership.handle;
}

// Those that wait for the rank must not wait for their timeout.
void Server::LeaveRanks(uint32_t communicator, uint32_t rank) {
  communicators_.Leave(communicator);
  IssuerMessage leave(IssuerMessage::Type::kLeave);
  leave.communicator = communicator;
  leave.rank = rank;
  to_issuer_.Push(leave);
}

void Server::HandleLeaveCommunicator(Session& session, const Packet& packet) {
  const concert_leave_communicator& request = packet.as<concert_leave_communicator>();
  concert_control_reply reply{};
  absl::Status status;
  const auto found =
      std::find_if(session.memberships.begin(), session.memberships.end(),
                   [&](const auto& entry) { return entry.first.handle == request.communicator; });
  if (found == session.memberships.end()) {
    status = absl::NotFoundError(
        absl::StrCat("communicator ", request.communicator, " is not one this session has joined"));
  } else {
    const auto [membership, gpu] = *found;
    Leave(session, membership, gpu);
  }
  Send(session, packet, status, reply);
}

void Server::Leave(Session& session, const Membership& membership, int gpu) {
  std::erase_if(session.memberships,
                [&](const auto& entry) { return entry.first.handle == membership.handle; });
  LeaveRanks(membership.communicator, membership.rank);
  DispatcherMessage message(DispatcherMessage::Type::kRemoveMembership, session.id);
  message.membership = membership;
  Tell(gpu, message);
}

}  // namespace concert::daemon

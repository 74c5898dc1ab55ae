#include "daemon/sched/executor.h"

#include <bit>

#include "daemon/check.h"

namespace concert::daemon {

Executor::Executor(Device& device, IssuerMailbox& issuer) : device_(device), issuer_(issuer) {}

void Executor::Begin() {
  ops_.clear();
  ends_.clear();
}

void Executor::Add(const Op& op, const TimelineWrite& end) {
  ops_.push_back(&op);
  ends_.push_back(end);
}

absl::Status Executor::Launch(LaunchRequest& launch) {
  if (absl::Status status = Order(launch.planned.lane, launch.order_mask); !status.ok())
    return status;
  launch.ops = ops_.span();
  launch.writes = ends_.span();
  return device_.Launch(launch);
}

absl::Status Executor::Offer(const Membership& membership, const RankPart& part,
                             uint16_t order_mask) {
  if (absl::Status status = Order(part.lane, order_mask); !status.ok()) return status;
  IssuerMessage message(IssuerMessage::Type::kPart);
  message.communicator = membership.communicator;
  message.rank = membership.rank;
  message.part = part;
  // kRoomForParts of the mailbox is left to parts by all other senders.
  CONCERT_CHECK(issuer_.TryPush(message));
  return absl::OkStatus();
}

void Executor::Refuse(const Membership& membership, uint64_t sequence) {
  IssuerMessage message(IssuerMessage::Type::kRefuse);
  message.communicator = membership.communicator;
  message.rank = membership.rank;
  message.refused_sequence = sequence;
  // Refusals may come in any number, so they leave room for the parts, which Offer relies on.
  if (issuer_.HasRoom(kRoomForParts)) issuer_.TryPush(message);
}

absl::Status Executor::Order(Lane lane, uint16_t order_mask) {
  absl::Status status;
  for (uint32_t mask = order_mask; mask != 0; mask &= mask - 1) {
    status.Update(device_.Order(lane, static_cast<Lane>(std::countr_zero(mask))));
  }
  return status;
}

}  // namespace concert::daemon

#include "client/src/remote/names.h"

#include "proto/ring/control_abi.h"
#include "proto/ring/messages.h"

namespace concert::client {

void Names::AddCommunicator(uint32_t handle, const std::string& name) {
  const MutexLock lock(mutex_);
  // The daemon counts communicators up, so the first is the oldest.
  if (communicators_.size() >= kMaxCommunicators) communicators_.erase(communicators_.begin());
  communicators_[CONCERT_COMMUNICATOR_OF(handle)] = "communicator '" + name + "'";
}

size_t Names::Render(uint32_t message, const uint64_t args[5], char* out, size_t size) const {
  const MutexLock lock(mutex_);
  // Without captures, as C takes it.
  const auto name = [](const void* context, char form, uint64_t arg) -> const char* {
    const auto& self = *static_cast<const Names*>(context);
    if (form == 's') return arg == self.session_ ? "this session" : nullptr;
    if (form != 'c') return nullptr;
    self.mutex_.AssertHeld();
    const auto found = self.communicators_.find(arg);
    return found == self.communicators_.end() ? nullptr : found->second.c_str();
  };
  return concert_render_named_message(message, args, name, this, out, size);
}

}  // namespace concert::client

// A message of the admin API as JSON: field names as in the .proto, numbers as numbers (64-bit ones
// too), enums by name, every field present: an optional one that is absent is null.
#ifndef CONCERT_CLIENT_CTL_JSON_H_
#define CONCERT_CLIENT_CTL_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace concert::ctl {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_JSON_H_

#include "client/ctl/json.h"

#include <google/protobuf/descriptor.h>

namespace concert::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

// `index` < 0: the field is not repeated.
ordered_json FieldValue(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* reflection = message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
#define CONCERT_CASE(type, Getter)                       \
  case FieldDescriptor::CPPTYPE_##type:                  \
    return one ? reflection->Get##Getter(message, field) \
               : reflection->GetRepeated##Getter(message, field, index);
    CONCERT_CASE(INT32, Int32)
    CONCERT_CASE(INT64, Int64)
    CONCERT_CASE(UINT32, UInt32)
    CONCERT_CASE(UINT64, UInt64)
    CONCERT_CASE(DOUBLE, Double)
    CONCERT_CASE(FLOAT, Float)
    CONCERT_CASE(BOOL, Bool)
    CONCERT_CASE(STRING, String)
#undef CONCERT_CASE
    case FieldDescriptor::CPPTYPE_ENUM:
      return (one ? reflection->GetEnum(message, field)
                  : reflection->GetRepeatedEnum(message, field, index))
          ->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(one ? reflection->GetMessage(message, field)
                        : reflection->GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

}  // namespace

ordered_json ToJson(const Message& message) {
  ordered_json object = ordered_json::object();
  const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const Reflection* reflection = message.GetReflection();
    if (!field->is_repeated()) {
      const bool absent = field->has_optional_keyword() && !reflection->HasField(message, field);
      object[field->name()] = absent ? ordered_json() : FieldValue(message, field, -1);
      continue;
    }
    ordered_json list = ordered_json::array();
    const int size = reflection->FieldSize(message, field);
    for (int j = 0; j < size; ++j) list.push_back(FieldValue(message, field, j));
    object[field->name()] = std::move(list);
  }
  return object;
}

}  // namespace concert::ctl

// A tool as NVTX loads it (NVTX_INJECTION64_PATH): writes down what it is told, for the test that
// asks for it.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace {

struct Recorded {
  std::string log;
  std::map<uint32_t, std::string> categories;
};

Recorded& Record() {
  static auto* const record = new Recorded;
  return *record;
}

nvtxDomainHandle_t NVTX_API CreateDomain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}

nvtxStringHandle_t NVTX_API RegisterString(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(text));
}

void NVTX_API NameCategory(nvtxDomainHandle_t, uint32_t category, const char* name) {
  Record().categories[category] = name;
}

int NVTX_API Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  const auto text = [](const void* handle) { return *static_cast<const std::string*>(handle); };
  Record().log +=
      "push " + text(domain) + ": " +
      (range->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? text(range->message.registered)
                                                          : "a name that is not registered") +
      " [" + Record().categories[range->category] + "] plan " +
      std::to_string(range->payload.ullValue) + "\n";
  return 0;
}

int NVTX_API Pop(nvtxDomainHandle_t) {
  Record().log += "pop\n";
  return 0;
}

}  // namespace

#define CONCERT_EXPORT extern "C" __attribute__((visibility("default")))

CONCERT_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size < NVTX_CBID_CORE2_SIZE)
    return 0;
  const auto set = [&](NvtxCallbackIdCore2 function, auto* own) {
    *table[function] = reinterpret_cast<NvtxFunctionPointer>(own);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  set(NVTX_CBID_CORE2_DomainRegisterStringA, RegisterString);
  set(NVTX_CBID_CORE2_DomainNameCategoryA, NameCategory);
  set(NVTX_CBID_CORE2_DomainRangePushEx, Push);
  set(NVTX_CBID_CORE2_DomainRangePop, Pop);
  return 1;
}

// What has been pushed and popped since the last call.
CONCERT_EXPORT const char* TakeRecord() {
  static std::string taken;
  taken = std::exchange(Record().log, "");
  return taken.c_str();
}

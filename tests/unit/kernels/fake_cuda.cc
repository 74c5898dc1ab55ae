#include "tests/unit/kernels/fake_cuda.h"

#include <cstdlib>
#include <cstring>

#include "kernels/program/binding_copy_args.h"

namespace concert::test {
namespace {

FakeCuda* g_fake = nullptr;

// Descriptors keep attribute i in word i; what lies beyond their last word, and is never used along
// with it, in word 0: of matmuls B's scale mode, number 32, of layouts the batch mode, number 8.
// Layouts keep their type in place of an order. Algorithms keep where their FakeAlgo lies in word
// 0.
template <typename Opaque>
uint64_t* Words(Opaque* opaque) {
  return reinterpret_cast<uint64_t*>(opaque);
}
uint64_t ReadWord(const void* value, size_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, value, bytes);
  return word;
}

int SmTarget(cublasLtMatmulDesc_t matmul) {
  return static_cast<int>(Words(matmul)[CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET]);
}
cudaDataType_t TypeOf(cublasLtMatrixLayout_t layout) {
  return static_cast<cudaDataType_t>(Words(layout)[CUBLASLT_MATRIX_LAYOUT_ORDER]);
}
const FakeAlgo& AlgoOf(const cublasLtMatmulAlgo_t* algo) {
  return *reinterpret_cast<const FakeAlgo*>(algo->data[0]);
}

cublasStatus_t MatmulDescInit(cublasLtMatmulDesc_t matmul, size_t size, cublasComputeType_t,
                              cudaDataType_t) {
  std::memset(matmul, 0, size);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t MatmulDescSet(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute,
                             const void* value, size_t bytes) {
  const bool beyond = attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE;
  Words(matmul)[beyond ? 0 : attribute] = ReadWord(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t LayoutInit(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t,
                          uint64_t, int64_t) {
  std::memset(layout, 0, size);
  Words(layout)[CUBLASLT_MATRIX_LAYOUT_ORDER] = type;
  Words(layout)[CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t LayoutSet(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                         const void* value, size_t bytes) {
  const bool mode = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE;
  if (mode && !g_fake->pointer_arrays) return CUBLAS_STATUS_INVALID_VALUE;
  Words(layout)[mode ? 0 : attribute] = ReadWord(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t PreferenceInit(cublasLtMatmulPreference_t, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t PreferenceSet(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                             const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t GetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t w,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t c,
                            cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int requested,
                            cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++g_fake->heuristic_calls;
  g_fake->question = {
      .w_type = TypeOf(w),
      .a_type = TypeOf(a),
      .c_type = TypeOf(c),
      .d_type = TypeOf(d),
      .w_scales = Words(matmul)[CUBLASLT_MATMUL_DESC_A_SCALE_POINTER],
      .a_scales = Words(matmul)[CUBLASLT_MATMUL_DESC_B_SCALE_POINTER],
      .w_scale_mode = static_cast<int>(Words(matmul)[CUBLASLT_MATMUL_DESC_A_SCALE_MODE]),
      .a_scale_mode = static_cast<int>(Words(matmul)[0])};
  *found = 0;
  const int epilogue = static_cast<int>(Words(matmul)[CUBLASLT_MATMUL_DESC_EPILOGUE]);
  if (!g_fake->epilogues.contains(epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int target = SmTarget(matmul);
  const auto& offers = g_fake->offers[g_fake->offers.contains(target) ? target : 0];
  for (const FakeAlgo& algo : offers) {
    if (*found == requested) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    result.algo.data[0] = reinterpret_cast<uint64_t>(&algo);
    result.workspaceSize = algo.workspace;
    result.state = algo.state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t AlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         const cublasLtMatmulAlgo_t* algo,
                         cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = AlgoOf(algo).workspace;
  return AlgoOf(algo).check;
}

cublasStatus_t AlgoConfigGet(const cublasLtMatmulAlgo_t* algo,
                             cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                             size_t bytes, size_t* written) {
  const FakeAlgo& fake = AlgoOf(algo);
  const std::map<int, uint32_t> config = {
      {CUBLASLT_ALGO_CONFIG_ID, fake.id},
      {CUBLASLT_ALGO_CONFIG_TILE_ID, fake.tile},
      {CUBLASLT_ALGO_CONFIG_STAGES_ID, fake.stages},
      {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, fake.split},
      {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, fake.swizzle},
      {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, fake.custom},
      {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, fake.cluster},
  };
  const bool is_short = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                        attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  if (bytes != (is_short ? sizeof(uint16_t) : sizeof(uint32_t))) return CUBLAS_STATUS_INVALID_VALUE;
  const auto found = config.find(attribute);
  if (found == config.end()) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(value, &found->second, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Matmul(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, const void* alpha,
                      const void* w, cublasLtMatrixLayout_t w_layout, const void* a,
                      cublasLtMatrixLayout_t, const void* beta, const void* c,
                      cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t,
                      const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                      cudaStream_t stream) {
  if (g_fake->matmul_status != CUBLAS_STATUS_SUCCESS) return g_fake->matmul_status;
  const auto address = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
  const FakeLaunch launch = {
      .algo_id = AlgoOf(algo).id,
      .stream = stream,
      .sm_target = SmTarget(matmul),
      .batch = static_cast<int>(Words(w_layout)[CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT]),
      .pointer_array = Words(w_layout)[0] == CUBLASLT_BATCH_MODE_POINTER_ARRAY,
      .w = address(w),
      .a = address(a),
      .c = address(c),
      .d = address(d),
      .w_scales = Words(matmul)[CUBLASLT_MATMUL_DESC_A_SCALE_POINTER],
      .a_scales = Words(matmul)[CUBLASLT_MATMUL_DESC_B_SCALE_POINTER],
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta),
      .workspace = address(workspace),
      .workspace_bytes = workspace_bytes};
  if (stream == g_fake->capturing) {
    g_fake->captured.push_back(launch);
    g_fake->captured_blocks = AlgoOf(algo).blocks;
  } else {
    g_fake->launches.push_back(launch);
  }
  return CUBLAS_STATUS_SUCCESS;
}

const char* StatusName(cublasStatus_t) { return "a fake status"; }

CUresult BeginCapture(CUstream stream, CUstreamCaptureMode) {
  if (!g_fake->captures_work) return CUDA_ERROR_NOT_SUPPORTED;
  g_fake->capturing = stream;
  return CUDA_SUCCESS;
}
CUresult CreateGraph(CUgraph* graph, unsigned) {
  ++g_fake->live_graphs;
  *graph = reinterpret_cast<CUgraph>(uintptr_t{9});
  return CUDA_SUCCESS;
}
CUresult BeginCaptureToGraph(CUstream stream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                             size_t, CUstreamCaptureMode) {
  g_fake->capturing = stream;
  return CUDA_SUCCESS;
}
CUresult CreateStream(CUstream* stream, unsigned, int) {
  *stream = reinterpret_cast<CUstream>(g_fake->next_stream++);
  return CUDA_SUCCESS;
}
CUresult DestroyStream(CUstream) { return CUDA_SUCCESS; }
CUresult EndCapture(CUstream, CUgraph* graph) {
  g_fake->capturing = nullptr;
  ++g_fake->live_graphs;
  *graph = reinterpret_cast<CUgraph>(uintptr_t{7});
  return CUDA_SUCCESS;
}
// A memset before the kernel, as with K split.
CUresult GetNodes(CUgraph, CUgraphNode* nodes, size_t* count) {
  *count = 2;
  if (nodes == nullptr) return CUDA_SUCCESS;
  nodes[0] = reinterpret_cast<CUgraphNode>(uintptr_t{1});
  nodes[1] = reinterpret_cast<CUgraphNode>(uintptr_t{2});
  return CUDA_SUCCESS;
}
CUresult GetNodeType(CUgraphNode node, CUgraphNodeType* type) {
  *type = node == reinterpret_cast<CUgraphNode>(uintptr_t{1}) ? CU_GRAPH_NODE_TYPE_MEMSET
                                                              : CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}
CUresult GetKernelNodeParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS* params) {
  params->gridDimX = g_fake->captured_blocks;
  params->gridDimY = params->gridDimZ = 1;
  return CUDA_SUCCESS;
}
CUresult DestroyGraph(CUgraph) {
  --g_fake->live_graphs;
  return CUDA_SUCCESS;
}

CUresult Instantiate(CUgraphExec* executable, CUgraph, unsigned long long) {
  ++g_fake->live_executables;
  *executable = reinterpret_cast<CUgraphExec>(uintptr_t{8});
  return CUDA_SUCCESS;
}
CUresult DestroyExecutable(CUgraphExec) {
  --g_fake->live_executables;
  return CUDA_SUCCESS;
}
CUresult ErrorText(CUresult, const char** text) {
  *text = "a fake error";
  return CUDA_SUCCESS;
}
CUresult CaptureInfo(CUstream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*,
                     const CUgraphNode** last, const CUgraphEdgeData**, size_t* count) {
  static CUgraphNode node;
  node = reinterpret_cast<CUgraphNode>(g_fake->captured_copies.size());
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *last = &node;
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult SetNodeParams(CUgraphExec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  if (g_fake->set_status != CUDA_SUCCESS) return g_fake->set_status;
  const auto& copies = *static_cast<const kernels::cuda::BindingCopyArgs*>(params->kernelParams[0]);
  std::vector<CUdeviceptr>& to = g_fake->captured_copies[reinterpret_cast<uintptr_t>(node) - 1].to;
  to.clear();
  for (uint32_t i = 0; i < copies.count; ++i) to.push_back(copies.copies[i].to);
  return CUDA_SUCCESS;
}
CUresult LaunchGraph(CUgraphExec, CUstream) {
  std::vector<CUdeviceptr>& enqueued = g_fake->enqueued;
  const auto copy = [&](bool behind) {
    for (const FakeCopies& copies : g_fake->captured_copies) {
      if ((copies.behind > 0) == behind)
        enqueued.insert(enqueued.end(), copies.to.begin(), copies.to.end());
    }
  };
  copy(/*behind=*/false);
  enqueued.push_back(0);
  copy(/*behind=*/true);
  return CUDA_SUCCESS;
}
CUresult CopyOnDevice(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  g_fake->enqueued.push_back(to);
  std::set<size_t>& behind = g_fake->behind_stream[stream];
  g_fake->copies.push_back({{from, from + bytes}, {to, to + bytes}, behind});
  behind.insert(g_fake->copies.size() - 1);
  return CUDA_SUCCESS;
}

CUresult HostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::calloc(1, bytes);
  return CUDA_SUCCESS;
}
CUresult HostFree(void* pointer) {
  std::free(pointer);
  return CUDA_SUCCESS;
}
CUresult DeviceAlloc(CUdeviceptr* address, size_t bytes) {
  g_fake->device.assign(bytes / sizeof(uint64_t), 0);
  *address = reinterpret_cast<CUdeviceptr>(g_fake->device.data());
  return CUDA_SUCCESS;
}
CUresult DeviceFree(CUdeviceptr) { return CUDA_SUCCESS; }
CUresult CopyToDevice(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  const auto begin = reinterpret_cast<CUdeviceptr>(g_fake->device.data());
  if (to >= begin && to + bytes <= begin + g_fake->device.size() * sizeof(uint64_t)) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  } else {
    g_fake->uploaded.push_back({to, to + bytes});
  }
  return CUDA_SUCCESS;
}
CUresult SetBytes(CUdeviceptr at, unsigned char, size_t bytes, CUstream) {
  g_fake->set.push_back({at, at + bytes});
  return CUDA_SUCCESS;
}
CUresult SynchronizeStream(CUstream) { return CUDA_SUCCESS; }
CUresult CreateEvent(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(g_fake->next_event++);
  return CUDA_SUCCESS;
}
CUresult DestroyEvent(CUevent) { return CUDA_SUCCESS; }
CUresult RecordEvent(CUevent event, CUstream stream) {
  g_fake->behind_event[event] = g_fake->behind_stream[stream];
  g_fake->unfinished.insert(event);
  g_fake->recorded = event;
  return CUDA_SUCCESS;
}
CUresult WaitEvent(CUstream stream, CUevent event, unsigned) {
  g_fake->behind_stream[stream].insert(g_fake->behind_event[event].begin(),
                                       g_fake->behind_event[event].end());
  g_fake->awaited.push_back(event);
  return CUDA_SUCCESS;
}
CUresult QueryEvent(CUevent event) {
  ++g_fake->events_queried;
  return g_fake->unfinished.contains(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult LaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, CUstream, void** parameters, void**) {
  ++g_fake->kernels_launched;
  if (function == FakeCuda::Step()) {
    g_fake->steps.push_back(*static_cast<const kernels::cuda::StepArgs*>(parameters[0]));
    g_fake->step_blocks.push_back(blocks);
  }
  if (function == FakeCuda::EpilogueOfSums()) {
    g_fake->epilogues_of_sums.push_back(
        *static_cast<const kernels::cuda::SumsArgs*>(parameters[0]));
  } else if (function == FakeCuda::FallbackGemm()) {
    g_fake->fallbacks.push_back(*static_cast<const kernels::GemmArgs*>(parameters[0]));
  }
  return CUDA_SUCCESS;
}

CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                        void**) {
  if (function == FakeCuda::Skinny())
    g_fake->skinny.push_back(*static_cast<const kernels::cuda::SkinnyArgs*>(parameters[0]));
  if (function == FakeCuda::AttentionDecode()) {
    g_fake->attention.push_back(
        *static_cast<const kernels::cuda::AttentionKernelArgs*>(parameters[0]));
  }
  if (function == FakeCuda::Rows()) g_fake->rows_line_up.push_back(config->numAttrs > 0);
  if (function == FakeCuda::CopyBindings() && config->hStream == g_fake->capturing)
    g_fake->captured_copies.push_back({.behind = g_fake->captured.size(), .to = {}});
  return CUDA_SUCCESS;
}

CUresult GetDevice(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult GetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  if (attribute != CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) return CUDA_ERROR_NOT_SUPPORTED;
  *value = 132;
  return CUDA_SUCCESS;
}
CUresult EncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                     const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                     CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}

void FillIn(kernels::cuda::CublasLt& lt) {
  lt.cublasLtGetStatusName = StatusName;
  lt.cublasLtMatmul = Matmul;
  lt.cublasLtMatmulDescInit_internal = MatmulDescInit;
  lt.cublasLtMatmulDescSetAttribute = MatmulDescSet;
  lt.cublasLtMatrixLayoutInit_internal = LayoutInit;
  lt.cublasLtMatrixLayoutSetAttribute = LayoutSet;
  lt.cublasLtMatmulPreferenceInit_internal = PreferenceInit;
  lt.cublasLtMatmulPreferenceSetAttribute = PreferenceSet;
  lt.cublasLtMatmulAlgoGetHeuristic = GetHeuristic;
  lt.cublasLtMatmulAlgoCheck = AlgoCheck;
  lt.cublasLtMatmulAlgoConfigGetAttribute = AlgoConfigGet;
}

void FillIn(kernels::cuda::Driver& driver) {
  driver.cuStreamBeginCapture = BeginCapture;
  driver.cuStreamEndCapture = EndCapture;
  driver.cuGraphCreate = CreateGraph;
  driver.cuStreamBeginCaptureToGraph = BeginCaptureToGraph;
  driver.cuStreamCreateWithPriority = CreateStream;
  driver.cuStreamDestroy = DestroyStream;
  driver.cuGraphGetNodes = GetNodes;
  driver.cuGraphNodeGetType = GetNodeType;
  driver.cuGraphKernelNodeGetParams = GetKernelNodeParams;
  driver.cuGraphDestroy = DestroyGraph;
  driver.cuGraphInstantiateWithFlags = Instantiate;
  driver.cuGraphExecDestroy = DestroyExecutable;
  driver.cuGetErrorName = driver.cuGetErrorString = ErrorText;
  driver.cuGraphLaunch = LaunchGraph;
  driver.cuStreamGetCaptureInfo = CaptureInfo;
  driver.cuGraphExecKernelNodeSetParams = SetNodeParams;
  driver.cuMemcpyDtoDAsync = CopyOnDevice;
  driver.cuMemHostAlloc = HostAlloc;
  driver.cuMemFreeHost = HostFree;
  driver.cuMemAlloc = DeviceAlloc;
  driver.cuMemFree = DeviceFree;
  driver.cuMemcpyHtoDAsync = CopyToDevice;
  driver.cuMemsetD8Async = SetBytes;
  driver.cuStreamSynchronize = SynchronizeStream;
  driver.cuEventCreate = CreateEvent;
  driver.cuEventDestroy = DestroyEvent;
  driver.cuEventRecord = RecordEvent;
  driver.cuEventQuery = QueryEvent;
  driver.cuStreamWaitEvent = WaitEvent;
  driver.cuLaunchKernel = LaunchKernel;
  driver.cuLaunchKernelEx = LaunchKernelEx;
  driver.cuDeviceGet = GetDevice;
  driver.cuDeviceGetAttribute = GetAttribute;
  driver.cuTensorMapEncodeTiled = EncodeTiled;
}

}  // namespace

FakeCuda::FakeCuda() {
  g_fake = this;
  FillIn(api_.cublaslt);
  FillIn(api_.driver);
  kernels_.copy_bindings = CopyBindings();
  kernels_.rows = Rows();
  kernels_.epilogue_of_sums.fill(EpilogueOfSums());
  for (auto& kernels : kernels_.attention_decode) kernels.fill(AttentionDecode());
  for (auto& kernels : kernels_.fallback_gemm) kernels.fill(FallbackGemm());
  for (auto& kernels : kernels_.fallback_gemm_fp8) kernels.fill(FallbackGemm());
}

FakeCuda::~FakeCuda() { g_fake = nullptr; }

kernels::cuda::LaunchContext FakeCuda::Context(policies::Lane lane) {
  return {.api = api_,
          .kernels = kernels_,
          .cublaslt = nullptr,
          .gemm_cache = cache_,
          .gpu = 0,
          .stream = StreamOf(lane),
          .workspace = 0,
          .workspace_bytes = kWorkspaceBytes,
          .sm_budget = 0,
          .form = policies::Form::kSingle,
          .degree = policies::Degree::kSolo,
          .tuned = nullptr,
          .variant = nullptr,
          .probe_stream = ProbeStream()};
}

}  // namespace concert::test

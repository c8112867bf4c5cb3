#include "engine/ops/attention/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// From the driver: the runtime, which is linked in, does not have it.
Encode find_encode() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                              cudaEnableDefault, &result),
             "cuTensorMapEncodeTiled");
#else
  cuda_check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &result),
             "cuTensorMapEncodeTiled");
#endif
  if (entry == nullptr) fail("the driver has no tensor maps: install version 525 or newer");
  return reinterpret_cast<Encode>(entry);
}

}  // namespace

CUtensorMap map_of_pages(const std::byte* pool, bool bf16) {
  static const Encode encode = find_encode();
  constexpr cuuint32_t kPanel = 64;
  constexpr cuuint32_t kPanels = 4;
  constexpr cuuint64_t kVectors = cuuint64_t{1} << 30;
  const cuuint64_t sizes[3] = {kPanel, kVectors, kPanels};
  const cuuint64_t strides[2] = {kPanels * kPanel * 2, kPanel * 2};
  const cuuint32_t box[3] = {kPanel, kPageTokens, kPanels};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult result =
      encode(&map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
             const_cast<std::byte*>(pool), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  LOCKSTEP_CHECK(result == CUDA_SUCCESS);
  return map;
}

}  // namespace lockstep

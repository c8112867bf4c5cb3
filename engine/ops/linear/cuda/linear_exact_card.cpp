#include "engine/ops/linear/cuda/linear_cuda.h"
#include "engine/ops/linear/cuda/linear_exact.h"
#include "engine/ops/linear/cuda/linear_pack.h"

namespace lockstep {

std::vector<float> linear_exact_card(size_t index, uint64_t seed, Device& device, Stream& stream) {
  const LinearRoute& route = linear_routes()[index];
  const LinearExactProblem problem(route.codec, seed);
  const DeviceFacts& facts = device.facts();
  const LinearCudaPlan plan =
      plan_linear_cuda(route.codec, kLinearExactRows, kLinearExactCols, problem.view.group,
                       route.family, facts.block_shared_bytes, "linear_exact");
  const std::vector<std::byte> packed = pack_linear(problem.view, plan, false, "linear_exact");
  const DeviceMemory weight(device, static_cast<int64_t>(packed.size()));
  const DeviceMemory x(device, static_cast<int64_t>(problem.x.size() * sizeof(uint16_t)));
  const DeviceMemory prepared(device, linear_prepared_bytes(plan, kSkinnyTokens));
  std::vector<float> out(static_cast<size_t>(kSkinnyTokens * kLinearExactRows));
  const DeviceMemory result(device, static_cast<int64_t>(out.size() * sizeof(float)));
  stream.copy_in(weight.data(), packed.data(), weight.size());
  stream.copy_in(x.data(), problem.x.data(), x.size());
  linear_cuda({plan, weight.data(), reinterpret_cast<const uint16_t*>(x.data()), kLinearExactCols,
               prepared.data(), result.data(), kLinearExactRows, kSkinnyTokens, CudaOutput::fp32,
               facts.n_multiprocessors},
              stream);
  stream.copy_out(out.data(), result.data(), result.size());
  stream.synchronize();
  return out;
}

}  // namespace lockstep

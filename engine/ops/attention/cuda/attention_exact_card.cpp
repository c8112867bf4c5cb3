#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/ops/attention/cuda/attention_cuda.h"
#include "engine/ops/attention/cuda/attention_exact.h"

namespace lockstep {

std::vector<float> attention_exact_card(size_t index, uint64_t seed, Device& device,
                                        Stream& stream) {
  LOCKSTEP_CHECK(index < kAttentionExactPaths.size());
  const AttentionExactProblem problem(seed);
  const AttentionCudaPlan plan = plan_attention_cuda(
      {kAttentionExactHeads, kAttentionExactKvHeads, kAttentionHeadDim, KvType::int8,
       kAttentionExactPositions},
      kAttentionExactPaths[index],
      attention_family(kAttentionExactPaths[index], KvType::int8, device.facts()),
      kAttentionExactSegments);
  const int64_t n_values = int64_t{kAttentionExactHeads} * kAttentionHeadDim;
  const DeviceMemory q(device, n_values * 2);
  const DeviceMemory out(device, n_values * 2);
  const DeviceMemory pool(device, static_cast<int64_t>(problem.memory.size()));
  const DeviceMemory pages(device, static_cast<int64_t>(problem.pages.size() * sizeof(uint32_t)));
  const DeviceMemory first(device, sizeof(int32_t));
  const DeviceMemory partials(device, plan.partial_bytes);
  const auto position = static_cast<int32_t>(kAttentionExactPositions - 1);
  stream.fill(q.data(), 0, q.size());
  stream.copy_in(pool.data(), problem.memory.data(), pool.size());
  stream.copy_in(pages.data(), problem.pages.data(), pages.size());
  stream.copy_in(first.data(), &position, first.size());
  AttentionCudaArgs args{plan};
  args.q = reinterpret_cast<const uint16_t*>(q.data());
  args.q_stride = n_values;
  args.q_head_stride = kAttentionHeadDim;
  args.out = reinterpret_cast<uint16_t*>(out.data());
  args.out_stride = n_values;
  args.pool = pool.data();
  args.page_table = reinterpret_cast<const uint32_t*>(pages.data());
  args.first_position = reinterpret_cast<const int32_t*>(first.data());
  args.n_tokens = 1;
  args.scale = 0.0625f;
  args.partials = partials.data();
  args.n_multiprocessors = device.facts().n_multiprocessors;
  attention_cuda(args, stream);
  std::vector<uint16_t> bits(static_cast<size_t>(n_values));
  stream.copy_out(bits.data(), out.data(), out.size());
  stream.synchronize();
  std::vector<float> values;
  for (const uint16_t b : bits) values.push_back(bf16_to_float(b));
  return values;
}

}  // namespace lockstep

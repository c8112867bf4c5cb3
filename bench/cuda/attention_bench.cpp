#include "bench/cuda/attention_bench.h"

#include <cuda_runtime_api.h>

#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "bench/work.h"
#include "engine/base/error.h"
#include "engine/ops/attention/cuda/attention_cuda.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int64_t kContexts[] = {8192, 32768, 131072, 186000, 262144};

void time_context(OpsRun& run, int n_kv_heads, int64_t context) {
  const auto native = static_cast<cudaStream_t>(run.stream.native());
  const int n_heads = 6 * n_kv_heads;
  const AttentionCudaPlan plan =
      plan_attention_cuda(n_heads, n_kv_heads, kAttentionHeadDim, KvType::int8, context,
                          run.settings.segment, run.device.facts().arch);
  const int64_t page_bytes = kv_page_bytes(KvType::int8, n_kv_heads, kAttentionHeadDim);
  const int64_t n_pages = (context + kPageTokens - 1) / kPageTokens;
  const int64_t layer_bytes = n_pages * page_bytes;
  // Other pages for each launch, as each layer of a model has its own.
  const int n_copies = static_cast<int>(
      std::clamp<int64_t>(6 * run.device.facts().l2_bytes / layer_bytes + 1, 2, 64));
  const DeviceMemory pool(run.device, n_copies * layer_bytes);
  // Bytes that read as small codes and as scales of ordinary size alike.
  launch_fill(pool.data(), pool.size() / 4, 0x13ff13ffu, 0x20002000u, 7, native);
  std::vector<uint32_t> table(static_cast<size_t>(n_copies * n_pages));
  for (int64_t i = 0; i < n_copies; ++i) {
    for (int64_t page = 0; page < n_pages; ++page) {
      table[static_cast<size_t>(i * n_pages + page)] =
          static_cast<uint32_t>(i * n_pages + (page * 97) % n_pages);
    }
  }
  const DeviceMemory pages(run.device, static_cast<int64_t>(table.size()) * 4);
  run.stream.copy_in(pages.data(), table.data(), pages.size());
  const DeviceMemory q(run.device, kAttentionTokens * n_heads * 2 * kAttentionHeadDim * 2);
  launch_fill(q.data(), q.size() / 4, 0xbfffbfffu, 0, 5, native);
  const DeviceMemory out(run.device, kAttentionTokens * n_heads * kAttentionHeadDim * 2);
  const DeviceMemory partials(run.device, plan.partial_bytes);
  const DeviceMemory first(run.device, 4);
  for (const int n_tokens : run.settings.tokens) {
    if (n_tokens > kAttentionTokens) continue;
    const auto first_position = static_cast<int32_t>(context - n_tokens);
    run.stream.copy_in(first.data(), &first_position, 4);
    run.stream.synchronize();
    AttentionCudaArgs args{plan};
    args.q = reinterpret_cast<const uint16_t*>(q.data());
    args.q_stride = args.gate_stride = int64_t{2} * n_heads * kAttentionHeadDim;
    args.q_head_stride = args.gate_head_stride = 2 * kAttentionHeadDim;
    args.gate = args.q + kAttentionHeadDim;
    args.out = reinterpret_cast<uint16_t*>(out.data());
    args.out_stride = int64_t{n_heads} * kAttentionHeadDim;
    args.pool = pool.data();
    args.first_position = reinterpret_cast<const int32_t*>(first.data());
    args.n_tokens = n_tokens;
    args.scale = 0.0625f;
    args.partials = partials.data();
    const LaunchTimes seconds =
        time_launches(native, std::max(n_copies, 8), run.settings.n_replays, [&](int i) {
          args.page_table =
              reinterpret_cast<const uint32_t*>(pages.data()) + (i % n_copies) * n_pages;
          attention_cuda(args, run.stream);
        });
    run.rows.push_back(
        {"attention int8", fmt::format("{} KV heads, {}", n_kv_heads, context), n_tokens,
         static_cast<double>(kv_bytes(KvType::int8, n_kv_heads, kAttentionHeadDim, context)),
         seconds});
  }
}

}  // namespace

void run_attention(OpsRun& run) {
  for (const int n_kv_heads : {4, 2}) {
    for (const int64_t context : kContexts) time_context(run, n_kv_heads, context);
  }
}

}  // namespace lockstep::bench_cuda

#include "bench/cuda/attention_bench.h"

#include <cuda_runtime_api.h>

#include <memory>

#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "bench/work.h"
#include "engine/base/error.h"
#include "engine/ops/attention/cuda/attention_cuda.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int64_t kContexts[] = {8192, 32768, 131072, 186000, 262144};
// Columns of a prefill chunk, and positions up to its end; 0: the chunk alone.
constexpr int kPrefillTokens[] = {512, 2048};
constexpr int64_t kPrefillContexts[] = {0, 8192, 32768, 131072};

KvType kv_type_of(const std::string& name) {
  for (const AttentionRoute& route : attention_routes()) {
    if (kv_type_name(route.type) == name) return route.type;
  }
  fail("--kv {}: no such type of cache: bf16, fp16, int8 or fp32", name);
}

// A cache of `context` positions and what a launch needs beside it.
class Bench {
 public:
  Bench(OpsRun& run, KvType type, int n_kv_heads, int64_t context, int most_tokens)
      : run_(run),
        native_(static_cast<cudaStream_t>(run.stream.native())),
        shape_{6 * n_kv_heads, n_kv_heads, kAttentionHeadDim, type, context},
        n_pages_((context + kPageTokens - 1) / kPageTokens) {
    const int64_t layer_bytes = n_pages_ * kv_page_bytes(type, n_kv_heads, kAttentionHeadDim);
    // Other pages for each launch, as each layer of a model has its own.
    n_copies_ = static_cast<int>(
        std::clamp<int64_t>(6 * run.device.facts().l2_bytes / layer_bytes + 1, 2, 64));
    pool_ = DeviceMemory(run.device, n_copies_ * layer_bytes);
    // Bytes that read as small codes, as scales of ordinary size and as small numbers alike.
    launch_fill(pool_.data(), pool_.size() / 4, 0x13ff13ffu, 0x20002000u, 7, native_);
    std::vector<uint32_t> table;
    for (int64_t i = 0; i < n_copies_ * n_pages_; ++i) {
      table.push_back(static_cast<uint32_t>(i / n_pages_ * n_pages_ + (i * 97) % n_pages_));
    }
    pages_ = DeviceMemory(run.device, static_cast<int64_t>(table.size()) * 4);
    run.stream.copy_in(pages_.data(), table.data(), pages_.size());
    q_ =
        DeviceMemory(run.device, int64_t{most_tokens} * shape_.n_heads * 2 * kAttentionHeadDim * 2);
    launch_fill(q_.data(), q_.size() / 4, 0xbfffbfffu, 0, 5, native_);
    out_ = DeviceMemory(run.device, int64_t{most_tokens} * shape_.n_heads * kAttentionHeadDim * 2);
    first_ = DeviceMemory(run.device, 4);
    run.stream.synchronize();
  }

  LaunchTimes seconds(AttentionPath path, int n_tokens) {
    const OpsSettings& settings = run_.settings;
    const KernelFamily family = settings.family == "auto"
                                    ? attention_family(path, shape_.type, run_.device.facts())
                                : settings.family == "sm70" ? KernelFamily::sm70
                                                            : KernelFamily::sm80;
    const AttentionCudaPlan plan = plan_attention_cuda(shape_, path, family, settings.segments);
    const DeviceMemory partials(run_.device, plan.partial_bytes);
    const auto first_position = static_cast<int32_t>(shape_.max_positions - n_tokens);
    run_.stream.copy_in(first_.data(), &first_position, 4);
    run_.stream.synchronize();
    AttentionCudaArgs args{plan};
    args.q = reinterpret_cast<const uint16_t*>(q_.data());
    args.q_stride = args.gate_stride = int64_t{2} * shape_.n_heads * kAttentionHeadDim;
    args.q_head_stride = args.gate_head_stride = 2 * kAttentionHeadDim;
    args.gate = args.q + kAttentionHeadDim;
    args.out = reinterpret_cast<uint16_t*>(out_.data());
    args.out_stride = int64_t{shape_.n_heads} * kAttentionHeadDim;
    args.pool = pool_.data();
    args.first_position = reinterpret_cast<const int32_t*>(first_.data());
    args.n_tokens = n_tokens;
    args.scale = 0.0625f;
    args.partials = partials.data();
    args.n_multiprocessors = run_.device.facts().n_multiprocessors;
    const int n_launches = path == AttentionPath::decode ? std::max(n_copies_, 8) : 1;
    return time_launches(native_, n_launches, settings.n_replays, [&](int i) {
      args.page_table =
          reinterpret_cast<const uint32_t*>(pages_.data()) + (i % n_copies_) * n_pages_;
      attention_cuda(args, run_.stream);
    });
  }

 private:
  OpsRun& run_;
  cudaStream_t native_;
  AttentionShape shape_;
  int64_t n_pages_;
  int n_copies_ = 0;
  DeviceMemory pool_;
  DeviceMemory pages_;
  DeviceMemory q_;
  DeviceMemory out_;
  DeviceMemory first_;
};

// Products of all columns with the positions that they see, of K and of V.
double flops_of(int n_heads, int64_t context, int64_t n_tokens) {
  const double pairs = static_cast<double>(n_tokens) *
                       (static_cast<double>(context - n_tokens) + (n_tokens + 1) / 2.0);
  return pairs * n_heads * kAttentionHeadDim * 4;
}

void time_decode(OpsRun& run, KvType type, int n_kv_heads, int64_t context) {
  Bench bench(run, type, n_kv_heads, context, kAttentionTokens);
  const auto bytes = static_cast<double>(kv_bytes(type, n_kv_heads, kAttentionHeadDim, context));
  for (const int n_tokens : run.settings.tokens) {
    if (n_tokens > kAttentionTokens) continue;
    run.rows.push_back({fmt::format("attention {}", kv_type_name(type)),
                        fmt::format("{} KV heads, {}", n_kv_heads, context), n_tokens, bytes,
                        bench.seconds(AttentionPath::decode, n_tokens),
                        flops_of(6 * n_kv_heads, context, n_tokens)});
  }
}

void time_prefill(OpsRun& run, KvType type, int n_kv_heads, int64_t context, int n_tokens) {
  Bench bench(run, type, n_kv_heads, context, n_tokens);
  run.rows.push_back({fmt::format("prefill attention {}", kv_type_name(type)),
                      fmt::format("{} KV heads, {}", n_kv_heads, context), n_tokens,
                      static_cast<double>(kv_bytes(type, n_kv_heads, kAttentionHeadDim, context)),
                      bench.seconds(AttentionPath::prefill, n_tokens),
                      flops_of(6 * n_kv_heads, context, n_tokens)});
}

}  // namespace

void run_attention(OpsRun& run) {
  for (const std::string& name : run.settings.kv_types) {
    for (const int n_kv_heads : {4, 2}) {
      for (const int64_t context : kContexts) {
        time_decode(run, kv_type_of(name), n_kv_heads, context);
      }
    }
  }
}

void run_prefill_attention(OpsRun& run) {
  for (const std::string& name : run.settings.kv_types) {
    for (const int64_t context : kPrefillContexts) {
      for (const int n_tokens : kPrefillTokens) {
        time_prefill(run, kv_type_of(name), 4, std::max<int64_t>(context, n_tokens), n_tokens);
      }
    }
  }
}

}  // namespace lockstep::bench_cuda

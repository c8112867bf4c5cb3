#include "bench/cuda/rows_bench.h"

#include <fmt/format.h>

#include "bench/cuda/device_kernels.h"
#include "bench/cuda/places.h"
#include "engine/ops/bias_add/cuda/bias_add_cuda.h"
#include "engine/ops/layernorm/cuda/layernorm_cuda.h"
#include "engine/ops/prepare_heads/cuda/prepare_heads_cuda.h"
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"
#include "engine/ops/vision_attention/cuda/vision_attention_cuda.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int64_t kHidden = 5120;

void time_norm(OpsRun& run, int n_tokens) {
  const int64_t row = n_tokens * kHidden;
  const Places places(run, row * 2 * 4);
  const DeviceMemory weight(run.device, kHidden * 4);
  launch_fill(weight.data(), kHidden, 0x007fffffu, 0x3f000000u, 3, native_stream(run));
  const auto norm = [&](int n_branches) {
    const double bytes = static_cast<double>(row) * 2 * (n_branches == 0 ? 2 : 3 + n_branches);
    add_row(run, n_branches == 0 ? "rmsnorm" : "add + rmsnorm",
            n_branches == 2 ? "5120, two partials" : "5120", n_tokens, bytes, places.n(),
            [&](int i) {
              RmsNormCudaArgs args;
              args.x = places.at<uint16_t>(i);
              args.x_stride = args.out_stride = kHidden;
              args.y0 = n_branches > 0 ? args.x + row : nullptr;
              args.y1 = n_branches > 1 ? args.x + 2 * row : nullptr;
              args.weight = reinterpret_cast<const float*>(weight.data());
              args.out = args.x + 3 * row;
              args.n_rows = n_tokens;
              args.width = kHidden;
              args.eps = 1e-6f;
              args.weight_offset = 1.0f;
              rmsnorm_cuda(args, run.stream);
            });
  };
  norm(0);
  norm(2);
}

void time_swiglu(OpsRun& run, int64_t width, int n_tokens) {
  const int64_t n = n_tokens * width;
  const Places places(run, n * 2 * 3);
  add_row(run, "swiglu", fmt::format("{}", width), n_tokens, static_cast<double>(n) * 6, places.n(),
          [&](int i) {
            auto* gate = places.at<uint16_t>(i);
            swiglu_cuda(
                {gate, 2 * width, gate + width, 2 * width, gate + 2 * n, width, n_tokens, width},
                run.stream);
          });
}

void time_heads(OpsRun& run, int n_kv_heads, int n_tokens) {
  constexpr int kDim = 256;
  const int n_heads = 6 * n_kv_heads;
  const int64_t n_qg = int64_t{n_tokens} * n_heads * 2 * kDim;
  const int64_t n_kv = int64_t{n_tokens} * n_kv_heads * kDim;
  const Places places(run, (n_qg + n_qg / 2 + 2 * n_kv) * 2);
  const int64_t n_pages = n_tokens / kPageTokens + 1;
  const DeviceMemory pool(run.device, n_pages * kv_page_bytes(KvType::int8, n_kv_heads, kDim));
  std::vector<uint32_t> table(static_cast<size_t>(n_pages));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint32_t>(i);
  const DeviceMemory pages(run.device, n_pages * 4);
  const DeviceMemory first(run.device, 4);
  const DeviceMemory angles(run.device, int64_t{n_tokens} * 32 * 8);
  const DeviceMemory norms(run.device, kDim * 4);
  run.stream.copy_in(pages.data(), table.data(), pages.size());
  run.stream.fill(first.data(), 0, 4);
  launch_fill(angles.data(), angles.size() / 4, 0x007fffffu, 0x3e800000u, 5, native_stream(run));
  launch_fill(norms.data(), norms.size() / 4, 0x007fffffu, 0x3f000000u, 6, native_stream(run));
  run.stream.synchronize();
  const double bytes = static_cast<double>(n_qg / 2 * 2 + 2 * n_kv) * 2 + n_kv * 2 * (1 + 2.0 / 64);
  add_row(run, "heads + int8 cache", fmt::format("{} KV heads", n_kv_heads), n_tokens, bytes,
          places.n(), [&](int i) {
            PrepareHeadsCudaArgs args;
            args.q = places.at<uint16_t>(i);
            args.q_stride = int64_t{n_heads} * 2 * kDim;
            args.q_head_stride = 2 * kDim;
            args.q_norm = args.k_norm = reinterpret_cast<const float*>(norms.data());
            args.q_out = places.at<uint16_t>(i) + n_qg;
            args.n_heads = n_heads;
            args.k = args.q_out + n_qg / 2;
            args.v = args.k + n_kv;
            args.k_stride = args.v_stride = int64_t{n_kv_heads} * kDim;
            args.cache = {KvType::int8, n_kv_heads, kDim, pool.data(),
                          reinterpret_cast<const uint32_t*>(pages.data())};
            args.first_position = reinterpret_cast<const int32_t*>(first.data());
            args.angles = reinterpret_cast<const float*>(angles.data());
            args.n_pairs = 32;
            args.rotate = true;
            args.eps = 1e-6f;
            args.n_tokens = n_tokens;
            prepare_heads_cuda(args, run.stream);
          });
}

void time_layernorm(OpsRun& run, int n_patches) {
  constexpr int kWidth = 1152;
  const int64_t n = int64_t{n_patches} * kWidth;
  const Places places(run, n * 4);
  const DeviceMemory weights(run.device, 2 * kWidth * 4);
  launch_fill(weights.data(), 2 * kWidth, 0x007fffffu, 0x3f000000u, 3, native_stream(run));
  const auto* weight = reinterpret_cast<const float*>(weights.data());
  add_row(run, "layernorm", "1152", n_patches, static_cast<double>(n) * 4, places.n(), [&](int i) {
    auto* x = places.at<uint16_t>(i);
    layernorm_cuda({x, weight, weight + kWidth, x + n, n_patches, kWidth, 1e-6f}, run.stream);
  });
}

void time_bias(OpsRun& run, AfterBias after, const char* name, int n_patches) {
  constexpr int64_t kWidth = 4304;
  const int64_t n = n_patches * kWidth;
  const Places places(run, n * 6);
  const DeviceMemory bias(run.device, kWidth * 4);
  launch_fill(bias.data(), kWidth, 0x007fffffu, 0x3f000000u, 3, native_stream(run));
  add_row(run, name, "4304", n_patches, static_cast<double>(n) * 6, places.n(), [&](int i) {
    auto* x = places.at<float>(i);
    bias_add_cuda({x, reinterpret_cast<const float*>(bias.data()),
                   reinterpret_cast<uint16_t*>(x + n), n_patches, kWidth, after},
                  run.stream);
  });
}

void time_vision_attention(OpsRun& run, KernelFamily family, int n_patches) {
  constexpr int kHeads = 16;
  constexpr int kDim = 72;
  constexpr int64_t kWidth = kHeads * kDim;
  const int64_t n = n_patches * kWidth;
  const Places places(run, n * 8);
  const double flops = 4.0 * n_patches * static_cast<double>(n);
  add_row(run, "vision attention", fmt::format("{}, 16 heads of 72", family_name(family)),
          n_patches, static_cast<double>(n) * 8, places.n(), [&](int i) {
            const auto* q = places.at<uint16_t>(i);
            vision_attention_cuda(
                {q, q + kWidth, q + 2 * kWidth, 3 * kWidth, places.at<uint16_t>(i) + 3 * n,
                 n_patches, kHeads, kDim, 0.11785113f, family},
                run.stream);
          });
  OpsRow& row = run.rows.back();
  row.what += fmt::format(", {:.1f} TFLOP/s", flops / row.seconds * 1e-12);
}

}  // namespace

void run_rows(OpsRun& run) {
  for (const int n_tokens : run.settings.tokens) time_norm(run, n_tokens);
  for (const int64_t width : {17408, 8704}) {
    for (const int n_tokens : run.settings.tokens) time_swiglu(run, width, n_tokens);
  }
  for (const int n_kv_heads : {4, 2}) {
    for (const int n_tokens : run.settings.tokens) time_heads(run, n_kv_heads, n_tokens);
  }
  for (const int n_tokens : run.settings.tokens) run_pieces(run, n_tokens);
}

void run_vision(OpsRun& run) {
  for (const int n_patches : {256, 1024, 4096}) {
    run_position_table(run, n_patches);
    time_layernorm(run, n_patches);
    time_bias(run, AfterBias::gelu_tanh, "bias + gelu tanh", n_patches);
    time_bias(run, AfterBias::gelu_exact, "bias + gelu exact", n_patches);
    time_vision_attention(run, KernelFamily::sm70, n_patches);
    if (run.device.facts().arch >= 80) time_vision_attention(run, KernelFamily::sm80, n_patches);
  }
}

}  // namespace lockstep::bench_cuda

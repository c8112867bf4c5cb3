#include "bench/cuda/gdn_bench.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"
#include "engine/ops/gated_rmsnorm/cuda/gated_rmsnorm_cuda.h"
#include "engine/ops/gdn_gates/cuda/gdn_gates_cuda.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int kMostTokens = 2048;

// The heads of one rank: all of the 27B model, or half of them.
struct Heads {
  const char* name;
  int n_k_heads;
  int n_v_heads;
  int64_t k_width() const { return int64_t{n_k_heads} * kGdnHeadDim; }
  int64_t v_width() const { return int64_t{n_v_heads} * kGdnHeadDim; }
  int64_t channels() const { return 2 * k_width() + v_width(); }
  int64_t state_bytes() const { return v_width() * kGdnHeadDim * 4; }
};

constexpr Heads kHeads[] = {{"48 heads", 16, 48}, {"24 heads", 8, 24}};

cudaStream_t native(const OpsRun& run) {
  return static_cast<cudaStream_t>(run.stream.native());
}

// bfloat16 of magnitudes below 2.
DeviceMemory random_bf16(OpsRun& run, int64_t n, uint32_t seed) {
  DeviceMemory memory(run.device, (n * 2 + 15) / 16 * 16);
  launch_fill(memory.data(), memory.size() / 4, 0xbfffbfffu, 0, seed, native(run));
  return memory;
}

// float32 with the given sign and exponent bits.
DeviceMemory random_f32(OpsRun& run, int64_t n, uint32_t set) {
  DeviceMemory memory(run.device, n * 4);
  launch_fill(memory.data(), n, 0x007fffffu, set, 17, native(run));
  return memory;
}

template <typename T>
T* as(const DeviceMemory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

constexpr uint32_t kHalfToOne = 0x3f000000u;
constexpr uint32_t kMinusHalfToOne = 0xbf000000u;

// Copies of what a launch must find outside the caches.
int copies_of(const OpsRun& run, int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(6 * run.device.facts().l2_bytes / bytes + 1, 2, 64));
}

void add_row(OpsRun& run, const std::string& op, const std::string& what, int n_tokens,
             double bytes, double roof, int n_launches, const std::function<void(int)>& launch) {
  const LaunchTimes seconds =
      time_launches(native(run), std::max(n_launches, 8), run.settings.n_replays, launch);
  OpsRow row{op, what, n_tokens, bytes, seconds};
  row.roof_bytes_per_s = roof;
  run.rows.push_back(row);
}

GatedDeltaCudaPlan plan_of(const OpsRun& run, const Heads& heads, int64_t max_tokens) {
  const DeviceFacts& facts = run.device.facts();
  const KernelFamily family =
      run.settings.family == "sm70" ? KernelFamily::sm70 : family_of_card(facts);
  return plan_gated_delta_cuda(heads.n_k_heads, heads.n_v_heads, kGdnHeadDim, kGdnHeadDim,
                               max_tokens, family, facts);
}

// A round of `n_slots` sequences that all replay as many columns as they add.
struct Round {
  Round(OpsRun& run, const Heads& heads, int slots, int n_tokens)
      : n_slots(slots), memory(run.device, n_slots * static_cast<int64_t>(sizeof(GdnSpan))) {
    std::vector<GdnSpan> spans;
    for (int s = 0; s < slots; ++s) {
      spans.push_back({s, s * n_tokens, n_tokens, n_tokens, n_tokens});
    }
    run.stream.copy_in(memory.data(), spans.data(), memory.size());
    run.stream.synchronize();
    what = fmt::format("{}, {} slot{}", heads.name, slots, slots == 1 ? "" : "s");
  }
  int n_slots;
  DeviceMemory memory;
  std::string what;
};

CausalConvCudaArgs conv_args(const Heads& heads, const Round& round, const DeviceMemory& m,
                             const DeviceMemory& weight, const DeviceMemory& window,
                             const DeviceMemory& out) {
  CausalConvCudaArgs conv;
  conv.m = as<uint16_t>(m);
  conv.m_stride = conv.out_stride = heads.channels();
  conv.weight = as<float>(weight);
  conv.window = as<uint16_t>(window);
  conv.slot_stride = kConvWindowRows * heads.channels();
  conv.out = as<uint16_t>(out);
  conv.spans = as<GdnSpan>(round.memory);
  conv.n_spans = round.n_slots;
  conv.n_channels = static_cast<int>(heads.channels());
  return conv;
}

GdnGatesCudaArgs gates_args(const Heads& heads, const Round& round, const DeviceMemory& ab,
                            const DeviceMemory& weight, const DeviceMemory& log_decay,
                            const DeviceMemory& beta, const DeviceMemory& record) {
  GdnGatesCudaArgs gates;
  gates.a = gates.b = as<uint16_t>(ab);
  gates.stride = heads.channels();
  gates.a_log = as<float>(weight);
  gates.dt_bias = gates.a_log + heads.n_v_heads;
  gates.log_decay = as<float>(log_decay);
  gates.beta = as<float>(beta);
  gates.record = as<float>(record);
  gates.slot_stride = int64_t{2} * kGdnRoundColumns * heads.n_v_heads;
  gates.spans = as<GdnSpan>(round.memory);
  gates.n_spans = round.n_slots;
  gates.n_heads = heads.n_v_heads;
  return gates;
}

void time_decode(OpsRun& run, const Heads& heads, int n_slots, int n_tokens) {
  const Round round(run, heads, n_slots, n_tokens);
  const auto* spans = as<GdnSpan>(round.memory);
  const int64_t channels = heads.channels();
  const int64_t n_rows = int64_t{n_slots} * kGdnRoundRows;
  const DeviceMemory m = random_bf16(run, int64_t{n_slots} * n_tokens * channels, 1);
  const DeviceMemory rows = random_bf16(run, n_rows * channels, 2);
  const DeviceMemory weight = random_f32(run, channels * 4, kHalfToOne);
  const DeviceMemory log_decay = random_f32(run, n_rows * heads.n_v_heads, kMinusHalfToOne);
  const DeviceMemory beta = random_f32(run, n_rows * heads.n_v_heads, kHalfToOne);
  const DeviceMemory out = random_bf16(run, int64_t{n_slots} * n_tokens * heads.v_width(), 3);
  const DeviceMemory window = random_bf16(run, int64_t{n_slots} * kConvWindowRows * channels, 4);
  const DeviceMemory record =
      random_f32(run, int64_t{n_slots} * 2 * kGdnRoundColumns * heads.n_v_heads, kMinusHalfToOne);

  const auto states_bytes = n_slots * heads.state_bytes();
  const int n_copies = copies_of(run, states_bytes);
  const DeviceMemory states = random_f32(run, n_copies * states_bytes / 4, kHalfToOne);
  const GatedDeltaCudaPlan plan = plan_of(run, heads, 0);
  GatedDeltaCudaArgs delta{plan};
  delta.q = as<uint16_t>(rows);
  delta.k = delta.q + heads.k_width();
  delta.v = delta.k + heads.k_width();
  delta.row_stride = channels;
  delta.log_decay = as<float>(log_decay);
  delta.beta = as<float>(beta);
  delta.out = as<uint16_t>(out);
  delta.out_stride = heads.v_width();
  add_row(run, "gated_delta decode", round.what, n_tokens, 2.0 * static_cast<double>(states_bytes),
          run.update_bytes_per_s, n_copies, [&](int i) {
            delta.state = as<float>(states) + i % n_copies * states_bytes / 4;
            gated_delta_decode_cuda(delta, spans, n_slots, heads.state_bytes() / 4, run.stream);
          });

  const CausalConvCudaArgs conv = conv_args(heads, round, m, weight, window, rows);
  // Inputs and window in, rows and window out, weights once.
  const auto conv_bytes =
      static_cast<double>(channels * (n_slots * (n_tokens * 3 + n_tokens * 2 + 6) * 2 + 16));
  add_row(run, "causal_conv decode", round.what, n_tokens, conv_bytes, run.update_bytes_per_s, 8,
          [&](int) { causal_conv_decode_cuda(conv, run.stream); });

  const GdnGatesCudaArgs gates = gates_args(heads, round, m, weight, log_decay, beta, record);
  const auto gates_bytes =
      static_cast<double>(int64_t{n_slots} * n_tokens * heads.n_v_heads * (4 + 8 + 16 + 8));
  add_row(run, "gdn_gates decode", round.what, n_tokens, gates_bytes, run.update_bytes_per_s, 8,
          [&](int) { gdn_gates_decode_cuda(gates, run.stream); });

  GatedRmsNormCudaArgs norm;
  norm.x_stride = norm.z_stride = norm.out_stride = heads.v_width();
  norm.x = as<uint16_t>(out);
  norm.out = as<uint16_t>(out);
  norm.z = as<uint16_t>(rows);
  norm.weight = as<float>(weight);
  norm.n_tokens = int64_t{n_slots} * n_tokens;
  norm.n_heads = heads.n_v_heads;
  norm.eps = 1e-6f;
  add_row(run, "GDN round, all four", round.what, n_tokens, 2.0 * static_cast<double>(states_bytes),
          run.update_bytes_per_s, n_copies, [&](int i) {
            delta.state = as<float>(states) + i % n_copies * states_bytes / 4;
            causal_conv_decode_cuda(conv, run.stream);
            gdn_gates_decode_cuda(gates, run.stream);
            gated_delta_decode_cuda(delta, spans, n_slots, heads.state_bytes() / 4, run.stream);
            gated_rmsnorm_cuda(norm, run.stream);
          });
}

void time_norm(OpsRun& run, const Heads& heads, int64_t n_tokens) {
  const int64_t n = n_tokens * heads.v_width();
  const int n_copies = n_tokens <= kGdnRoundColumns ? 2 : copies_of(run, n * 6);
  const DeviceMemory values = random_bf16(run, n_copies * n * 3, 5);
  const DeviceMemory weight = random_f32(run, kGatedNormWidth, kHalfToOne);
  GatedRmsNormCudaArgs args;
  args.x_stride = args.z_stride = args.out_stride = heads.v_width();
  args.weight = as<float>(weight);
  args.n_tokens = n_tokens;
  args.n_heads = heads.n_v_heads;
  args.eps = 1e-6f;
  add_row(run, "gated_rmsnorm", heads.name, static_cast<int>(n_tokens),
          6.0 * static_cast<double>(n), run.update_bytes_per_s, n_copies, [&](int i) {
            uint16_t* base = as<uint16_t>(values) + i % n_copies * n * 3;
            args.x = base;
            args.z = base + n;
            args.out = base + 2 * n;
            gated_rmsnorm_cuda(args, run.stream);
          });
}

void time_prefill(OpsRun& run, const Heads& heads, int n_tokens) {
  const int64_t channels = heads.channels();
  const int n_copies = copies_of(run, n_tokens * channels * 4);
  const DeviceMemory m = random_bf16(run, n_copies * n_tokens * channels, 1);
  const DeviceMemory rows = random_bf16(run, n_copies * n_tokens * channels, 2);
  const DeviceMemory weight = random_f32(run, channels * 4, kHalfToOne);
  const DeviceMemory window = random_bf16(run, kConvWindowRows * channels, 4);
  const int64_t n_gates = int64_t{n_tokens} * heads.n_v_heads;
  const DeviceMemory log_decay = random_f32(run, n_gates, 0xbd000000u);
  const DeviceMemory beta = random_f32(run, n_gates, kHalfToOne);
  const DeviceMemory out = random_bf16(run, n_tokens * heads.v_width(), 3);
  const DeviceMemory state = random_f32(run, heads.state_bytes() / 4, kHalfToOne);

  const GatedDeltaCudaPlan plan = plan_of(run, heads, n_tokens);
  const DeviceMemory workspace(run.device, plan.workspace_bytes);
  GatedDeltaCudaArgs delta{plan};
  delta.row_stride = channels;
  delta.log_decay = as<float>(log_decay);
  delta.beta = as<float>(beta);
  delta.state = as<float>(state);
  delta.out = as<uint16_t>(out);
  delta.out_stride = heads.v_width();
  const double delta_bytes = 2.0 * static_cast<double>(n_tokens * (channels + heads.v_width())) +
                             8.0 * static_cast<double>(n_gates) +
                             2.0 * static_cast<double>(heads.state_bytes());
  add_row(run, "gated_delta prefill", heads.name, n_tokens, delta_bytes, run.update_bytes_per_s,
          n_copies, [&](int i) {
            delta.q = as<uint16_t>(rows) + i % n_copies * n_tokens * channels;
            delta.k = delta.q + heads.k_width();
            delta.v = delta.k + heads.k_width();
            gated_delta_prefill_cuda(delta, 0, n_tokens, workspace.data(), run.stream);
          });

  CausalConvCudaArgs conv;
  conv.m_stride = conv.out_stride = channels;
  conv.weight = as<float>(weight);
  conv.window = as<uint16_t>(window);
  conv.n_tokens = n_tokens;
  conv.n_channels = static_cast<int>(channels);
  add_row(run, "causal_conv prefill", heads.name, n_tokens,
          static_cast<double>(channels * (int64_t{n_tokens} * 4 + 16)), run.update_bytes_per_s,
          n_copies, [&](int i) {
            conv.m = as<uint16_t>(m) + i % n_copies * n_tokens * channels;
            conv.out = as<uint16_t>(rows) + i % n_copies * n_tokens * channels;
            causal_conv_prefill_cuda(conv, run.stream);
          });

  GdnGatesCudaArgs gates;
  gates.a = gates.b = as<uint16_t>(m);
  gates.stride = channels;
  gates.a_log = as<float>(weight);
  gates.dt_bias = gates.a_log + heads.n_v_heads;
  gates.log_decay = as<float>(log_decay);
  gates.beta = as<float>(beta);
  gates.n_tokens = n_tokens;
  gates.n_heads = heads.n_v_heads;
  add_row(run, "gdn_gates prefill", heads.name, n_tokens, 12.0 * static_cast<double>(n_gates),
          run.update_bytes_per_s, 8, [&](int) { gdn_gates_prefill_cuda(gates, run.stream); });
}

}  // namespace

void run_gdn(OpsRun& run) {
  for (const Heads& heads : kHeads) {
    for (const int n_tokens : run.settings.tokens) {
      if (n_tokens > kMostTokens) continue;
      time_norm(run, heads, n_tokens);
      if (n_tokens > kGdnRoundColumns) {
        time_prefill(run, heads, n_tokens);
        continue;
      }
      for (const int n_slots : {1, 2, 8}) time_decode(run, heads, n_slots, n_tokens);
    }
  }
}

}  // namespace lockstep::bench_cuda

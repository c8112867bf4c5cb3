#include "bench/cuda/linear_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "bench/cuda/cublas.h"
#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "bench/cuda/linear_material.h"
#include "bench/cuda/linear_shapes.h"
#include "bench/material.h"
#include "bench/work.h"
#include "engine/ops/linear/cuda/linear_cuda.h"

namespace lockstep::bench_cuda {
namespace {

// Launches of one graph: all copies, but no more work than some tens of milliseconds.
int launches_for(int n_copies, int n_tokens) {
  return n_tokens > 64 ? 4 : std::max(n_copies, 16);
}

int most_tokens(const OpsRun& run) {
  return *std::max_element(run.settings.tokens.begin(), run.settings.tokens.end());
}

// Seconds of cuBLAS with bfloat16 weights, for each number of columns.
std::vector<double> time_library(OpsRun& run, Cublas& cublas, const LinearShape& shape,
                                 const std::vector<int>& tokens) {
  const int64_t stride = (2 * shape.n_rows * shape.n_cols + 255) / 256 * 256;
  const int n_copies = copies_for(run, stride);
  const DeviceMemory weights(run.device, n_copies * stride);
  launch_fill(weights.data(), weights.size() / 4, 0x81ff81ffu, 0x3c003c00u, 5, native(run));
  const DeviceMemory x = random_activations(run, most_tokens(run) * shape.n_cols);
  const DeviceMemory out(run.device, most_tokens(run) * shape.n_rows * 2);
  std::vector<double> seconds;
  for (const int n_tokens : tokens) {
    seconds.push_back(time_launches(
        native(run), launches_for(n_copies, n_tokens), run.settings.n_replays, [&](int i) {
          cublas.multiply(weights.data() + i % n_copies * stride, x.data(), out.data(),
                          shape.n_rows, shape.n_cols, n_tokens);
        }));
  }
  return seconds;
}

void time_shape(OpsRun& run, Codec codec, const LinearShape& shape, const std::vector<int>& tokens,
                const std::vector<double>& library_seconds) {
  const DeviceFacts& facts = run.device.facts();
  const LinearCudaPlan plan =
      plan_linear_cuda(codec, shape.n_rows, shape.n_cols, kBenchInt4Group, bench_family(run),
                       facts.block_shared_bytes, shape.name);
  const int64_t stride = (plan.weight_bytes + 255) / 256 * 256;
  const int n_copies = copies_for(run, stride);
  const DeviceMemory weights(run.device, n_copies * stride);
  for (int i = 0; i < n_copies; ++i) {
    fill_weight(run, plan, weights.data() + i * stride, static_cast<uint32_t>(i));
  }
  const DeviceMemory x = random_activations(run, most_tokens(run) * shape.n_cols);
  const DeviceMemory prepared(run.device, linear_prepared_bytes(plan, most_tokens(run)));
  const DeviceMemory out(run.device, most_tokens(run) * shape.n_rows * 4);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int n_tokens = tokens[t];
    const LinearPass pass = n_tokens <= kSkinnyTokens ? LinearPass::decode : LinearPass::prefill;
    const auto args = [&](int copy) {
      return LinearCudaArgs{plan,
                            weights.data() + (copy % n_copies) * stride,
                            reinterpret_cast<const uint16_t*>(x.data()),
                            shape.n_cols,
                            prepared.data(),
                            out.data(),
                            shape.n_rows,
                            n_tokens,
                            CudaOutput::bf16,
                            facts.n_multiprocessors,
                            pass};
    };
    linear_prepare_cuda(args(0), run.stream);
    const LaunchTimes seconds =
        time_launches(native(run), launches_for(n_copies, n_tokens), run.settings.n_replays,
                      [&](int i) { linear_prepared_cuda(args(i), run.stream); });
    const auto bytes =
        static_cast<double>(matrix_bytes(codec, shape.n_rows, shape.n_cols, kBenchInt4Group) +
                            2 * n_tokens * (shape.n_rows + shape.n_cols));
    const double flops = 2.0 * n_tokens * static_cast<double>(shape.n_rows * shape.n_cols);
    run.rows.push_back({fmt::format("linear {}", codec_name(codec)), shape.name, n_tokens, bytes,
                        seconds, flops, library_seconds.empty() ? 0.0 : library_seconds[t]});
  }
}

void time_tokens(OpsRun& run, Cublas* cublas, const std::vector<int>& tokens) {
  if (tokens.empty()) return;
  for (const LinearShape& shape : kShapes27B) {
    std::vector<double> library_seconds;
    if (cublas != nullptr) library_seconds = time_library(run, *cublas, shape, tokens);
    for (const std::string& name : run.settings.codecs) {
      time_shape(run, codec_of(name), shape, tokens, library_seconds);
    }
  }
}

}  // namespace

double measure_read(OpsRun& run) {
  constexpr int64_t kBytes = int64_t{2} << 30;
  const DeviceMemory data(run.device, kBytes);
  const DeviceMemory sink(run.device, 4);
  launch_fill(data.data(), kBytes / 4, 0xffffffffu, 0, 1, native(run));
  const double seconds = time_launches(native(run), 2, 9, [&](int) {
    launch_read(data.data(), kBytes, reinterpret_cast<uint32_t*>(sink.data()),
                run.device.facts().n_multiprocessors, native(run));
  });
  return static_cast<double>(kBytes) / seconds;
}

double measure_update(OpsRun& run) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const DeviceMemory data(run.device, kBytes);
  launch_fill(data.data(), kBytes / 4, 0xffffffffu, 0, 1, native(run));
  const double seconds = time_launches(native(run), 2, 9, [&](int) {
    launch_update(data.data(), kBytes, run.device.facts().n_multiprocessors, native(run));
  });
  return 2.0 * static_cast<double>(kBytes) / seconds;
}

void run_linear(OpsRun& run) {
  const std::unique_ptr<Cublas> cublas = run.settings.library ? Cublas::open(native(run)) : nullptr;
  std::vector<int> few;
  std::vector<int> many;
  std::partition_copy(run.settings.tokens.begin(), run.settings.tokens.end(),
                      std::back_inserter(few), std::back_inserter(many),
                      [](int n_tokens) { return n_tokens <= kSkinnyTokens; });
  // Prompts heat the card and slow its clock down: they come last.
  time_tokens(run, cublas.get(), few);
  time_tokens(run, cublas.get(), many);
}

}  // namespace lockstep::bench_cuda

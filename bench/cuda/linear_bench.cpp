#include "bench/cuda/linear_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/cuda/cublas.h"
#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "bench/cuda/linear_shapes.h"
#include "bench/material.h"
#include "bench/work.h"
#include "engine/base/error.h"
#include "engine/ops/linear/cuda/linear_cuda.h"

namespace lockstep::bench_cuda {
namespace {

cudaStream_t native(const OpsRun& run) {
  return static_cast<cudaStream_t>(run.stream.native());
}

Codec codec_of(const std::string& name) {
  for (int codec = 0; codec <= static_cast<int>(Codec::int4); ++codec) {
    if (codec_name(static_cast<Codec>(codec)) == name) return static_cast<Codec>(codec);
  }
  fail("--codecs {}: no such codec; 'lockstep bench ops --help' lists them", name);
}

void fill_floats(OpsRun& run, std::byte* data, int64_t bytes) {
  // Magnitudes from 0.5 to 1.
  launch_fill(data, bytes / 4, 0x007fffffu, 0x3f000000u, 3, native(run));
}

// Random codes with scales that keep sums finite: what a packed matrix of this shape looks like.
void fill_weight(OpsRun& run, const LinearCudaPlan& plan, std::byte* weight, uint32_t seed) {
  const bool halves = plan.route->codec == Codec::bf16 || plan.route->codec == Codec::f16;
  launch_fill(weight, plan.scales_offset / 4, halves ? 0xbfffbfffu : 0xffffffffu, 0, seed,
              native(run));
  const int64_t scale_bytes = plan.row_scale_offset - plan.scales_offset;
  if (plan.route->codec == Codec::nvfp4) {
    launch_fill(weight + plan.scales_offset, scale_bytes / 4, 0x0f0f0f0fu, 0x30303030u, seed,
                native(run));
  } else if (plan.route->codec == Codec::int4) {
    // Words that are small zero points and tiny scales alike.
    launch_fill(weight + plan.scales_offset, scale_bytes / 4, 0x0000000fu, 0, seed, native(run));
  } else {
    fill_floats(run, weight + plan.scales_offset, scale_bytes);
  }
  fill_floats(run, weight + plan.row_scale_offset, plan.weight_bytes - plan.row_scale_offset);
}

// Enough copies of the weights that the oldest has left the second-level cache when its turn comes.
int copies_for(const OpsRun& run, int64_t stride) {
  return static_cast<int>(std::clamp<int64_t>(6 * run.device.facts().l2_bytes / stride + 1, 2, 64));
}

// Launches of one graph: all copies, but no more work than some tens of milliseconds.
int launches_for(int n_copies, int n_tokens) {
  return n_tokens > 64 ? 4 : std::max(n_copies, 16);
}

int most_tokens(const OpsRun& run) {
  return *std::max_element(run.settings.tokens.begin(), run.settings.tokens.end());
}

DeviceMemory random_activations(OpsRun& run, const LinearShape& shape) {
  DeviceMemory x(run.device, most_tokens(run) * shape.n_cols * 2);
  // Signs, magnitudes from 2^-3 to 2.
  launch_fill(x.data(), x.size() / 4, 0x81ff81ffu, 0x3e003e00u, 99, native(run));
  return x;
}

// Seconds of cuBLAS with bfloat16 weights, for each number of columns.
std::vector<double> time_library(OpsRun& run, Cublas& cublas, const LinearShape& shape) {
  const int64_t stride = (2 * shape.n_rows * shape.n_cols + 255) / 256 * 256;
  const int n_copies = copies_for(run, stride);
  const DeviceMemory weights(run.device, n_copies * stride);
  launch_fill(weights.data(), weights.size() / 4, 0x81ff81ffu, 0x3c003c00u, 5, native(run));
  const DeviceMemory x = random_activations(run, shape);
  const DeviceMemory out(run.device, most_tokens(run) * shape.n_rows * 2);
  std::vector<double> seconds;
  for (const int n_tokens : run.settings.tokens) {
    seconds.push_back(time_launches(
        native(run), launches_for(n_copies, n_tokens), run.settings.n_replays, [&](int i) {
          cublas.multiply(weights.data() + i % n_copies * stride, x.data(), out.data(),
                          shape.n_rows, shape.n_cols, n_tokens);
        }));
  }
  return seconds;
}

void time_shape(OpsRun& run, Codec codec, KernelFamily family, const LinearShape& shape,
                const std::vector<double>& library_seconds) {
  const DeviceFacts& facts = run.device.facts();
  const LinearCudaPlan plan = plan_linear_cuda(codec, shape.n_rows, shape.n_cols, kBenchInt4Group,
                                               family, facts.block_shared_bytes, shape.name);
  const int64_t stride = (plan.weight_bytes + 255) / 256 * 256;
  const int n_copies = copies_for(run, stride);
  const DeviceMemory weights(run.device, n_copies * stride);
  for (int i = 0; i < n_copies; ++i) {
    fill_weight(run, plan, weights.data() + i * stride, static_cast<uint32_t>(i));
  }
  const DeviceMemory x = random_activations(run, shape);
  const DeviceMemory prepared(run.device, linear_prepared_bytes(plan, most_tokens(run)));
  const DeviceMemory out(run.device, most_tokens(run) * shape.n_rows * 4);
  for (size_t t = 0; t < run.settings.tokens.size(); ++t) {
    const int n_tokens = run.settings.tokens[t];
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
  const KernelFamily family = run.settings.family == "auto"   ? family_of_card(run.device.facts())
                              : run.settings.family == "sm70" ? KernelFamily::sm70
                                                              : KernelFamily::sm80;
  const std::unique_ptr<Cublas> cublas = run.settings.library ? Cublas::open(native(run)) : nullptr;
  for (const LinearShape& shape : kShapes27B) {
    std::vector<double> library_seconds;
    if (cublas != nullptr) library_seconds = time_library(run, *cublas, shape);
    for (const std::string& name : run.settings.codecs) {
      time_shape(run, codec_of(name), family, shape, library_seconds);
    }
  }
}

}  // namespace lockstep::bench_cuda

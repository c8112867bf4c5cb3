#include "bench/cuda/linear_bench.h"

#include <cuda_runtime_api.h>

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

void time_shape(OpsRun& run, Codec codec, KernelFamily family, const LinearShape& shape) {
  const DeviceFacts& facts = run.device.facts();
  const LinearCudaPlan plan = plan_linear_cuda(codec, shape.n_rows, shape.n_cols, kBenchInt4Group,
                                               family, facts.block_shared_bytes, shape.name);
  // Enough copies that the oldest has left the second-level cache when its turn comes.
  const int64_t stride = (plan.weight_bytes + 255) / 256 * 256;
  const int n_copies =
      static_cast<int>(std::clamp<int64_t>(6 * facts.l2_bytes / stride + 1, 2, 64));
  const DeviceMemory weights(run.device, n_copies * stride);
  for (int i = 0; i < n_copies; ++i) {
    fill_weight(run, plan, weights.data() + i * stride, static_cast<uint32_t>(i));
  }
  const int most_tokens = *std::max_element(run.settings.tokens.begin(), run.settings.tokens.end());
  const DeviceMemory x(run.device, most_tokens * shape.n_cols * 2);
  launch_fill(x.data(), x.size() / 4, 0xbfffbfffu, 0, 99, native(run));
  const DeviceMemory prepared(run.device, linear_prepared_bytes(plan, most_tokens));
  const DeviceMemory out(run.device, most_tokens * shape.n_rows * 4);
  for (const int n_tokens : run.settings.tokens) {
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
                            facts.n_multiprocessors};
    };
    linear_prepare_cuda(args(0), run.stream);
    const int n_launches = std::max(n_copies, 16);
    const double seconds = time_launches(native(run), n_launches, run.settings.n_replays,
                                         [&](int i) { linear_prepared_cuda(args(i), run.stream); });
    const auto bytes =
        static_cast<double>(matrix_bytes(codec, shape.n_rows, shape.n_cols, kBenchInt4Group));
    run.rows.push_back(
        {fmt::format("linear {}", codec_name(codec)), shape.name, n_tokens, bytes, seconds});
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

void run_linear(OpsRun& run) {
  const KernelFamily family = run.settings.family == "auto"   ? family_of_card(run.device.facts())
                              : run.settings.family == "sm70" ? KernelFamily::sm70
                                                              : KernelFamily::sm80;
  for (const std::string& name : run.settings.codecs) {
    for (const LinearShape& shape : kShapes27B) time_shape(run, codec_of(name), family, shape);
  }
}

}  // namespace lockstep::bench_cuda

#include "bench/cuda/linear_material.h"

#include <algorithm>

#include "bench/cuda/device_kernels.h"
#include "engine/base/error.h"

namespace lockstep::bench_cuda {
namespace {

void fill_floats(OpsRun& run, std::byte* data, int64_t bytes) {
  // Magnitudes from 0.5 to 1.
  launch_fill(data, bytes / 4, 0x007fffffu, 0x3f000000u, 3, native(run));
}

}  // namespace

cudaStream_t native(const OpsRun& run) {
  return static_cast<cudaStream_t>(run.stream.native());
}

Codec codec_of(const std::string& name) {
  for (int codec = 0; codec <= static_cast<int>(Codec::int4); ++codec) {
    if (codec_name(static_cast<Codec>(codec)) == name) return static_cast<Codec>(codec);
  }
  fail("--codecs {}: no such codec; 'lockstep bench ops --help' lists them", name);
}

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

int copies_for(const OpsRun& run, int64_t stride) {
  return static_cast<int>(std::clamp<int64_t>(6 * run.device.facts().l2_bytes / stride + 1, 2, 64));
}

DeviceMemory random_activations(OpsRun& run, int64_t n_values) {
  DeviceMemory x(run.device, n_values * 2);
  // Signs, magnitudes from 2^-3 to 2.
  launch_fill(x.data(), x.size() / 4, 0x81ff81ffu, 0x3e003e00u, 99, native(run));
  return x;
}

KernelFamily bench_family(const OpsRun& run) {
  if (run.settings.family == "auto") return family_of_card(run.device.facts());
  return run.settings.family == "sm70" ? KernelFamily::sm70 : KernelFamily::sm80;
}

}  // namespace lockstep::bench_cuda

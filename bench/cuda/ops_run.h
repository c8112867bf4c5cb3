// One run of `lockstep bench ops`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/cuda/device_timer.h"
#include "engine/device/device.h"
#include "engine/ops/attention/cuda/attention_segments.h"

namespace lockstep::bench_cuda {

struct OpsSettings {
  std::string device = "cuda";
  std::vector<std::string> ops = {"linear", "attention", "gdn", "rows", "sample", "vision"};
  std::vector<std::string> codecs = {"nvfp4", "fp8", "int4", "bf16"};
  std::vector<int> tokens = {1, 2, 4, 8, 16, 64, 512, 2048};
  bool library = true;  // beside cuBLAS
  std::string family = "auto";
  std::vector<std::string> kv_types = {"int8", "bf16"};
  AttentionSegments segments;
  std::string ablate;  // empty, math or loads
  int n_replays = 7;
  bool json = false;

  bool wants(const std::string& op) const {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
  }
};

struct OpsRow {
  std::string op;
  std::string what;
  int n_tokens;
  double bytes;  // that must be moved at least
  LaunchTimes seconds;
  double flops = 0.0;              // of the same work
  double yardstick_seconds = 0.0;  // of the best library for it in this run; 0: none
  double roof_bytes_per_s = 0.0;   // what they are compared with; 0: reading
};

struct OpsRun {
  const OpsSettings& settings;
  Device& device;
  Stream& stream;
  double read_bytes_per_s;
  double update_bytes_per_s;
  std::vector<OpsRow> rows;
};

// Bytes a second of a kernel that only reads, over a buffer far larger than the caches.
double measure_read(OpsRun& run);

// The same for a kernel that reads values and writes others in their place, both ways counted.
double measure_update(OpsRun& run);

}  // namespace lockstep::bench_cuda

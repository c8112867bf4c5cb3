#include <cuda_runtime_api.h>

#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "bench/cuda/rows_bench.h"
#include "engine/base/error.h"
#include "engine/base/philox.h"
#include "engine/ops/argmax/cuda/argmax_cuda.h"
#include "engine/ops/sample/cuda/sample_cuda.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int64_t kVocabulary = 248320;
constexpr int kMostColumns = 8;

struct Kind {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  int n_top;
};

constexpr Kind kKinds[] = {
    {"greedy", 0.0f, 0, 1.0f, 0},
    {"top-k 20, top-p 0.95", 1.0f, 20, 0.95f, 0},
    {"top-k 20, 20 log-probabilities", 1.0f, 20, 0.95f, 20},
    {"top-p 0.95", 1.0f, 0, 0.95f, 0},
    {"no limit", 1.0f, 0, 1.0f, 0},
};

// A few peaks over a broad field, as logits look.
std::vector<float> random_logits(int n_columns) {
  PhiloxStream random(1);
  std::vector<float> logits(static_cast<size_t>(n_columns * kVocabulary));
  for (float& logit : logits) {
    const float x = 2.0f * random.next_uniform() - 1.0f;
    logit = 12.0f * x * x * x;
    if (random.next_below(20000) == 0) logit = 10.0f + 6.0f * random.next_uniform();
  }
  return logits;
}

void time_kind(OpsRun& run, const Kind& kind, int n_columns, const DeviceMemory& logits) {
  SampleBatch batch;
  for (int c = 0; c < n_columns; ++c) {
    SamplingParams params;
    params.temperature = kind.temperature;
    params.top_k = kind.top_k;
    params.top_p = kind.top_p;
    params.seed = static_cast<uint64_t>(c);
    batch.add(params, {}, kVocabulary, 100 + c);
  }
  const DeviceMemory columns(run.device, n_columns * static_cast<int64_t>(sizeof(SampleColumn)));
  run.stream.copy_in(columns.data(), batch.columns().data(), columns.size());
  run.stream.synchronize();
  const DeviceMemory workspace(run.device, sample_workspace_bytes(kVocabulary, n_columns, 0));
  const DeviceMemory out(run.device, n_columns * static_cast<int64_t>(sizeof(SampleResult)));
  SampleCudaArgs args{.batch = batch};
  args.logits = reinterpret_cast<float*>(logits.data());
  args.stride = kVocabulary;
  args.n_vocab = args.n_live = kVocabulary;
  args.columns = reinterpret_cast<const SampleColumn*>(columns.data());
  args.n_top = kind.n_top;
  args.workspace = workspace.data();
  args.out = reinterpret_cast<SampleResult*>(out.data());
  const LaunchTimes seconds =
      time_launches(static_cast<cudaStream_t>(run.stream.native()), 16, run.settings.n_replays,
                    [&](int) { sample_cuda(args, run.stream); });
  run.rows.push_back(
      {"sample", kind.name, n_columns, static_cast<double>(n_columns * kVocabulary) * 4, seconds});
}

void time_argmax(OpsRun& run, int n_columns, const DeviceMemory& logits) {
  const DeviceMemory workspace(run.device, argmax_workspace_bytes(kVocabulary, n_columns));
  const DeviceMemory best(run.device, n_columns * 4);
  const LaunchTimes seconds = time_launches(
      static_cast<cudaStream_t>(run.stream.native()), 16, run.settings.n_replays, [&](int) {
        argmax_cuda({reinterpret_cast<const float*>(logits.data()), kVocabulary, kVocabulary,
                     n_columns, workspace.data(), reinterpret_cast<int32_t*>(best.data()), nullptr},
                    run.stream);
      });
  run.rows.push_back(
      {"argmax", "", n_columns, static_cast<double>(n_columns * kVocabulary) * 4, seconds});
}

}  // namespace

void run_sample(OpsRun& run) {
  const std::vector<float> values = random_logits(kMostColumns);
  const DeviceMemory logits(run.device, static_cast<int64_t>(values.size()) * 4);
  run.stream.copy_in(logits.data(), values.data(), logits.size());
  run.stream.synchronize();
  for (const int n_columns : run.settings.tokens) {
    if (n_columns > kMostColumns) continue;
    time_argmax(run, n_columns, logits);
    for (const Kind& kind : kKinds) time_kind(run, kind, n_columns, logits);
  }
}

}  // namespace lockstep::bench_cuda

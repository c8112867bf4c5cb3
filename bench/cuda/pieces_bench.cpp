#include <fmt/format.h>

#include "bench/cuda/places.h"
#include "bench/cuda/rows_bench.h"
#include "engine/base/philox.h"
#include "engine/ops/embedding/cuda/embedding_cuda.h"
#include "engine/ops/hadamard/cuda/hadamard_cuda.h"
#include "engine/ops/kv_write/cuda/kv_write_cuda.h"
#include "engine/ops/residual_add/cuda/residual_add_cuda.h"
#include "engine/ops/rope/cuda/rope_cuda.h"
#include "engine/ops/verify/cuda/verify_cuda.h"
#include "engine/ops/weighted_embedding/cuda/weighted_embedding_cuda.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int64_t kHidden = 5120;
constexpr int64_t kTableRows = 65536;  // 671 MB: rows of one launch are in no cache
constexpr int kHeads = 24;
constexpr int kKvHeads = 4;
constexpr int kDim = 256;
constexpr int kPairs = 32;
constexpr int64_t kPositionRows = 2304;
constexpr int64_t kPositionWidth = 1152;

template <typename T>
DeviceMemory on_card(OpsRun& run, const std::vector<T>& values) {
  DeviceMemory memory(run.device, static_cast<int64_t>(values.size() * sizeof(T)));
  run.stream.copy_in(memory.data(), values.data(), memory.size());
  run.stream.synchronize();
  return memory;
}

template <typename T>
const T* as(const DeviceMemory& memory) {
  return reinterpret_cast<const T*>(memory.data());
}

// bfloat16 and float32 of ordinary size.
DeviceMemory filled(OpsRun& run, int64_t bytes) {
  DeviceMemory memory(run.device, bytes);
  launch_fill(memory.data(), bytes / 4, 0x83ff83ffu, 0x3c003c00u, 13, native_stream(run));
  return memory;
}

void time_embedding(OpsRun& run, const DeviceMemory& table, int n_tokens) {
  constexpr int kTurns = 16;
  PhiloxStream random(1);
  std::vector<int32_t> ids(static_cast<size_t>(kTurns) * static_cast<size_t>(n_tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.next_below(kTableRows));
  const DeviceMemory ids_card = on_card(run, ids);
  const Places places(run, n_tokens * kHidden * 2);
  add_row(run, "embedding", "bf16, 5120", n_tokens, static_cast<double>(n_tokens * kHidden) * 4,
          places.n(), [&](int i) {
            embedding_cuda(
                {Codec::bf16, table.data(), 2 * kHidden, kTableRows, kHidden,
                 as<int32_t>(ids_card) + i % kTurns * n_tokens, n_tokens, places.at<uint16_t>(i)},
                run.stream);
          });
}

void time_add(OpsRun& run, int n_tokens) {
  const int64_t n = n_tokens * kHidden;
  const Places places(run, n * 4);
  add_row(run, "residual_add", "5120", n_tokens, static_cast<double>(n) * 6, places.n(),
          [&](int i) {
            auto* x = places.at<uint16_t>(i);
            residual_add_cuda(x, x + n, n, run.stream);
          });
}

void time_heads_in_place(OpsRun& run, int n_tokens) {
  const int64_t n = int64_t{n_tokens} * kHeads * kDim;
  const Places places(run, n * 2);
  const DeviceMemory angles = filled(run, int64_t{n_tokens} * kPairs * 8);
  const double turned = static_cast<double>(n) * 2 * 2 * (2.0 * kPairs / kDim);
  add_row(run, "rope", fmt::format("{} heads", kHeads), n_tokens, turned, places.n(), [&](int i) {
    rope_cuda({places.at<uint16_t>(i), int64_t{kHeads} * kDim, as<float>(angles), n_tokens, kHeads,
               kDim, kPairs},
              run.stream);
  });
  add_row(run, "hadamard", fmt::format("{} heads", kHeads), n_tokens, static_cast<double>(n) * 4,
          places.n(), [&](int i) {
            hadamard_cuda(places.at<uint16_t>(i), kDim, int64_t{n_tokens} * kHeads, kDim,
                          run.stream);
          });
}

void time_kv_write(OpsRun& run, int n_tokens) {
  constexpr int64_t kWidth = int64_t{kKvHeads} * kDim;
  const int64_t n = n_tokens * kWidth;
  const Places places(run, n * 4);
  std::vector<uint32_t> table;
  for (int i = 0; i <= n_tokens / kPageTokens; ++i) table.push_back(static_cast<uint32_t>(i));
  const DeviceMemory pages = on_card(run, table);
  const DeviceMemory first = on_card(run, std::vector<int32_t>{0});
  const DeviceMemory pool(
      run.device, static_cast<int64_t>(table.size()) * kv_page_bytes(KvType::int8, kKvHeads, kDim));
  const double bytes = static_cast<double>(n) * 2 * (2 + 1 + 2.0 / 64);
  add_row(run, "kv_write", "int8, 4 KV heads", n_tokens, bytes, places.n(), [&](int i) {
    const auto* k = places.at<uint16_t>(i);
    kv_write_cuda({{KvType::int8, kKvHeads, kDim, pool.data(), as<uint32_t>(pages)},
                   k,
                   kWidth,
                   k + n,
                   kWidth,
                   as<int32_t>(first),
                   n_tokens},
                  run.stream);
  });
}

// What a round of one sequence with n_columns - 1 drafts decides and hands on.
void time_verify(OpsRun& run, int n_columns) {
  const std::vector<int32_t> tokens(static_cast<size_t>(n_columns), 7);
  const DeviceMemory fed = on_card(run, tokens);
  const DeviceMemory forced = on_card(run, std::vector<int32_t>(tokens.size(), -1));
  std::vector<SampleResult> chosen(tokens.size());
  for (SampleResult& result : chosen) result.token = 7;
  const DeviceMemory results = on_card(run, chosen);
  const DeviceMemory positions = on_card(run, std::vector<RopePosition>(tokens.size()));
  const DeviceMemory out = on_card(run, std::vector<int32_t>(tokens.size() + 8));
  auto* numbers = reinterpret_cast<int32_t*>(out.data());
  VerifyCudaArgs args;
  args.spans[0] = {0, n_columns};
  args.n_spans = 1;
  args.fed = as<int32_t>(fed);
  args.positions = as<RopePosition>(positions);
  args.first_positions = as<int32_t>(forced);
  args.results = as<SampleResult>(results);
  args.forced = as<int32_t>(forced);
  args.ids = numbers + 8;
  args.n_taken = numbers;
  args.last = {nullptr, reinterpret_cast<RopePosition*>(numbers + 2), numbers + 1};
  const double bytes = static_cast<double>(n_columns) * (3 * 4 + sizeof(RopePosition));
  add_row(run, "verify", "one span", n_columns, bytes, 16,
          [&](int) { verify_cuda(args, run.stream); });
}

}  // namespace

void run_pieces(OpsRun& run, int n_tokens) {
  time_embedding(run, filled(run, kTableRows * kHidden * 2), n_tokens);
  time_add(run, n_tokens);
  time_heads_in_place(run, n_tokens);
  time_kv_write(run, n_tokens);
  if (n_tokens <= 8) time_verify(run, n_tokens);
}

void run_position_table(OpsRun& run, int n_patches) {
  PhiloxStream random(2);
  std::vector<WeightedRows> sources(static_cast<size_t>(n_patches));
  for (WeightedRows& source : sources) {
    for (int32_t& row : source.rows) row = static_cast<int32_t>(random.next_below(kPositionRows));
    source.weights.fill(0.25f);
  }
  const DeviceMemory sources_card = on_card(run, sources);
  const DeviceMemory table = filled(run, kPositionRows * kPositionWidth * 4);
  const Places places(run, n_patches * kPositionWidth * 2);
  // Rows that many patches share need to be read once.
  const int64_t read = std::min(kPositionRows, int64_t{4} * n_patches) * kPositionWidth * 4;
  const double bytes = static_cast<double>(read + n_patches * kPositionWidth * 2);
  add_row(run, "weighted_embedding", "1152", n_patches, bytes, places.n(), [&](int i) {
    weighted_embedding_cuda({as<float>(table), kPositionWidth, as<WeightedRows>(sources_card),
                             places.at<uint16_t>(i), n_patches},
                            run.stream);
  });
}

}  // namespace lockstep::bench_cuda

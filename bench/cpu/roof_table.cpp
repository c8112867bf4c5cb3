#include "bench/cpu/roof_table.h"

#include <algorithm>

#include "bench/cpu/roofs.h"

namespace lockstep {
namespace {

// Classes 10 % apart: the largest bound not above n_bytes.
int64_t size_class(int64_t n_bytes) {
  int64_t bound = 4096;
  while (bound + bound / 10 <= n_bytes) bound += bound / 10;
  return bound;
}

}  // namespace

double RoofTable::fma(ThreadPool& pool) {
  const auto [at, fresh] = fma_.try_emplace(pool.n_threads(), 0.0);
  if (fresh) at->second = fma_flops_per_s(cpu_target_, pool);
  return at->second;
}

double RoofTable::read(int64_t n_bytes, ThreadPool& pool) {
  const int64_t bytes = size_class(n_bytes);
  const auto [at, fresh] = read_.try_emplace({pool.n_threads(), bytes}, 0.0);
  if (fresh) at->second = read_bytes_per_s(bytes, pool);
  return at->second;
}

}  // namespace lockstep

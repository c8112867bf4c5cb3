#include "bench/cpu/roofs.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "bench/timer.h"
#include "engine/base/error.h"
#include "engine/ops/common/aligned_floats.h"

namespace lockstep {
namespace {

constexpr int64_t kFmaSteps = int64_t{1} << 18;
constexpr int64_t kChains = 10;  // independent sums: more than latency times ports
// Samples shorter than a slice of the scheduler: beside busy neighbours some are left in peace.
constexpr TimerOptions kRoofTimer{.n_samples = 25, .min_sample_s = 0.001};

// Every chain converges to 1, so no step meets a denormal or an infinity; they start apart so that
// the compiler cannot take one for another, and the empty assembly keeps it from dropping the loop.
__attribute__((target("avx2,fma"))) void fma_steps_avx2(float* out) {
  const __m256 a = _mm256_set1_ps(0.5f);
  const __m256 b = _mm256_set1_ps(0.5f);
  __m256 c0 = _mm256_set1_ps(1.0f);
  __m256 c1 = _mm256_set1_ps(2.0f);
  __m256 c2 = _mm256_set1_ps(3.0f);
  __m256 c3 = _mm256_set1_ps(4.0f);
  __m256 c4 = _mm256_set1_ps(5.0f);
  __m256 c5 = _mm256_set1_ps(6.0f);
  __m256 c6 = _mm256_set1_ps(7.0f);
  __m256 c7 = _mm256_set1_ps(8.0f);
  __m256 c8 = _mm256_set1_ps(9.0f);
  __m256 c9 = _mm256_set1_ps(10.0f);
  for (int64_t i = 0; i < kFmaSteps; ++i) {
    c0 = _mm256_fmadd_ps(c0, a, b);
    c1 = _mm256_fmadd_ps(c1, a, b);
    c2 = _mm256_fmadd_ps(c2, a, b);
    c3 = _mm256_fmadd_ps(c3, a, b);
    c4 = _mm256_fmadd_ps(c4, a, b);
    c5 = _mm256_fmadd_ps(c5, a, b);
    c6 = _mm256_fmadd_ps(c6, a, b);
    c7 = _mm256_fmadd_ps(c7, a, b);
    c8 = _mm256_fmadd_ps(c8, a, b);
    c9 = _mm256_fmadd_ps(c9, a, b);
    __asm__ volatile("" : "+x"(c0));
  }
  const __m256 sum = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)) + (c8 + c9);
  _mm256_storeu_ps(out, sum);
}

__attribute__((target("avx512f"))) void fma_steps_avx512(float* out) {
  const __m512 a = _mm512_set1_ps(0.5f);
  const __m512 b = _mm512_set1_ps(0.5f);
  __m512 c0 = _mm512_set1_ps(1.0f);
  __m512 c1 = _mm512_set1_ps(2.0f);
  __m512 c2 = _mm512_set1_ps(3.0f);
  __m512 c3 = _mm512_set1_ps(4.0f);
  __m512 c4 = _mm512_set1_ps(5.0f);
  __m512 c5 = _mm512_set1_ps(6.0f);
  __m512 c6 = _mm512_set1_ps(7.0f);
  __m512 c7 = _mm512_set1_ps(8.0f);
  __m512 c8 = _mm512_set1_ps(9.0f);
  __m512 c9 = _mm512_set1_ps(10.0f);
  for (int64_t i = 0; i < kFmaSteps; ++i) {
    c0 = _mm512_fmadd_ps(c0, a, b);
    c1 = _mm512_fmadd_ps(c1, a, b);
    c2 = _mm512_fmadd_ps(c2, a, b);
    c3 = _mm512_fmadd_ps(c3, a, b);
    c4 = _mm512_fmadd_ps(c4, a, b);
    c5 = _mm512_fmadd_ps(c5, a, b);
    c6 = _mm512_fmadd_ps(c6, a, b);
    c7 = _mm512_fmadd_ps(c7, a, b);
    c8 = _mm512_fmadd_ps(c8, a, b);
    c9 = _mm512_fmadd_ps(c9, a, b);
    __asm__ volatile("" : "+x"(c0));
  }
  const __m512 sum = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)) + (c8 + c9);
  _mm512_storeu_ps(out, sum);
}

// Reads whole blocks of 512 bytes, eight loads in flight.
__attribute__((target("avx2"))) void read_part(const float* begin, const float* end) {
  __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
  for (const float* p = begin; p < end; p += 128) {
    for (int64_t i = 0; i < 128; i += 32) {
      s0 = _mm256_xor_ps(s0, _mm256_load_ps(p + i));
      s1 = _mm256_xor_ps(s1, _mm256_load_ps(p + i + 8));
      s2 = _mm256_xor_ps(s2, _mm256_load_ps(p + i + 16));
      s3 = _mm256_xor_ps(s3, _mm256_load_ps(p + i + 24));
    }
  }
  __m256 sum = _mm256_xor_ps(_mm256_xor_ps(s0, s1), _mm256_xor_ps(s2, s3));
  __asm__ volatile("" : "+x"(sum));
}

}  // namespace

double fma_flops_per_s(const std::string& cpu_target, ThreadPool& pool) {
  const bool wide = cpu_target == "avx512";
  if (!wide && cpu_target != "avx2") fail("no FMA loop for CPU target {}", cpu_target);
  const auto steps = wide ? fma_steps_avx512 : fma_steps_avx2;
  const std::vector<double> seconds = time_calls(kRoofTimer, [&] {
    pool.parallel_for(pool.n_threads(), 1, [&](int64_t begin, int64_t end) {
      std::array<float, 16> out;
      for (int64_t i = begin; i < end; ++i) {
        steps(out.data());
        __asm__ volatile("" : : "r"(out.data()) : "memory");
      }
    });
  });
  const int64_t flops = 2 * kFmaSteps * kChains * (wide ? 16 : 8) * pool.n_threads();
  return static_cast<double>(flops) / *std::min_element(seconds.begin(), seconds.end());
}

double read_bytes_per_s(int64_t n_bytes, ThreadPool& pool) {
  constexpr int64_t kBlockFloats = 128;
  constexpr int64_t kBytesPerCall = int64_t{4} << 20;  // hides what starting the threads costs
  const int64_t n_blocks = std::max<int64_t>(n_bytes / (kBlockFloats * 4), pool.n_threads());
  const int64_t n_passes = std::max<int64_t>(kBytesPerCall / n_bytes, 1);
  AlignedFloats buffer;
  float* data = buffer.reserve(n_blocks * kBlockFloats);
  std::fill_n(data, n_blocks * kBlockFloats, 1.0f);
  const std::vector<double> seconds = time_calls(kRoofTimer, [&] {
    pool.parallel_for(pool.n_threads(), 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * n_blocks / pool.n_threads() * kBlockFloats;
      const int64_t last = end * n_blocks / pool.n_threads() * kBlockFloats;
      for (int64_t pass = 0; pass < n_passes; ++pass) read_part(data + first, data + last);
    });
  });
  const int64_t n_read = n_blocks * kBlockFloats * 4 * n_passes;
  return static_cast<double>(n_read) / *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace lockstep

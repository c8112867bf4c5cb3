#include "engine/ops/vision_rope/vision_rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/math.h"

namespace lockstep {
namespace {

// Cosine and sine of every frequency at every coordinate that occurs.
class AngleTable {
 public:
  AngleTable(const VisionRopeArgs& args) : n_frequencies_(args.head_dim / 4) {
    int32_t largest = 0;
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      LOCKSTEP_CHECK(args.positions[t][0] >= 0 && args.positions[t][1] >= 0);
      largest = std::max({largest, args.positions[t][0], args.positions[t][1]});
    }
    const auto n = static_cast<size_t>(largest + 1) * static_cast<size_t>(n_frequencies_);
    cos_.reserve(n);
    sin_.reserve(n);
    for (int32_t position = 0; position <= largest; ++position) {
      for (int f = 0; f < n_frequencies_; ++f) {
        double sine = 0.0;
        double cosine = 0.0;
        sincos_f64(args.inv_freq[f] * static_cast<float>(position), &sine, &cosine);
        cos_.push_back(static_cast<float>(cosine));
        sin_.push_back(static_cast<float>(sine));
      }
    }
  }

  const float* cosines(int32_t position) const { return cos_.data() + position * n_frequencies_; }
  const float* sines(int32_t position) const { return sin_.data() + position * n_frequencies_; }

 private:
  int64_t n_frequencies_;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

// Pairs (x[i], x[i + half]) for i < n. The product with the sine is rounded; the product with the
// cosine is fused with the sum.
void rotate(float* x, int64_t half, const float* cosine, const float* sine, int64_t n, bool round) {
  for (int64_t i = 0; i < n; ++i) {
    const float first = x[i];
    const float second = x[i + half];
    const float low = std::fma(first, cosine[i], -(second * sine[i]));
    const float high = std::fma(second, cosine[i], first * sine[i]);
    x[i] = round ? round_to_bf16(low) : low;
    x[i + half] = round ? round_to_bf16(high) : high;
  }
}

}  // namespace

void vision_rope(const VisionRopeArgs& args, ThreadPool& pool) {
  LOCKSTEP_CHECK(args.head_dim > 0 && args.head_dim % 4 == 0);
  if (args.n_tokens == 0) return;
  const AngleTable table(args);
  const int64_t half = args.head_dim / 2;
  const bool round = args.rounding == Rounding::bf16;
  pool.parallel_for(args.n_tokens, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int h = 0; h < args.n_heads; ++h) {
        float* head = args.x + t * args.token_stride + int64_t{h} * args.head_dim;
        for (size_t axis = 0; axis < 2; ++axis) {
          const int32_t position = args.positions[t][axis];
          rotate(head + static_cast<int64_t>(axis) * (half / 2), half, table.cosines(position),
                 table.sines(position), half / 2, round);
        }
      }
    }
  });
}

}  // namespace lockstep

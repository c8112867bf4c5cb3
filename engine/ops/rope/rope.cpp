#include "engine/ops/rope/rope.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/math.h"

namespace lockstep {
namespace {

// Cosines and sines of one position; kept while the next token stands at the same one.
class RotationTable {
 public:
  RotationTable(const float* inv_freq, int half)
      : inv_freq_(inv_freq), cos_(static_cast<size_t>(half)), sin_(static_cast<size_t>(half)) {}

  void move_to(const RopePosition& position) {
    if (filled_ && position == position_) return;
    for (size_t i = 0; i < cos_.size(); ++i) {
      const float angle = inv_freq_[i] * static_cast<float>(position[i % 3]);
      double sine = 0.0;
      double cosine = 0.0;
      sincos_f64(angle, &sine, &cosine);
      cos_[i] = static_cast<float>(cosine);
      sin_[i] = static_cast<float>(sine);
    }
    position_ = position;
    filled_ = true;
  }

  float cosine(size_t i) const { return cos_[i]; }
  float sine(size_t i) const { return sin_[i]; }
  size_t half() const { return cos_.size(); }

 private:
  const float* inv_freq_;
  std::vector<float> cos_;
  std::vector<float> sin_;
  RopePosition position_{};
  bool filled_ = false;
};

// The product with the sine is rounded; the product with the cosine is fused with the sum.
void rotate_head(float* head, const RotationTable& table, bool round) {
  const size_t half = table.half();
  for (size_t i = 0; i < half; ++i) {
    const float first = head[i];
    const float second = head[i + half];
    const float low = std::fma(first, table.cosine(i), -(second * table.sine(i)));
    const float high = std::fma(second, table.cosine(i), first * table.sine(i));
    head[i] = round ? round_to_bf16(low) : low;
    head[i + half] = round ? round_to_bf16(high) : high;
  }
}

void check_shape(const RopeArgs& args) {
  LOCKSTEP_CHECK(args.rotary_dim > 0 && args.rotary_dim % 2 == 0);
  LOCKSTEP_CHECK(args.rotary_dim <= args.head_dim);
}

}  // namespace

std::vector<float> rope_inverse_frequencies(double theta, int rotary_dim) {
  LOCKSTEP_CHECK(theta > 0.0 && rotary_dim > 0 && rotary_dim % 2 == 0);
  std::vector<float> result(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < result.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / rotary_dim;
    result[i] = static_cast<float>(pow_f64(theta, exponent));
  }
  return result;
}

void rope(const RopeArgs& args, ThreadPool& pool) {
  check_shape(args);
  const bool round = args.rounding == Rounding::bf16;
  pool.parallel_for(args.n_tokens, 4, [&](int64_t begin, int64_t end) {
    RotationTable table(args.inv_freq, args.rotary_dim / 2);
    for (int64_t t = begin; t < end; ++t) {
      table.move_to(args.positions[t]);
      float* token = args.x + t * args.token_stride;
      for (int h = 0; h < args.n_heads; ++h) {
        rotate_head(token + int64_t{h} * args.head_dim, table, round);
      }
    }
  });
}

}  // namespace lockstep

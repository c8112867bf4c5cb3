#include <bit>
#include <cmath>

#include "engine/ops/common/tolerance.h"
#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"
#include "engine/ops/hadamard/hadamard.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/seeds/seed_case.h"
#include "engine/ops/swiglu/swiglu.h"

namespace lockstep::op_seeds {
namespace {

using tolerance::with_output_rounding;

double judge_rmsnorm(Draw& draw, ThreadPool& pool, bool plant) {
  const int64_t rows = draw.between(1, 5);
  const int64_t width = draw.multiple_of_16(1024);
  const Rounding rounding = draw.rounding();
  const auto x = draw.floats(rows * width, draw.scale(), rounding);
  const auto weight = draw.floats(width, 0.7f, rounding);
  std::vector<float> out(x.size());
  const RmsNormArgs args{x.data(), width, weight.data(), out.data(), width,
                         rows,     width, 1e-6f,         1.0f,       rounding};
  rmsnorm(args, pool);
  std::vector<double> want(x.size());
  rmsnorm_oracle(args, want.data());
  std::vector<double> bound;
  for (const double value : want) {
    const double error = std::fabs(value) * tolerance::rmsnorm_relative(width);
    bound.push_back(with_output_rounding(value, error, rounding));
  }
  return judged(std::move(out), want, bound, plant, draw);
}

double judge_gated_rmsnorm(Draw& draw, ThreadPool& pool, bool plant) {
  const int64_t rows = draw.between(1, 6);
  const int64_t width = draw.multiple_of_16(256);
  const Rounding rounding = draw.rounding();
  const auto x = draw.floats(rows * width, draw.scale(), rounding);
  const auto z = draw.floats(rows * width, 8.0f, rounding);
  const auto weight = draw.floats(width, 1.5f, rounding);
  std::vector<float> out(x.size());
  gated_rmsnorm({x.data(), z.data(), weight.data(), out.data(), rows, width, 1e-6f, rounding},
                pool);
  std::vector<double> want(x.size());
  gated_rmsnorm_oracle({x.data(), z.data(), weight.data(), nullptr, rows, width, 1e-6f, rounding},
                       want.data());
  std::vector<double> bound;
  for (const double value : want) {
    const double error = std::fabs(value) * tolerance::gated_rmsnorm_relative(width);
    bound.push_back(with_output_rounding(value, error, rounding));
  }
  return judged(std::move(out), want, bound, plant, draw);
}

double judge_swiglu(Draw& draw, ThreadPool& pool, bool plant) {
  const int64_t tokens = draw.between(1, 4);
  const int64_t width = draw.between(1, 700);
  const Rounding rounding = draw.rounding();
  const auto gate = draw.floats(tokens * width, 12.0f, rounding);
  const auto up = draw.floats(tokens * width, draw.scale(), rounding);
  std::vector<float> out(gate.size());
  const SwigluArgs args{gate.data(), width,  up.data(), width,   out.data(),
                        width,       tokens, width,     rounding};
  swiglu(args, pool);
  std::vector<double> want(out.size());
  swiglu_oracle(args, want.data());
  std::vector<double> bound;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(want[i]) * tolerance::kSwigluRelative +
                         std::fabs(double{up[i]}) * tolerance::kSiluFlushed + tolerance::kFloatTiny;
    bound.push_back(with_output_rounding(want[i], error, rounding));
  }
  return judged(std::move(out), want, bound, plant, draw);
}

double judge_rope(Draw& draw, ThreadPool& pool, bool plant) {
  const int64_t tokens = draw.between(1, 6);
  const int heads = static_cast<int>(draw.between(1, 4));
  const int rotary = static_cast<int>(draw.multiple_of_16(64));
  const Rounding rounding = draw.rounding();
  const int64_t width = int64_t{heads} * rotary;
  std::vector<RopePosition> positions;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = static_cast<int32_t>(draw.between(0, 262143));
    positions.push_back({at, at, at});
  }
  const auto inv_freq = rope_inverse_frequencies(1e7, rotary);
  const auto x = draw.floats(tokens * width, draw.scale(), rounding);
  std::vector<float> out = x;
  const auto args = [&](float* data) {
    return RopeArgs{data,  width,  positions.data(), inv_freq.data(), tokens,
                    heads, rotary, rotary,           rounding};
  };
  rope(args(out.data()), pool);
  std::vector<float> input = x;
  std::vector<double> want(out.size());
  rope_oracle(args(input.data()), want.data());
  std::vector<double> bound;
  const int half = rotary / 2;
  for (size_t i = 0; i < want.size(); ++i) {
    const auto place = static_cast<int>(i % static_cast<size_t>(rotary));
    const size_t pair = i - static_cast<size_t>(place) +
                        static_cast<size_t>(place < half ? place + half : place - half);
    const auto t = i / static_cast<size_t>(width);
    const double angle =
        double{inv_freq[static_cast<size_t>(place % half)] * static_cast<float>(positions[t][0])};
    const double condition =
        std::fabs(x[i] * std::cos(angle)) + std::fabs(x[pair] * std::sin(angle));
    bound.push_back(with_output_rounding(want[i], condition * tolerance::kRopeCondition, rounding));
  }
  return judged(std::move(out), want, bound, plant, draw);
}

// The Sylvester matrix entry by entry: H[i, j] = (-1)^popcount(i & j).
double judge_hadamard(Draw& draw, ThreadPool& pool, bool plant) {
  const int width = 16 << draw.between(0, 4);
  const int64_t rows = draw.between(1, 3);
  const auto x = draw.floats(rows * width, draw.scale());
  std::vector<float> out = x;
  hadamard(out.data(), width, rows, width, Rounding::none, pool);
  std::vector<double> want;
  std::vector<double> bound;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(width)) {
    double condition = 0;
    for (int j = 0; j < width; ++j) condition += std::fabs(double{x[row + j]});
    for (int i = 0; i < width; ++i) {
      double sum = 0;
      for (int j = 0; j < width; ++j) {
        sum += (std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1.0 : -1.0) * x[row + j];
      }
      want.push_back(sum / std::sqrt(width));
      bound.push_back(tolerance::hadamard_bound(width, condition / std::sqrt(width)));
    }
  }
  return judged(std::move(out), want, bound, plant, draw);
}

}  // namespace

const std::vector<Case>& rowwise_cases() {
  static const std::vector<Case> cases = {{"rmsnorm", judge_rmsnorm},
                                          {"gated_rmsnorm", judge_gated_rmsnorm},
                                          {"swiglu", judge_swiglu},
                                          {"rope", judge_rope},
                                          {"hadamard", judge_hadamard}};
  return cases;
}

}  // namespace lockstep::op_seeds

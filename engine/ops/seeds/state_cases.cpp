#include <cmath>

#include "engine/ops/causal_conv/causal_conv.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/gated_delta/gated_delta_reference.h"
#include "engine/ops/gdn_gates/gdn_gates.h"
#include "engine/ops/seeds/seed_case.h"

namespace lockstep::op_seeds {
namespace {

using namespace tolerance;

double judge_conv(Draw& draw, ThreadPool& pool, bool plant) {
  const int64_t tokens = draw.between(1, 8);
  const int64_t channels = draw.between(1, 90);
  const float scale = 2.0f;
  const auto m = draw.floats(tokens * channels, scale);
  const auto weight = draw.floats(channels * 4, 1.0f);
  const auto start = draw.floats(channels * 3, scale);
  std::vector<float> state = start;
  std::vector<float> out(m.size());
  causal_conv({m.data(), channels, weight.data(), state.data(), out.data(), channels, tokens,
               channels, Rounding::none},
              pool);
  std::vector<float> oracle_state = start;
  std::vector<double> want(m.size());
  causal_conv_oracle({m.data(), channels, weight.data(), oracle_state.data(), nullptr, channels,
                      tokens, channels, Rounding::none},
                     want.data());
  std::vector<double> bound;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double condition = 0;
      for (int64_t tap = 0; tap < 4; ++tap) {
        const int64_t from = t - 3 + tap;
        const double x = from < 0 ? start[c * 3 + 3 + from] : m[from * channels + c];
        condition += std::fabs(weight[c * 4 + tap] * x);
      }
      bound.push_back(causal_conv_bound(condition, want[bound.size()]));
    }
  }
  return judged(std::move(out), want, bound, plant, draw);
}

double judge_gates(Draw& draw, ThreadPool&, bool plant) {
  const int64_t tokens = draw.between(1, 40);
  const int heads = static_cast<int>(draw.between(1, 16));
  const float scale = draw.scale();
  const auto a = draw.floats(tokens * heads, scale);
  const auto b = draw.floats(tokens * heads, scale);
  const auto a_log = draw.floats(heads, 2.5f);
  const auto dt_bias = draw.floats(heads, 3.0f);
  std::vector<float> log_decay(a.size());
  std::vector<float> beta(a.size());
  const GdnGatesArgs args{a.data(),         b.data(),    a_log.data(), dt_bias.data(),
                          log_decay.data(), beta.data(), tokens,       heads};
  gdn_gates(args);
  std::vector<double> want(a.size());
  std::vector<double> want_beta(a.size());
  gdn_gates_oracle(args, want.data(), want_beta.data());
  log_decay.insert(log_decay.end(), beta.begin(), beta.end());
  want.insert(want.end(), want_beta.begin(), want_beta.end());
  std::vector<double> bound;
  for (const double value : want) {
    bound.push_back(std::fabs(value) * kGdnGatesRelative + kFloatTiny);
  }
  return judged(std::move(log_decay), want, bound, plant, draw);
}

struct DeltaProblem {
  int64_t tokens;
  int64_t first;
  int k_heads;
  int v_heads;
  int dk;
  int dv;
  std::vector<float> q, k, v, log_decay, beta, state;

  GatedDeltaArgs args(float* state_out, float* out) const {
    return {q.data(),
            k.data(),
            v.data(),
            int64_t{k_heads} * dk,
            int64_t{v_heads} * dv,
            log_decay.data(),
            beta.data(),
            state_out,
            out,
            int64_t{v_heads} * dv,
            first,
            tokens,
            k_heads,
            v_heads,
            dk,
            dv,
            Rounding::none};
  }
};

DeltaProblem draw_delta(Draw& draw) {
  DeltaProblem p{};
  p.tokens = draw.between(1, 70);
  p.first = draw.between(0, 130);
  p.k_heads = static_cast<int>(draw.between(1, 2));
  p.v_heads = p.k_heads * static_cast<int>(draw.between(1, 2));
  p.dk = 16 * static_cast<int>(draw.between(1, 3));
  p.dv = 16 * static_cast<int>(draw.between(1, 3));
  p.q = draw.floats(p.tokens * p.k_heads * p.dk, 1.5f);
  p.k = draw.floats(p.tokens * p.k_heads * p.dk, 1.5f);
  p.v = draw.floats(p.tokens * p.v_heads * p.dv, 2.0f);
  p.state = draw.floats(int64_t{p.v_heads} * p.dk * p.dv, 0.3f);
  for (int64_t i = 0; i < p.tokens * p.v_heads; ++i) {
    // Half lives from 0.2 to 2000 tokens.
    const double half_life = 0.2 * std::pow(1e4, draw.stream.next_uniform());
    p.log_decay.push_back(static_cast<float>(-std::log(2.0) / half_life));
    const uint32_t kind = draw.stream.next_below(8);
    p.beta.push_back(kind == 0 ? 0.0f : kind == 1 ? 1.0f : draw.stream.next_uniform());
  }
  return p;
}

// Outputs and final state together.
double judge_delta(Draw& draw, ThreadPool& pool, bool plant, bool chunked) {
  const DeltaProblem p = draw_delta(draw);
  std::vector<float> state = p.state;
  std::vector<float> out(p.v.size());
  const GatedDeltaArgs args = p.args(state.data(), out.data());
  if (chunked) {
    gated_delta_chunked(args, pool);
  } else {
    gated_delta_recurrent(args, pool);
  }
  std::vector<float> start = p.state;
  const GatedDeltaArgs inputs = p.args(start.data(), nullptr);
  GdnReference exact = chunked ? gdn_chunked_reference(inputs) : gdn_recurrent_reference(inputs);
  out.insert(out.end(), state.begin(), state.end());
  exact.value.insert(exact.value.end(), exact.state.begin(), exact.state.end());
  exact.value_bound.insert(exact.value_bound.end(), exact.state_bound.begin(),
                           exact.state_bound.end());
  return judged(std::move(out), exact.value, exact.value_bound, plant, draw);
}

double judge_recurrent(Draw& draw, ThreadPool& pool, bool plant) {
  return judge_delta(draw, pool, plant, false);
}

double judge_chunked(Draw& draw, ThreadPool& pool, bool plant) {
  return judge_delta(draw, pool, plant, true);
}

}  // namespace

const std::vector<Case>& state_cases() {
  static const std::vector<Case> cases = {{"causal_conv", judge_conv},
                                          {"gdn_gates", judge_gates},
                                          {"gated_delta_recurrent", judge_recurrent},
                                          {"gated_delta_chunked", judge_chunked}};
  return cases;
}

}  // namespace lockstep::op_seeds

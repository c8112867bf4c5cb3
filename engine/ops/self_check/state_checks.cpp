// Ops that carry a state. The convolution's sums are integers where silu is the identity or zero.
// The delta rule is exact for unit keys of length 8: their squared length swallows the 1e-6, the
// root of dk is 4, decays are 1 or 0, and a write of strength one replaces a row of the state.
#include <vector>

#include "engine/ops/causal_conv/causal_conv.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/ops/self_check/checks.h"
#include "engine/ops/self_check/exact_match.h"

namespace lockstep {
namespace {

void check_causal_conv(ThreadPool& pool) {
  constexpr int64_t kChannels = 35;
  constexpr int64_t kTokens = 6;
  const auto input = [](int64_t t, int64_t c) {
    return static_cast<float>((c * 5 + t * 3 + 33) % 9 + 1);
  };
  // Weights of one sign a channel: sums are at least 4 * 8 in magnitude.
  const auto tap = [](int64_t c, int64_t j) {
    return (c % 2 == 0 ? 1.0f : -32.0f) * static_cast<float>(8 + (c + j) % 5);
  };
  std::vector<float> weight;
  std::vector<float> state;
  std::vector<float> expected_state;
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t j = 0; j < 4; ++j) weight.push_back(tap(c, j));
    for (int64_t j = -3; j < 0; ++j) state.push_back(input(j, c));
    for (int64_t j = kTokens - 3; j < kTokens; ++j) expected_state.push_back(input(j, c));
  }
  std::vector<float> m;
  std::vector<float> expected;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t c = 0; c < kChannels; ++c) {
      m.push_back(input(t, c));
      float sum = 0.0f;
      for (int64_t j = 0; j < 4; ++j) sum += tap(c, j) * input(t - 3 + j, c);
      expected.push_back(sum > 0.0f ? sum : 0.0f);
    }
  }
  std::vector<float> out = unwritten(expected.size());
  causal_conv({m.data(), kChannels, weight.data(), state.data(), out.data(), kChannels, kTokens,
               kChannels, Rounding::none},
              pool);
  require_exact("causal_conv", out, expected);
  require_exact("causal_conv state", state, expected_state);
}

constexpr int kDk = 16;
constexpr int kDv = 32;
constexpr int kKeyHeads = 1;
constexpr int kValueHeads = 2;
constexpr int64_t kTokens = 70;  // a chunk and a short one
constexpr int64_t kForget = 30;  // the token whose decay is zero

int key_of(int64_t t) {
  return static_cast<int>(t * 7 % 11);
}
int query_of(int64_t t) {
  return static_cast<int>(t * 5 % 11);
}
float written(int64_t t, int64_t i) {
  return static_cast<float>((t * 13 + i * 3) % 31 - 15);
}

struct DeltaProblem {
  std::vector<float> q = std::vector<float>(kTokens * kDk, 0.0f);
  std::vector<float> k = std::vector<float>(kTokens * kDk, 0.0f);
  std::vector<float> v, log_decay, beta, initial, expected, expected_state;

  DeltaProblem() {
    constexpr int64_t kWidth = kValueHeads * kDv;
    for (int64_t i = 0; i < kValueHeads * kDk * kDv; ++i)
      initial.push_back(static_cast<float>(i % 23 - 11));
    expected_state = initial;
    for (int64_t t = 0; t < kTokens; ++t) {
      q[static_cast<size_t>(t * kDk + query_of(t))] = 8.0f;
      k[static_cast<size_t>(t * kDk + key_of(t))] = 8.0f;
      log_decay.insert(log_decay.end(), kValueHeads, t == kForget ? -200.0f : 0.0f);
      beta.insert(beta.end(), kValueHeads, 1.0f);
      if (t == kForget) expected_state.assign(expected_state.size(), 0.0f);
      for (int64_t i = 0; i < kWidth; ++i) {
        v.push_back(written(t, i));
        const int64_t head = i / kDv * kDk * kDv;
        expected_state[static_cast<size_t>(head + key_of(t) * kDv + i % kDv)] = written(t, i);
      }
      for (int64_t i = 0; i < kWidth; ++i) {
        const int64_t head = i / kDv * kDk * kDv;
        expected.push_back(expected_state[static_cast<size_t>(head + query_of(t) * kDv + i % kDv)] /
                           4.0f);
      }
    }
  }

  void require(const char* name, void (*kernel)(const GatedDeltaArgs&, ThreadPool&),
               ThreadPool& pool) const {
    std::vector<float> state = initial;
    std::vector<float> out = unwritten(expected.size());
    GatedDeltaArgs args{};
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.qk_stride = kKeyHeads * kDk;
    args.v_stride = kValueHeads * kDv;
    args.log_decay = log_decay.data();
    args.beta = beta.data();
    args.state = state.data();
    args.out = out.data();
    args.out_stride = kValueHeads * kDv;
    args.n_tokens = kTokens;
    args.n_k_heads = kKeyHeads;
    args.n_v_heads = kValueHeads;
    args.dk = kDk;
    args.dv = kDv;
    args.rounding = Rounding::none;
    kernel(args, pool);
    require_exact(name, out, expected);
    require_exact(name, state, expected_state);
  }
};

}  // namespace

void check_recurrent_ops(ThreadPool& pool) {
  check_causal_conv(pool);
  const DeltaProblem problem;
  problem.require("gated_delta_recurrent", gated_delta_recurrent, pool);
  problem.require("gated_delta_chunked", gated_delta_chunked, pool);
}

}  // namespace lockstep

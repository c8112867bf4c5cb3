#include "engine/ops/common/cuda/gdn_exact.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/causal_conv/causal_conv.h"
#include "engine/ops/common/exact_values.h"
#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"
#include "engine/ops/gdn_gates/gdn_gates.h"

namespace lockstep {
namespace {

constexpr int kDim = 128;
constexpr int kTokensOfKeys = 3;  // that share their four rows of the state
constexpr int kRowsOfKey = 4;
constexpr float kKeyValue = 32.0f;    // four of them have the norm 64
constexpr float kQueryValue = 64.0f;  // alone
constexpr float kForgets = -200.0f;   // its exponential is 0 in float32
constexpr uint32_t kLargestValue = 50;

int64_t tokens_of(size_t index) {
  return index == 0 ? kGdnExactPrefill : kGdnExactRound;
}

std::vector<float> conv_host(uint64_t seed, int64_t n_tokens) {
  const ConvExactProblem p(seed, n_tokens);
  constexpr int64_t kChannels = kGdnExactConvChannels;
  std::vector<float> out(p.m.size());
  std::vector<float> state(3 * kChannels);
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t j = 0; j < 3; ++j) {
      state[static_cast<size_t>(c * 3 + j)] = p.window[static_cast<size_t>(j * kChannels + c)];
    }
  }
  ThreadPool pool(1);
  causal_conv({p.m.data(), kChannels, p.weight.data(), state.data(), out.data(), kChannels,
               n_tokens, kChannels, Rounding::bf16},
              pool);
  for (int64_t j = 0; j < 3; ++j) {
    for (int64_t c = 0; c < kChannels; ++c) out.push_back(state[static_cast<size_t>(c * 3 + j)]);
  }
  return out;
}

// One token of one head in float64, where all of it is exact.
void delta_step(const DeltaExactProblem& p, int64_t t, int64_t head, std::vector<double>& state) {
  const size_t gate = static_cast<size_t>(t * kGdnExactDeltaHeads + head);
  double* s = state.data() + head * kDim * kDim;
  if (p.log_decay[gate] != 0.0f) std::fill_n(s, kDim * kDim, 0.0);
  const float* k = p.k.data() + t * kDim;
  for (int64_t c = 0; c < kDim; ++c) {
    double read = 0;
    for (int64_t r = 0; r < kDim; ++r) read += s[r * kDim + c] * (double{k[r]} / kQueryValue);
    const double update = p.beta[gate] * (double{p.v[gate * kDim + static_cast<size_t>(c)]} - read);
    for (int64_t r = 0; r < kDim; ++r) s[r * kDim + c] += double{k[r]} / kQueryValue * update;
  }
}

// What the query of a token reads, whose one value is 1 / sqrt(128) once it is normalised.
void delta_read(const DeltaExactProblem& p, int64_t t, const std::vector<double>& state,
                std::vector<float>& out) {
  const float factor = 1.0f / std::sqrt(static_cast<float>(kDim));
  const float* q = p.q.data() + t * kDim;
  const auto row = std::find_if(q, q + kDim, [](float value) { return value != 0.0f; }) - q;
  for (int64_t head = 0; head < kGdnExactDeltaHeads; ++head) {
    for (int64_t c = 0; c < kDim; ++c) {
      const auto value =
          static_cast<float>(state[static_cast<size_t>((head * kDim + row) * kDim + c)]);
      out.push_back(round_to_bf16(value * factor * (q[row] / kQueryValue)));
    }
  }
}

// Reads what the last `n_read` tokens read, then states.
std::vector<float> delta_host(uint64_t seed, int64_t n_tokens, int64_t n_read) {
  const DeltaExactProblem p(seed, n_tokens);
  std::vector<double> state(p.state.begin(), p.state.end());
  std::vector<float> out;
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t head = 0; head < kGdnExactDeltaHeads; ++head) delta_step(p, t, head, state);
    if (t >= n_tokens - n_read) delta_read(p, t, state, out);
  }
  out.insert(out.end(), state.begin(), state.end());
  return with_plain_zeros(out);
}

std::vector<float> gated_norm_host(uint64_t seed) {
  const GatedNormExactProblem p(seed);
  std::vector<float> out(p.x.size());
  ThreadPool pool(1);
  gated_rmsnorm({p.x.data(), p.z.data(), p.weight.data(), out.data(), p.n_tokens * p.n_heads, kDim,
                 kSquaresEps, Rounding::bf16},
                pool);
  return out;
}

std::vector<float> gates_host(uint64_t seed, int64_t n_tokens) {
  const GatesExactProblem p(seed, n_tokens);
  std::vector<float> out(p.log_decay.begin(), p.log_decay.end());
  out.insert(out.end(), p.beta.begin(), p.beta.end());
  return out;
}

// Whether an error far above that of any library's last bits would round to another float32.
bool near_border(double value) {
  const auto rounded = static_cast<float>(value);
  const float other = std::nextafter(rounded, value > double{rounded} ? HUGE_VALF : -HUGE_VALF);
  const double border = (double{rounded} + double{other}) / 2;
  return std::fabs(value - border) < 0x1p-12 * std::fabs(double{other} - double{rounded});
}

}  // namespace

ConvExactProblem::ConvExactProblem(uint64_t seed, int64_t n_tokens) {
  PhiloxStream random(seed, 4);
  m = exact_floats(random, n_tokens * kGdnExactConvChannels, 3.0f, true);
  weight = exact_floats(random, 4 * kGdnExactConvChannels, 1.0f, false);
  window = exact_floats(random, 3 * kGdnExactConvChannels, 3.0f, true);
}

DeltaExactProblem::DeltaExactProblem(uint64_t seed, int64_t n) : n_tokens(n) {
  PhiloxStream random(seed, 5);
  std::vector<size_t> rows(kDim);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  for (size_t i = rows.size() - 1; i > 0; --i) {
    std::swap(rows[i], rows[random.next_below(static_cast<uint32_t>(i + 1))]);
  }
  q.resize(static_cast<size_t>(n * kDim));
  k.resize(q.size());
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t i = 0; i < kRowsOfKey; ++i) {
      const size_t row = rows[static_cast<size_t>(t / kTokensOfKeys * kRowsOfKey + i)];
      k[static_cast<size_t>(t * kDim) + row] = random.next_below(2) == 0 ? kKeyValue : -kKeyValue;
    }
    const float sign = random.next_below(2) == 0 ? 1.0f : -1.0f;
    q[static_cast<size_t>(t * kDim) + random.next_below(kDim)] = sign * kQueryValue;
  }
  for (int64_t i = 0; i < n * kGdnExactDeltaHeads; ++i) {
    // Early, so that what follows shows.
    const bool forgets = random.next_below(8) == 0 && i < n * kGdnExactDeltaHeads / 4;
    log_decay.push_back(forgets ? kForgets : 0.0f);
    beta.push_back(0.5f * static_cast<float>(random.next_below(3)));
    for (int c = 0; c < kDim; ++c) v.push_back(exact_integer(random, kLargestValue));
  }
  for (int i = 0; i < kGdnExactDeltaHeads * kDim * kDim; ++i) {
    state.push_back(exact_integer(random, kLargestValue));
  }
}

GatedNormExactProblem::GatedNormExactProblem(uint64_t seed) {
  PhiloxStream random(seed, 6);
  for (int64_t row = 0; row < n_tokens * n_heads; ++row) {
    const std::vector<float> values = exact_squares(random, kDim);
    x.insert(x.end(), values.begin(), values.end());
  }
  z = exact_floats(random, n_tokens * n_heads * kDim, 8.0f, true);
  weight = exact_floats(random, kDim, 2.0f, false);
}

GatesExactProblem::GatesExactProblem(uint64_t seed, int64_t n_tokens) {
  PhiloxStream random(seed, 7);
  a_log = exact_floats(random, kGdnExactGateHeads, 1.5f, false);
  dt_bias = exact_floats(random, kGdnExactGateHeads, 4.0f, false);
  for (int64_t i = 0; i < n_tokens * kGdnExactGateHeads; ++i) {
    const size_t head = static_cast<size_t>(i % kGdnExactGateHeads);
    double decay = 0;
    double strength = 0;
    float inputs[2];
    do {
      for (float& x : inputs) x = round_to_bf16(48.0f * random.next_uniform() - 24.0f);
      gdn_gates_oracle(
          {&inputs[0], &inputs[1], &a_log[head], &dt_bias[head], nullptr, nullptr, 1, 1}, &decay,
          &strength);
    } while (near_border(decay) || near_border(strength));
    a.push_back(inputs[0]);
    b.push_back(inputs[1]);
    log_decay.push_back(decay);
    beta.push_back(strength);
  }
}

std::vector<ExactCase> gdn_exact_cases(GdnExact op) {
  const auto both = [](auto host) {
    std::vector<ExactCase> cases;
    for (size_t i = 0; i < 2; ++i) {
      cases.push_back({i == 0 ? "prefill" : "two rounds, five columns replayed", 70,
                       [=](uint64_t seed) { return host(seed, tokens_of(i)); }});
    }
    return cases;
  };
  if (op == GdnExact::causal_conv) return both(conv_host);
  if (op == GdnExact::gdn_gates) return both(gates_host);
  if (op == GdnExact::gated_rmsnorm) return {{"roots of 2, 4 and 8", 70, gated_norm_host}};
  const auto prefill = [](uint64_t seed) { return delta_host(seed, kGdnExactPrefill, 0); };
  const auto round = [](uint64_t seed) {
    return delta_host(seed, 2 * kGdnExactRound, kGdnExactRound);
  };
  return {{"prefill sm70: states", 70, prefill},
          {"prefill sm80: states", 80, prefill},
          {"a round of eight columns, eight replayed", 70, round}};
}

}  // namespace lockstep

#include "validation/exact/exact_formula.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep::exact {
namespace {

// Scores are 4096 times these sums; exp(-104) is 0 in float32. Rounded keys of the narrowest cache
// move a sum by less than 0.1.
constexpr double kClearMargin = 0.2;

using Value = std::optional<int>;

double score(int offset) {
  double sum = 0;
  for (int i = 0; i < kRotaryPairs; ++i) {
    sum += std::cos(offset * std::pow(kRopeTheta, -2.0 * i / (2 * kRotaryPairs)));
  }
  return sum;
}

// What one GDN head remembers: the value last written under each token.
struct Registers {
  std::array<int, kTokens> values{};

  void advance(int token, int key, int value) {
    if (token == kResetToken) values.fill(0);
    if (key >= 0 && token % 8 != kProtectedRest) values[static_cast<size_t>(key)] = value;
  }
  int read(int token) const { return values[static_cast<size_t>(token)]; }
};

// Everything that the layers compute at one position.
struct Position {
  int token = 0;
  int u0 = 0;
  Value u1;
  Value u2;
  Value last;
  std::array<Value, static_cast<size_t>(Shown::count)> shown;

  Value& at(Shown name) { return shown[static_cast<size_t>(name)]; }
};

class Formula {
 public:
  explicit Formula(Precision precision) : precision_(precision) {}

  void add(int token);
  int next_token() const;
  ExactLogits logits() const;

 private:
  int earlier_token(int distance) const {
    const auto n = static_cast<int>(positions_.size());
    return n >= distance ? positions_[static_cast<size_t>(n - distance)].token : -1;
  }
  // Value of an earlier position (or the one in hand) that a gated head reads.
  template <typename Read>
  Value look_back(const Position& now, int distance, const Read& read) const;
  float mean(int64_t sum) const;

  Precision precision_;
  std::vector<Position> positions_;
  Registers first_[2];
  Registers third_[2];
  int64_t token_sum_ = 0;
  int64_t u1_sum_ = 0;
};

template <typename Read>
Value Formula::look_back(const Position& now, int distance, const Read& read) const {
  if (now.token < kGateToken) return 0;
  const auto n = static_cast<int>(positions_.size());
  const std::optional<int> at = attended_position(n, distance);
  if (!at) return std::nullopt;
  return *at == n ? read(now) : read(positions_[static_cast<size_t>(*at)]);
}

Value sum_mod(Value a, Value b, Value c, int offset) {
  if (!a || !b || !c) return std::nullopt;
  return (*a + *b + *c + offset) % 64;
}

void Formula::add(int token) {
  LOCKSTEP_CHECK(token >= 0 && token < kTokens);
  using enum Shown;
  Position now;
  now.token = token;
  const int before = earlier_token(1);
  const int third_before = earlier_token(3);
  const bool gate = token >= kGateToken;
  const auto read = [&](Registers& registers, int key, int value) {
    registers.advance(token, key, value);
    return gate ? registers.read(token) : 0;
  };
  now.at(r0) = read(first_[0], before, token);
  now.at(r1) = read(first_[1], third_before, std::max(before, 0));
  now.u0 = *sum_mod(token, now.at(r0), now.at(r1), 0);
  now.at(u0) = now.u0;

  const auto u0_of = [](const Position& p) { return Value(p.u0); };
  const auto token_of = [](const Position& p) { return Value(p.token); };
  now.at(a0) = look_back(now, kFirstAttention.first, u0_of);
  now.at(a1) = look_back(now, kFirstAttention.second, u0_of);
  now.at(a2) = look_back(now, kFirstAttention.third, token_of);
  token_sum_ += token;
  now.u1 = sum_mod(now.u0, now.at(a0), now.at(a2), 0);
  LOCKSTEP_CHECK(now.u1.has_value());  // 3 and 5 back are clear from every position
  now.at(u1) = now.u1;

  const int previous_u0 = positions_.empty() ? 0 : positions_.back().u0;
  now.at(r2) = read(third_[0], before, *now.u1);
  now.at(r3) = read(third_[1], third_before, previous_u0);
  now.u2 = sum_mod(now.u1, now.at(r2), now.at(r3), 0);
  now.at(u2) = now.u2;
  u1_sum_ += *now.u1;

  const auto u2_of = [](const Position& p) { return p.u2; };
  const auto u1_of = [](const Position& p) { return p.u1; };
  now.at(b0) = look_back(now, kSecondAttention.first, u2_of);
  now.at(b1) = look_back(now, kSecondAttention.second, u2_of);
  now.at(b2) = look_back(now, kSecondAttention.third, u1_of);
  now.last = sum_mod(now.u2, now.at(b0), now.at(b2), kStep);
  positions_.push_back(now);
}

int Formula::next_token() const {
  const Value last = positions_.back().last;
  if (!last) fail("the exact model: position {} is not decided", positions_.size() - 1);
  return *last;
}

float Formula::mean(int64_t sum) const {
  const float value = static_cast<float>(sum) / static_cast<float>(positions_.size());
  return precision_ == Precision::bf16 ? round_to_bf16(value) : value;
}

ExactLogits Formula::logits() const {
  const Position& now = positions_.back();
  const int u = next_token();
  ExactLogits logits(kVocabulary);
  for (int v = 0; v < kTokens; ++v)
    logits[static_cast<size_t>(v)] = static_cast<float>(2 * u * v - v * v);
  for (int row = kTokens; row < kVocabulary; ++row) {
    const int shown = row - kTokens;
    auto& logit = logits[static_cast<size_t>(row)];
    if (shown >= static_cast<int>(Shown::count)) {
      logit = static_cast<float>(-kUnusedOffset);
    } else if (static_cast<Shown>(shown) == Shown::mean1) {
      logit = static_cast<float>(-kShownOffset) - mean(token_sum_);
    } else if (static_cast<Shown>(shown) == Shown::mean3) {
      logit = static_cast<float>(-kShownOffset) - mean(u1_sum_);
    } else if (const Value value = now.shown[static_cast<size_t>(shown)]) {
      logit = static_cast<float>(-kShownOffset - *value);
    }
  }
  return logits;
}

}  // namespace

std::optional<int> attended_position(int n, int distance) {
  if (n >= distance) return n - distance;
  double best = -1e9;
  double second = -1e9;
  int at = 0;
  for (int j = 0; j <= n; ++j) {
    const double value = score(n - distance - j);
    if (value > best) {
      second = best;
      best = value;
      at = j;
    } else {
      second = std::max(second, value);
    }
  }
  if (best - second < kClearMargin) return std::nullopt;
  return at;
}

ExactRun exact_run(const std::vector<int32_t>& prompt, int n_tokens, Precision precision) {
  LOCKSTEP_CHECK(!prompt.empty());
  Formula formula(precision);
  for (const int32_t token : prompt) formula.add(token);
  ExactRun run;
  for (int i = 0; i < n_tokens; ++i) {
    run.logits.push_back(formula.logits());
    run.tokens.push_back(formula.next_token());
    if (i + 1 < n_tokens) formula.add(run.tokens.back());
  }
  return run;
}

}  // namespace lockstep::exact

// Is the verdict right? A small network is run as another engine would run it: 500 times with its
// sums in another order, 500 times with a defect of 1 to 100 bounds in one branch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "validation/diverge/drift_class.h"
#include "validation/diverge/fork_judge.h"

namespace lockstep {
namespace {

constexpr int kHidden = 32;
constexpr int kLayers = 6;
constexpr int kVocab = 64;
constexpr int kSteps = 24;

using Row = std::vector<float>;

struct Defect {
  int layer = -1;
  int kind = 0;     // 0 a fixed direction, 1 one element, 2 a wrong scale, 3 a sign
  double size = 0;  // relative L2
};

// An engine of the network: its order of sums, its rounding, its defect.
struct Variant {
  std::vector<int> order;
  bool half_sums = false;  // branches are two sums, each rounded, as two ranks make them
  bool round = true;       // activations to bfloat16
  int weight_bits = 0;     // 0: as they are
  Defect defect;
};

float stored(const Variant& variant, float x) {
  return variant.round ? round_to_bf16(x) : x;
}

class Network {
 public:
  explicit Network(uint64_t seed) : random_(seed, 3) {
    for (int layer = 0; layer < kLayers; ++layer) weights_.push_back(matrix(kHidden));
    head_ = matrix(kVocab);
    embedding_ = matrix(kVocab);
  }

  // Logits of one position after `tokens`, and the branch and residual of every layer. With
  // `input`, each layer computes on that run's residual.
  struct Pass {
    std::vector<Row> branches;
    std::vector<Row> residuals;
    Row logits;
  };

  Pass pass(const std::vector<int>& tokens, const Variant& variant, const Pass* input) const {
    Pass result;
    Row x = embed(tokens);
    for (int layer = 0; layer < kLayers; ++layer) {
      const bool own = input == nullptr || layer == 0;
      Row from = own ? x : input->residuals[static_cast<size_t>(layer) - 1];
      Row branch = product(weights_[static_cast<size_t>(layer)], normed(from), variant, kHidden,
                           variant.half_sums);
      for (float& value : branch) value = stored(variant, std::tanh(value));
      if (variant.defect.layer == layer) apply(variant.defect, branch);
      for (int i = 0; i < kHidden; ++i) {
        from[static_cast<size_t>(i)] =
            stored(variant, from[static_cast<size_t>(i)] + branch[static_cast<size_t>(i)]);
      }
      result.branches.push_back(branch);
      result.residuals.push_back(from);
      x = from;
    }
    result.logits = product(head_, normed(x), variant, kVocab, false);
    return result;
  }

  double row_distance(int a, int b) const {
    double sum = 0;
    for (int i = 0; i < kHidden; ++i) {
      const double d = double{head_[at(a, i)]} - double{head_[at(b, i)]};
      sum += d * d;
    }
    return std::sqrt(sum);
  }

 private:
  static size_t at(int row, int column) { return static_cast<size_t>(row * kHidden + column); }

  Row matrix(int rows) {
    Row values;
    for (int i = 0; i < rows * kHidden; ++i) {
      const float a = random_.next_uniform() + random_.next_uniform() + random_.next_uniform();
      values.push_back((2 * a - 3) / std::sqrt(float{kHidden}) * 1.7f);
    }
    return values;
  }

  // The history enters as a fading sum, so that a token depends on all before it.
  Row embed(const std::vector<int>& tokens) const {
    Row x(kHidden, 0.0f);
    for (const int token : tokens) {
      for (int i = 0; i < kHidden; ++i) {
        float& value = x[static_cast<size_t>(i)];
        value = round_to_bf16(0.7f * value + 3 * embedding_[at(token, i)]);
      }
    }
    return x;
  }

  static Row normed(const Row& x) {
    double sum = 0;
    for (const float value : x) sum += double{value} * value;
    const auto scale = static_cast<float>(1 / std::sqrt(sum / kHidden + 1e-6));
    Row y = x;
    for (float& value : y) value *= scale;
    return y;
  }

  static float weight_of(float weight, const Variant& variant) {
    if (variant.weight_bits == 0) return weight;
    const float step = 1.0f / static_cast<float>((1 << (variant.weight_bits - 1)) - 1);
    return std::round(weight / step) * step;
  }

  static Row product(const Row& w, const Row& x, const Variant& variant, int rows, bool half_sums) {
    Row y(static_cast<size_t>(rows), 0.0f);
    for (int row = 0; row < rows; ++row) {
      float sums[2] = {0, 0};
      for (size_t k = 0; k < variant.order.size(); ++k) {
        const int i = variant.order[k];
        float& sum = sums[half_sums && k >= variant.order.size() / 2 ? 1 : 0];
        sum += weight_of(w[at(row, i)], variant) * x[static_cast<size_t>(i)];
      }
      y[static_cast<size_t>(row)] =
          half_sums ? stored(variant, sums[0]) + stored(variant, sums[1]) : sums[0];
    }
    return y;
  }

  static void apply(const Defect& defect, Row& branch) {
    double norm = 0;
    for (const float value : branch) norm += double{value} * value;
    norm = std::sqrt(norm);
    PhiloxStream random(static_cast<uint64_t>(defect.kind), 17);
    Row direction;
    for (size_t i = 0; i < branch.size(); ++i) direction.push_back(2 * random.next_uniform() - 1);
    if (defect.kind == 1) std::fill(direction.begin() + 1, direction.end(), 0.0f);
    if (defect.kind >= 2) direction = branch;
    double length = 0;
    for (const float value : direction) length += double{value} * value;
    const double sign = defect.kind == 3 ? -1 : 1;
    const double scale = sign * defect.size * norm / std::sqrt(length);
    for (size_t i = 0; i < branch.size(); ++i) {
      branch[i] += static_cast<float>(scale * direction[i]);
    }
  }

  PhiloxStream random_;
  std::vector<Row> weights_;
  Row head_;
  Row embedding_;
};

int argmax(const Row& row) {
  return static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin());
}

int runner_up(const Row& row, int best) {
  int second = best == 0 ? 1 : 0;
  for (int i = 0; i < kVocab; ++i) {
    if (i != best && row[static_cast<size_t>(i)] > row[static_cast<size_t>(second)]) second = i;
  }
  return second;
}

struct LocalSums {
  double difference = 0;
  double reference = 0;

  void add(const Row& judged, const Row& expected) {
    for (size_t i = 0; i < judged.size(); ++i) {
      difference += (double{judged[i]} - expected[i]) * (double{judged[i]} - expected[i]);
      reference += double{expected[i]} * expected[i];
    }
  }
  double rel_l2() const { return std::sqrt(difference / reference); }
};

// What diverge would gather of a reference `a` and a judged variant `b`.
ForkEvidence evidence_of(const Network& network, const Variant& a, const Variant& b,
                         std::vector<int> tokens) {
  ForkEvidence evidence;
  evidence.prefix = kSteps;
  evidence.length = kSteps;
  std::vector<LocalSums> branches(kLayers);
  std::vector<LocalSums> residuals(kLayers);
  for (int i = 0; i < kSteps; ++i) {
    const Network::Pass pa = network.pass(tokens, a, nullptr);
    const Network::Pass pb = network.pass(tokens, b, nullptr);
    const Network::Pass isolated = network.pass(tokens, b, &pa);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      branches[layer].add(isolated.branches[layer], pa.branches[layer]);
      residuals[layer].add(isolated.residuals[layer], pa.residuals[layer]);
    }
    const int best_a = argmax(pa.logits);
    const int best_b = argmax(pb.logits);
    const int other = best_a != best_b ? best_b : runner_up(pa.logits, best_a);
    const auto margin = [&](const Row& logits) {
      return double{logits[static_cast<size_t>(best_a)]} - logits[static_cast<size_t>(other)];
    };
    ForkStep step;
    step.step = static_cast<size_t>(i);
    step.a.id = best_a;
    step.b.id = best_b;
    step.fork = best_a != best_b;
    step.margin_a = margin(pa.logits);
    step.margin_b = margin(pb.logits);
    // |h| = sqrt(H) behind the norm.
    step.scale = network.row_distance(best_a, other);
    if (step.fork) evidence.prefix = std::min(evidence.prefix, step.step);
    evidence.steps.push_back(step);
    tokens.push_back(best_a);
  }
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    evidence.local.push_back({name + ".mixer", branches[layer].rel_l2()});
    evidence.local.push_back({name + ".out", residuals[layer].rel_l2()});
  }
  return evidence;
}

Variant straight() {
  Variant variant;
  variant.order.resize(kHidden);
  std::iota(variant.order.begin(), variant.order.end(), 0);
  return variant;
}

Variant reordered(PhiloxStream& random) {
  Variant variant = straight();
  for (size_t i = variant.order.size(); i-- > 1;) {
    std::swap(variant.order[i], variant.order[random.next_below(static_cast<uint32_t>(i) + 1)]);
  }
  variant.half_sums = random.next_below(2) == 0;
  return variant;
}

std::vector<int> prompt_of(PhiloxStream& random) {
  std::vector<int> tokens;
  for (int i = 0; i < 8; ++i) tokens.push_back(static_cast<int>(random.next_below(kVocab)));
  return tokens;
}

double worst_local(const ForkEvidence& evidence) {
  double worst = 0;
  for (const LocalError& error : evidence.local) worst = std::max(worst, error.rel_l2);
  return worst;
}

const JudgeOptions kBf16{.declared = 2, .coarsest = 3, .min_steps = kSteps};

TEST(Labels, HonestReorderingsAreNoDefects) {
  int right = 0;
  int forks = 0;
  for (uint64_t trial = 0; trial < 500; ++trial) {
    PhiloxStream random(trial, 1);
    const Network network(trial / 10);
    const ForkEvidence evidence =
        evidence_of(network, straight(), reordered(random), prompt_of(random));
    const ForkVerdict verdict = judge_forks(evidence, kBf16).verdict;
    right += verdict == ForkVerdict::same || verdict == ForkVerdict::tie ? 1 : 0;
    forks += verdict == ForkVerdict::tie ? 1 : 0;
  }
  EXPECT_GE(right, 495);
  EXPECT_GT(forks, 5) << "orders that change no token would prove nothing";
  RecordProperty("right", right);
  RecordProperty("ties", forks);
}

TEST(Labels, DefectsAreFoundAndNamed) {
  const double bound = local_limit(kBf16.declared);
  int right = 0;
  int named = 0;
  for (uint64_t trial = 0; trial < 500; ++trial) {
    PhiloxStream random(trial, 2);
    const Network network(trial / 10);
    Variant wrong = reordered(random);
    wrong.defect.layer = static_cast<int>(random.next_below(kLayers));
    wrong.defect.kind = static_cast<int>(random.next_below(4));
    wrong.defect.size = bound * std::pow(100.0, double{random.next_uniform()});
    const ForkEvidence evidence = evidence_of(network, straight(), wrong, prompt_of(random));
    const ForkJudgement judgement = judge_forks(evidence, kBf16);
    right += judgement.verdict == ForkVerdict::defect ? 1 : 0;
    named += judgement.culprit == "layers." + std::to_string(wrong.defect.layer) + ".mixer";
    const bool called_honest =
        judgement.verdict == ForkVerdict::tie || judgement.verdict == ForkVerdict::same;
    EXPECT_FALSE(called_honest && worst_local(evidence) > bound) << "trial " << trial;
  }
  EXPECT_GE(right, 495);
  EXPECT_GE(named, 475);
  RecordProperty("right", right);
  RecordProperty("named", named);
}

TEST(Labels, ACoarserArithmeticIsADrift) {
  const JudgeOptions fp32{.declared = 0, .coarsest = 3, .min_steps = kSteps};
  for (uint64_t trial = 0; trial < 20; ++trial) {
    PhiloxStream random(trial, 4);
    const Network network(trial);
    Variant exact = straight();
    exact.round = false;
    Variant coarse = exact;
    coarse.weight_bits = 8;
    const ForkJudgement judgement =
        judge_forks(evidence_of(network, exact, coarse, prompt_of(random)), fp32);
    EXPECT_EQ(judgement.verdict, ForkVerdict::drift) << trial << ": " << judgement.reason;
    coarse = reordered(random);
    coarse.round = false;
    const ForkVerdict honest =
        judge_forks(evidence_of(network, exact, coarse, prompt_of(random)), fp32).verdict;
    EXPECT_TRUE(honest == ForkVerdict::same || honest == ForkVerdict::tie) << trial;
  }
}

ForkEvidence one_fork(double margin_a, double margin_b) {
  ForkEvidence evidence;
  for (size_t i = 0; i < 40; ++i) {
    ForkStep step;
    step.step = i;
    step.a.id = step.b.id = 1;
    step.margin_a = step.margin_b = 2;
    step.scale = 4;
    evidence.steps.push_back(step);
  }
  ForkStep& fork = evidence.steps[30];
  fork.b.id = 2;
  fork.fork = true;
  fork.margin_a = margin_a;
  fork.margin_b = margin_b;
  evidence.prefix = 30;
  evidence.length = 40;
  return evidence;
}

// sigma of bf16 at scale 4: 3 * 0.0175 * 4 = 0.21; four of them 0.84.
TEST(ForkJudge, AForkWithoutAccessIsJudgedByItsDrift) {
  EXPECT_EQ(judge_forks(one_fork(0.4, -0.4), kBf16).verdict, ForkVerdict::tie);
  EXPECT_EQ(judge_forks(one_fork(0.5, -0.5), kBf16).verdict, ForkVerdict::drift);
  EXPECT_EQ(judge_forks(one_fork(0.5, -0.5), kBf16).explained_by, "w8");
  EXPECT_EQ(judge_forks(one_fork(2, -2), kBf16).verdict, ForkVerdict::defect);
  EXPECT_EQ(judge_forks(one_fork(NAN, -2), kBf16).verdict, ForkVerdict::defect);
  ForkEvidence none = one_fork(0, 0);
  none.steps.resize(3);
  EXPECT_EQ(judge_forks(none, {.declared = 2, .coarsest = 3, .min_steps = 32}).verdict,
            ForkVerdict::mistrusted);
  EXPECT_EQ(merge_judgements({}).verdict, ForkVerdict::mistrusted);
}

// No fork, but every margin is off.
TEST(ForkJudge, MarginsThatDriftAreNoTie) {
  ForkEvidence evidence = one_fork(0, 0);
  for (ForkStep& step : evidence.steps) {
    step.fork = false;
    step.margin_b = step.margin_a + 0.21 * 2.1;
  }
  EXPECT_EQ(judge_forks(evidence, kBf16).verdict, ForkVerdict::drift);
  for (ForkStep& step : evidence.steps) step.margin_b = step.margin_a + 0.21 * 1.9;
  EXPECT_EQ(judge_forks(evidence, kBf16).verdict, ForkVerdict::same);
}

}  // namespace
}  // namespace lockstep

// The formula by hand, the judge that can fail, and the engine on the named variants.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/temp_dir.h"
#include "validation/exact/exact_judge.h"

namespace lockstep::exact {
namespace {

TEST(ExactFormula, TokensBelowTheGateCountOn) {
  const ExactRun run = exact_run({5}, 3, Precision::bf16);
  EXPECT_EQ(run.tokens[0], 16);
  EXPECT_EQ(run.tokens[1], 27);
  EXPECT_EQ(run.tokens[2], 38);
  EXPECT_EQ(run.logits[0][16], 256.0f);
  EXPECT_EQ(run.logits[0][15], 255.0f);
  EXPECT_EQ(run.logits[0][0], 0.0f);
  EXPECT_EQ(run.logits[0][95], -8192.0f);
}

TEST(ExactFormula, GatedTokensReadRegistersAndThePast) {
  // Behind 17 zeros 40 comes twice. Layer 0: it was followed by 2 (written by 2 under the token
  // before it); nothing was ever written three tokens behind it.
  std::vector<int32_t> prompt(17, 0);
  for (const int32_t token : {1, 40, 2, 40}) prompt.push_back(token);
  const ExactRun run = exact_run(prompt, 1, Precision::fp32);
  const auto shown = [&](Shown name) {
    return *run.logits[0][static_cast<size_t>(kTokens) + static_cast<size_t>(name)];
  };
  EXPECT_EQ(shown(Shown::r0), -4096.0f - 2);
  EXPECT_EQ(shown(Shown::r1), -4096.0f);
  EXPECT_EQ(shown(Shown::u0), -4096.0f - 42);
  EXPECT_EQ(shown(Shown::a0), -4096.0f - 1) << "three back: u0 of the 1";
  EXPECT_EQ(shown(Shown::a2), -4096.0f) << "five back: a zero";
  EXPECT_EQ(shown(Shown::mean1), -4096.0f - 83.0f / 21.0f);
}

TEST(ExactFormula, LooksBackAndRefusesWhatIsNotClear) {
  EXPECT_EQ(attended_position(100, 64), 36);
  EXPECT_EQ(attended_position(64, 64), 0);
  EXPECT_FALSE(attended_position(10, 64).has_value());
  EXPECT_EQ(attended_position(0, 64), 0);
}

class ExactModel : public ::testing::Test {
 protected:
  ExactModel() {
    write_exact_model(dir_.path());
    base_.engine = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-generate";
    base_.model = dir_.path();
  }
  TempDir dir_;
  EngineOptions base_;
};

class ExactEngine : public ExactModel, public ::testing::WithParamInterface<ExactVariant> {};

TEST_P(ExactEngine, AnswersTheFormula) {
  const std::vector<EngineJob> jobs = exact_jobs();
  const auto results = run_engine(exact_options(base_, GetParam()), jobs);
  ExactCoverage coverage;
  EXPECT_EQ(exact_difference(jobs, results, GetParam().precision, &coverage), "");
  EXPECT_EQ(unreached(GetParam(), coverage), "");
}

INSTANTIATE_TEST_SUITE_P(Variants, ExactEngine, ::testing::ValuesIn(exact_variants()),
                         [](const auto& variant) {
                           std::string name = variant.param.label;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_F(ExactModel, TheJudgeSeesOneTokenAndOneBit) {
  const std::vector<EngineJob> jobs = exact_jobs();
  const auto results = run_engine(exact_options(base_, exact_variants()[0]), jobs);
  auto wrong = results;
  wrong[2].ids[7] ^= 1;
  EXPECT_NE(exact_difference(jobs, wrong, "bf16", nullptr).find("branch: token 7"),
            std::string::npos);
  wrong = results;
  wrong[4].logits[3].values[0] += 1;
  EXPECT_NE(exact_difference(jobs, wrong, "bf16", nullptr).find("middle-again: step 3"),
            std::string::npos);
  EXPECT_NE(unreached(exact_variants()[1], {}), "");
}

// LOCKSTEP_ENGINE_VARIANTS of them (six without it); ci/lanes/seeds.sh runs 200.
TEST_F(ExactModel, GridOfVariantsGivesNoFalseAlarm) {
  const char* text = std::getenv("LOCKSTEP_ENGINE_VARIANTS");
  const int n = text == nullptr ? 6 : std::atoi(text);
  ASSERT_GT(n, 0);
  const std::vector<EngineJob> jobs = exact_jobs();
  ExactCoverage all;
  for (const ExactVariant& variant : exact_variant_grid(n)) {
    const auto results = run_engine(exact_options(base_, variant), jobs);
    EXPECT_EQ(exact_difference(jobs, results, variant.precision, &all), "") << variant.label;
  }
  std::printf("%d variants, %lld tokens, %lld logits, %lld hits, %lld drafts taken, %lld refused\n",
              n, static_cast<long long>(all.n_tokens), static_cast<long long>(all.n_logits),
              static_cast<long long>(all.n_hits), static_cast<long long>(all.n_accepted),
              static_cast<long long>(all.n_refused));
}

TEST(ExactVariants, GridIsFixedAndMeetsEverySetting) {
  const auto grid = exact_variant_grid(200);
  ASSERT_EQ(grid.size(), 200u);
  EXPECT_EQ(exact_variant_grid(10)[9].prefill_grid, grid[9].prefill_grid);
  int n_pairs = 0;
  for (const ExactVariant& variant : grid) {
    n_pairs += variant.tp == 2 && variant.kv == "int8" && variant.mtp == 5 ? 1 : 0;
  }
  EXPECT_GT(n_pairs, 0);
}

}  // namespace
}  // namespace lockstep::exact

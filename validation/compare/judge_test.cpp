// The judgement on invented runs: an honest one passes, each planted fault turns it red in its
// place.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/base/temp_dir.h"
#include "validation/compare/compare.h"
#include "validation/compare/greedy_judge.h"
#include "validation/testing/synthetic_run.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

using testing::make_synthetic_run;
using testing::SyntheticRun;

class Judge : public ::testing::Test {
 protected:
  Judge() { testing::write_model(dir_.path()); }

  CompareReport judge(const SyntheticRun& run, Precision precision) const {
    return judge_run(run.oracle, run.results, precision, dir_.path());
  }
  // The report of "alpha" after `plant`.
  PromptReport alpha_after(Precision precision,
                           const std::function<void(SyntheticRun&)>& plant) const {
    SyntheticRun run = make_synthetic_run(precision);
    plant(run);
    const CompareReport report = judge(run, precision);
    EXPECT_EQ(report.verdict, report.prompts[0].verdict);
    return report.prompts[0];
  }

  TempDir dir_;
};

TEST_F(Judge, HonestRunsPass) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const CompareReport report = judge(make_synthetic_run(precision), precision);
    EXPECT_EQ(report.verdict, Verdict::pass);
    ASSERT_EQ(report.prompts.size(), 3u);
    EXPECT_EQ(report.prompts[0].first_bad, "");
    EXPECT_EQ(report.prompts[0].greedy.n_match, 96);
    EXPECT_EQ(report.prompts[0].greedy.length, 96);
    EXPECT_EQ(report.prompts[0].n_positions, 16);
    EXPECT_EQ(report.prompts[1].n_positions, 13);
    EXPECT_TRUE(report.prompts[2].skipped);
    EXPECT_EQ(report.prompts[2].reasons[0], kImageOutOfScope);
  }
}

TEST_F(Judge, StatesAreJudgedInFp32Only) {
  const auto names = [&](Precision precision) {
    std::vector<std::string> states;
    const PromptReport report = alpha_after(precision, [](SyntheticRun&) {});
    for (const TapRow& row : report.taps) {
      if (row.tap.starts_with("state/")) states.push_back(row.tap);
    }
    return states;
  };
  EXPECT_EQ(names(Precision::fp32).size(), 6u);
  EXPECT_TRUE(names(Precision::bf16).empty());
}

TEST_F(Judge, EveryFp32TapHasATightLimit) {
  SyntheticRun honest = make_synthetic_run(Precision::fp32);
  for (const auto& [tap, unused] : honest.prompt("alpha").taps) {
    const bool summary = tap.find("gdn_state") != std::string::npos;
    const std::string planted = summary ? "state/layers.0.gdn_state" : tap;
    const PromptReport bad = alpha_after(
        Precision::fp32, [&](SyntheticRun& run) { run.perturb("alpha", planted, 2e-3); });
    EXPECT_EQ(bad.verdict, Verdict::fail) << tap;
    if (!summary) {
      EXPECT_EQ(bad.first_bad, tap);
      EXPECT_EQ(bad.worst_rel_tap, tap);
      EXPECT_NEAR(bad.worst_rel_l2, 2e-3, 1e-5) << tap;
    }
    const PromptReport good = alpha_after(
        Precision::fp32, [&](SyntheticRun& run) { run.perturb("alpha", planted, 2e-6); });
    EXPECT_EQ(good.verdict, Verdict::pass) << tap;
  }
}

TEST_F(Judge, Bf16LimitsAreMultiplesOfTheNoise) {
  for (const char* tap : {"layers.1.mlp", "decode/layers.0.out", "final_norm"}) {
    const auto verdict = [&](double relative) {
      return alpha_after(Precision::bf16,
                         [&](SyntheticRun& run) { run.perturb("alpha", tap, relative); })
          .verdict;
    };
    EXPECT_EQ(verdict(0.028), Verdict::pass) << tap;
    EXPECT_EQ(verdict(0.032), Verdict::fail) << tap;
  }
  // The embedding has no noise at all.
  EXPECT_EQ(
      alpha_after(Precision::bf16, [](SyntheticRun& run) { run.perturb("alpha", "embed", 1e-4); })
          .first_bad,
      "embed");
}

TEST_F(Judge, FirstBadIsTheEarliestInTheNetwork) {
  const PromptReport report = alpha_after(Precision::fp32, [](SyntheticRun& run) {
    run.perturb("alpha", "decode/final_norm", 0.1);
    run.perturb("alpha", "state/layers.1.k", 0.1);
    run.perturb("alpha", "final_norm", 0.1);
    run.perturb("alpha", "layers.1.mixer", 0.01);
    run.set_engine_margin("alpha", 0, 9, 50);
  });
  EXPECT_EQ(report.first_bad, "layers.1.mixer");
  EXPECT_EQ(report.reasons.size(), 5u);
}

TEST_F(Judge, MissingAndUnknownTapsAreErrors) {
  const PromptReport missing = alpha_after(Precision::fp32, [](SyntheticRun& run) {
    run.result("alpha").dump.taps.erase("layers.1.mlp");
  });
  EXPECT_EQ(missing.verdict, Verdict::error);
  EXPECT_EQ(missing.first_bad, "layers.1.mlp");
  const PromptReport unknown = alpha_after(Precision::fp32, [](SyntheticRun& run) {
    run.result("alpha").dump.taps["layers.2.out"] = testing::random_tensor({8, 32}, 4);
  });
  EXPECT_EQ(unknown.verdict, Verdict::error);
  EXPECT_EQ(unknown.first_bad, "layers.2.out");
}

TEST_F(Judge, AWrongShapeIsAFailure) {
  const PromptReport report = alpha_after(Precision::fp32, [](SyntheticRun& run) {
    run.result("alpha").dump.taps["final_norm"] = testing::random_tensor({7, 32}, 4);
  });
  EXPECT_EQ(report.verdict, Verdict::fail);
  EXPECT_EQ(report.reasons[0], "final_norm: shape [7, 32] instead of [8, 32]");
}

TEST_F(Judge, RanksThatDifferAreAFailure) {
  const PromptReport report = alpha_after(Precision::fp32, [](SyntheticRun& run) {
    run.result("alpha").dump.rank_differences = {"layers.1.out"};
  });
  EXPECT_EQ(report.verdict, Verdict::fail);
  EXPECT_EQ(report.first_bad, "layers.1.out");
  EXPECT_EQ(report.reasons[0], "layers.1.out: ranks differ at layers.1.out");
}

TEST_F(Judge, VacuousOracleDataIsMistrusted) {
  for (const float value : {0.0f, 0.5f}) {
    const PromptReport report = alpha_after(Precision::fp32, [&](SyntheticRun& run) {
      auto& oracle = run.prompt("alpha").taps.at("layers.0.mlp").values;
      std::fill(oracle.begin(), oracle.end(), value);
      run.result("alpha").dump.taps.at("layers.0.mlp").values = oracle;
    });
    EXPECT_EQ(report.verdict, Verdict::mistrusted);
    EXPECT_EQ(report.first_bad, "layers.0.mlp");
  }
  EXPECT_EQ(
      alpha_after(Precision::bf16,
                  [](SyntheticRun& run) { run.prompt("alpha").bf16_noise.erase("layers.0.mlp"); })
          .verdict,
      Verdict::mistrusted);
}

TEST_F(Judge, TooLittleDataIsMistrusted) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.oracle.prompts.erase(run.oracle.prompts.begin());
  run.results.erase(run.results.begin());
  EXPECT_EQ(judge(run, Precision::fp32).verdict, Verdict::mistrusted) << "13 positions";
  run.oracle.prompts.erase(run.oracle.prompts.begin());
  run.results.clear();
  EXPECT_EQ(judge(run, Precision::fp32).verdict, Verdict::mistrusted) << "only an image";
  run.oracle.prompts.clear();
  EXPECT_EQ(judge(run, Precision::fp32).verdict, Verdict::mistrusted) << "no prompt";
  // One full prompt is enough.
  run = make_synthetic_run(Precision::fp32);
  run.oracle.prompts.resize(1);
  run.results.resize(1);
  EXPECT_EQ(judge(run, Precision::fp32).verdict, Verdict::pass);
}

TEST_F(Judge, Fp32TokensAndLogits) {
  const auto after = [&](const std::function<void(SyntheticRun&, EngineResult&)>& plant) {
    return alpha_after(Precision::fp32,
                       [&](SyntheticRun& run) { plant(run, run.result("alpha")); });
  };
  const PromptReport token = after([](SyntheticRun& run, EngineResult&) {
    run.set_engine_margin("alpha", 40, (run.prompt("alpha").greedy[40] + 1) % 64, -1e-4);
  });
  EXPECT_EQ(token.verdict, Verdict::fail);
  EXPECT_EQ(token.first_bad, "greedy[40]");
  EXPECT_EQ(token.greedy.n_match, 95);
  EXPECT_EQ(token.greedy.n_judged, 41) << "later steps have another context";
  EXPECT_GT(token.greedy.max_margin_at_mismatch, 0);

  const PromptReport margin =
      after([](SyntheticRun&, EngineResult& engine) { engine.logits[7].values[1] += 2e-3; });
  EXPECT_EQ(margin.first_bad, "margin[7]");
  EXPECT_NEAR(margin.greedy.worst_margin_err, 2e-3, 1e-9);
  EXPECT_EQ(after([](SyntheticRun&, EngineResult& engine) {
              engine.logits[7].values[1] += 5e-4;
            }).verdict,
            Verdict::pass);

  const PromptReport logprob =
      after([](SyntheticRun&, EngineResult& engine) { engine.logits[9].log_sum_exp -= 2e-3; });
  EXPECT_EQ(logprob.first_bad, "logprob[9]");
  EXPECT_NEAR(logprob.greedy.worst_logprob_err, 2e-3, 1e-9);
}

TEST_F(Judge, NaNLogitsFail) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const PromptReport report = alpha_after(precision, [](SyntheticRun& run) {
      EngineResult& engine = run.result("alpha");
      for (double& value : engine.logits[3].values) value = std::nan("");
      engine.logits[3].log_sum_exp = std::nan("");
    });
    EXPECT_EQ(report.verdict, Verdict::fail);
    EXPECT_EQ(report.first_bad, "greedy[3]");
  }
}

TEST_F(Judge, ShortAndLongAnswersFail) {
  EXPECT_EQ(alpha_after(Precision::fp32,
                        [](SyntheticRun& run) {
                          run.result("alpha").ids.resize(90);
                          run.result("alpha").logits.resize(90);
                        })
                .first_bad,
            "greedy[90]");
  EXPECT_EQ(alpha_after(Precision::bf16,
                        [](SyntheticRun& run) {
                          run.result("alpha").ids.push_back(1);
                          run.result("alpha").logits.push_back(run.result("alpha").logits[0]);
                        })
                .first_bad,
            "greedy[96]");
}

TEST_F(Judge, TheTokenMustBeTheLargestOfItsOwnLogits) {
  const PromptReport report = alpha_after(Precision::fp32, [](SyntheticRun& run) {
    EngineResult& engine = run.result("alpha");
    std::swap(engine.logits[5].values[0], engine.logits[5].values[1]);
  });
  EXPECT_EQ(report.first_bad, "greedy[5]");
}

// The bound of the pair (oracle's token, `other`) at one step, from its formula.
double bound_at(const SyntheticRun& run, const std::filesystem::path& model, size_t step,
                int32_t other) {
  const OraclePrompt& prompt = run.oracle.prompts[0];
  const LogitGeometry geometry(model);
  double norm = 0;
  for (const char* tap : {"final_norm", "decode/final_norm"}) {
    const FloatTensor& rows = prompt.taps.at(tap);
    for (int64_t row = 0; row < rows.n_rows(); ++row) {
      double sum = 0;
      for (int64_t i = 0; i < testing::kHidden; ++i) {
        sum += std::pow(rows.values[static_cast<size_t>(row * testing::kHidden + i)], 2);
      }
      norm = std::max(norm, std::sqrt(sum));
    }
  }
  return tolerance::kBf16LogitSigmas *
         tolerance::bf16_logit_sigma(*geometry.row_distance(prompt.greedy[step], other), norm, 0.01,
                                     testing::kHidden);
}

TEST_F(Judge, Bf16MismatchNeedsASmallMargin) {
  const auto with_mismatch = [&](double share_of_bound) {
    return alpha_after(Precision::bf16, [&](SyntheticRun& run) {
      OraclePrompt& prompt = run.prompt("alpha");
      const double bound = bound_at(run, dir_.path(), 12, prompt.second[12]);
      prompt.margin[12] = share_of_bound * bound;
      run.set_engine_margin("alpha", 12, prompt.second[12], -1e-6);
    });
  };
  const PromptReport tie = with_mismatch(0.9);
  EXPECT_EQ(tie.verdict, Verdict::pass);
  EXPECT_EQ(tie.greedy.n_match, 95);
  EXPECT_EQ(tie.greedy.n_judged, 96) << "fed tokens keep every step comparable";
  EXPECT_GT(tie.greedy.max_margin_at_mismatch, 0);
  EXPECT_NEAR(tie.greedy.margin_rms, 4 * 0.9 / std::sqrt(96), 0.01);
  const PromptReport defect = with_mismatch(1.1);
  EXPECT_EQ(defect.verdict, Verdict::fail);
  EXPECT_EQ(defect.first_bad, "greedy[12]");
}

TEST_F(Judge, Bf16MarginsMayNotDrift) {
  // Every margin is off by a share of its own standard deviation; the tokens stay.
  const auto after = [&](double sigmas) {
    return alpha_after(Precision::bf16, [&](SyntheticRun& run) {
      const OraclePrompt& prompt = run.prompt("alpha");
      for (size_t i = 0; i < prompt.greedy.size(); ++i) {
        const double sigma =
            bound_at(run, dir_.path(), i, prompt.second[i]) / tolerance::kBf16LogitSigmas;
        run.set_engine_margin("alpha", i, prompt.second[i], prompt.margin[i] + sigmas * sigma);
      }
    });
  };
  const PromptReport honest = after(1.9);
  EXPECT_EQ(honest.first_bad, "");
  EXPECT_NEAR(honest.greedy.margin_rms, 1.9, 1e-9);
  const PromptReport drift = after(2.1);
  EXPECT_EQ(drift.verdict, Verdict::fail);
  EXPECT_EQ(drift.first_bad.substr(0, 7), "margin[");
}

TEST_F(Judge, Bf16MismatchWithoutLmHeadIsMistrusted) {
  const TempDir empty;
  SyntheticRun run = make_synthetic_run(Precision::bf16);
  EXPECT_EQ(judge_run(run.oracle, run.results, Precision::bf16, empty.path()).verdict,
            Verdict::pass);
  run.set_engine_margin("alpha", 12, run.prompt("alpha").second[12], -1e-6);
  EXPECT_EQ(judge_run(run.oracle, run.results, Precision::bf16, empty.path()).verdict,
            Verdict::mistrusted);
}

TEST(OracleJobs, AskForWhatTheOracleHolds) {
  const Oracle oracle = make_synthetic_run(Precision::fp32).oracle;
  const std::vector<EngineJob> jobs = oracle_jobs(oracle, Precision::fp32);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].taps, (std::vector<std::string>{
                              "decode/final_norm", "decode/layers.0.out", "decode/layers.1.out",
                              "embed", "final_norm", "layers.*", "state/layers.0.conv_state",
                              "state/layers.0.gdn_state", "state/layers.1.k", "state/layers.1.v"}));
  EXPECT_TRUE(jobs[0].force_ids.empty());
  const std::vector<EngineJob> forced = oracle_jobs(oracle, Precision::bf16);
  EXPECT_EQ(forced[0].taps.size(), 6u);
  EXPECT_EQ(forced[0].force_ids, oracle.prompts[0].greedy);
}

TEST(SummariseStates, SumsAndNorms) {
  TapMap taps;
  taps["state/layers.0.gdn_state"] = {{1, 2, 3}, {1, 2, 3, -4, 5, -6}};
  taps["state/layers.0.conv_state"] = {{1, 3}, {1, 2, 3}};
  const TapMap summary = summarise_states(taps);
  EXPECT_EQ(summary.size(), 4u);
  EXPECT_EQ(summary.at("state/layers.0.gdn_state_rowsum").values, (std::vector<float>{6, -5}));
  EXPECT_EQ(summary.at("state/layers.0.gdn_state_rowsum").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(summary.at("state/layers.0.gdn_state_colsum").values, (std::vector<float>{-3, 7, -3}));
  EXPECT_FLOAT_EQ(summary.at("state/layers.0.gdn_state_norm").values[0], std::sqrt(91.0f));
}

}  // namespace
}  // namespace lockstep

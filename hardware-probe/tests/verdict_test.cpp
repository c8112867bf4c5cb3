#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "hardware-probe/tests/probe_runs.h"

namespace lockstep::probe {
namespace {

Finding with(Status status) {
  Finding finding;
  finding.status = status;
  return finding;
}

TEST(Verdict, TheWorstFindingDecides) {
  EXPECT_EQ(verdict_of({with(Status::pass), with(Status::info)}), Verdict::accept);
  EXPECT_EQ(verdict_of({with(Status::pass), with(Status::warn)}), Verdict::accept_with_notes);
  EXPECT_EQ(verdict_of({with(Status::warn), with(Status::inconclusive)}), Verdict::inconclusive);
  EXPECT_EQ(verdict_of({with(Status::skip), with(Status::fail)}), Verdict::reject);
}

TEST(Verdict, ASkipIsNeverAPassAndNothingProvesNothing) {
  EXPECT_EQ(verdict_of({with(Status::pass), with(Status::skip)}), Verdict::inconclusive);
  EXPECT_EQ(verdict_of({}), Verdict::inconclusive);
}

TEST(Verdict, ExitCodesAreThoseOfTheContract) {
  EXPECT_EQ(verdict_exit_code(Verdict::accept), 0);
  EXPECT_EQ(verdict_exit_code(Verdict::reject), 1);
  EXPECT_EQ(verdict_exit_code(Verdict::inconclusive), 3);
  EXPECT_EQ(verdict_exit_code(Verdict::accept_with_notes), 5);
}

TEST(Verdict, EveryStepThatIsMissingFromARecordIsASkip) {
  const Observations full = observe_sim("V100-SXM2-32GB", Mode::quick);
  for (size_t i = 0; i < full.steps.size(); ++i) {
    Observations cut = full;
    const Step removed = cut.steps[i];
    cut.steps.erase(cut.steps.begin() + static_cast<std::ptrdiff_t>(i));
    // C25 is judged by the events of the whole run and still misses its own last look.
    EXPECT_EQ(judge(cut, card_database(), "").verdict, Verdict::inconclusive)
        << removed.check << " " << removed.target;
  }
}

TEST(Verdict, WhatAModeLeavesOutIsNoSkip) {
  const Judgement judgement = judge_sim("V100-SXM2-32GB", Mode::quick);
  for (const Finding& finding : judgement.findings) {
    EXPECT_NE(finding.check, "C13");
    EXPECT_NE(finding.check, "C17");
    EXPECT_NE(finding.status, Status::skip);
  }
}

TEST(Verdict, OneCardHasNoPairChecksAndIsAccepted) {
  const Judgement judgement = judge_sim("PG500-216*1", Mode::quick);
  EXPECT_EQ(judgement.verdict, Verdict::accept);
  for (const Finding& finding : judgement.findings) EXPECT_NE(finding.check, "C21");
}

TEST(Verdict, AnInterruptedRunIsInconclusive) {
  const auto backend = sim::open_sim(sim::machine_from_spec("V100-SXM2-32GB", card_database()));
  const auto executor = in_process_executor(*backend);
  CollectOptions options;
  options.nonce = "n";
  int asked = 0, saved = 0;
  options.interrupted = [&] { return ++asked > 12; };
  options.save = [&](const Observations&) { ++saved; };
  const Observations seen = collect(*executor, options);
  EXPECT_GT(saved, 12);
  EXPECT_EQ(judge(seen, card_database(), "").verdict, Verdict::inconclusive);
}

TEST(Verdict, ALostCardIsRejectedAndTheRestIsStillReported) {
  const Observations seen = observe_sim("V100-SXM2-32GB,lost-mid-run", Mode::quick);
  const Judgement judgement = judge(seen, card_database(), "");
  EXPECT_EQ(judgement.verdict, Verdict::reject);
  EXPECT_TRUE(seen.gpus[0].sm_proof.has_value());
  EXPECT_FALSE(seen.gpus[1].sm_proof.has_value());
}

// What only root can read is named, costs no verdict, and is judged where root reads it.
TEST(Verdict, WithoutRootTheReportSaysWhatRootWouldAdd) {
  sim::Machine machine =
      sim::machine_from_spec("V100-SXM2-32GB,acs-redirecting,xid-before", card_database());
  machine.host.root = false;
  const auto backend = sim::open_sim(machine);
  const auto executor = in_process_executor(*backend);
  const Observations seen = collect(*executor, CollectOptions{});
  EXPECT_FALSE(seen.host.kernel_log.has_value());
  const Judgement judgement = judge(seen, card_database(), "");
  EXPECT_EQ(judgement.verdict, Verdict::accept) << complaints(judgement);
  bool named = false;
  for (const Finding& finding : judgement.findings)
    named =
        named || (finding.check == "C01" &&
                  finding.reason.en == "PCIe ACS and the kernel log could not be read; root could");
  EXPECT_TRUE(named);
  EXPECT_EQ(judge_sim("V100-SXM2-32GB,acs-redirecting,xid-before", Mode::quick).verdict,
            Verdict::accept_with_notes);
}

TEST(Claim, AVariantIsANoteAndAnotherChipIsRejected) {
  EXPECT_EQ(judge_sim("V100-SXM2-32GB", Mode::quick, "V100-SXM2-32GB").verdict, Verdict::accept);
  EXPECT_EQ(judge_sim("PG503-216", Mode::quick, "V100-SXM2-32GB").verdict,
            Verdict::accept_with_notes);
  EXPECT_EQ(judge_sim("V100-SXM2-16GB", Mode::quick, "V100-SXM2-32GB").verdict, Verdict::reject);
  EXPECT_EQ(judge_sim("RTX-3090", Mode::quick, "RTX-4090").verdict, Verdict::reject);
}

TEST(Claim, AnUnknownCardIsJudgedByTheFormula) {
  Observations seen = observe_sim("V100-SXM2-32GB", Mode::quick);
  for (GpuObservations& gpu : seen.gpus) gpu.identity.pci_id = "10de:ffff";
  const Judgement judgement = judge(seen, card_database(), "");
  EXPECT_EQ(judgement.verdict, Verdict::accept) << complaints(judgement);
  EXPECT_EQ(judge(seen, card_database(), "V100-SXM2-32GB").verdict, Verdict::reject);
}

TEST(Sim, RefusesUnknownNamesAndFaultsThatDoNotApply) {
  for (const char* spec :
       {"", "V100", "V100-SXM2-32GB,", "V100-SXM2-32GB,no-such", "V100-SXM2-32GB*3", "A+B+C",
        "V100-SXM2-32GB*1,p2p-mirror", "PG500-216,nvlink-errors", "RTX-4090,ecc-off",
        "CMP-100-210,pcie-x1", "RTX-4090,p2p-drop"}) {
    try {
      sim::machine_from_spec(spec, card_database());
      FAIL() << spec;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << spec;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep::probe

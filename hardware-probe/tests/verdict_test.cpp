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

// Where a check has something to say against its target, its facts are no second, passed finding.
TEST(Verdict, NoFactPassesBesideAFailureOfItsCheck) {
  for (const sim::Fault& fault : sim::faults()) {
    const Card& card = card_database().get("V100-SXM2-32GB");
    if (!fault.obstacle(sim::build_machine({&card, &card})).empty()) continue;
    const Judgement judgement =
        judge_sim("V100-SXM2-32GB," + std::string(fault.name), Mode::deep, "PG503-216");
    for (const Finding& pass : judgement.findings) {
      if (pass.status != Status::pass || pass.threshold.has_value()) continue;
      for (const Finding& other : judgement.findings) {
        const bool same = other.check == pass.check && other.target == pass.target;
        EXPECT_TRUE(!same || other.status == Status::pass || other.status == Status::info)
            << fault.name << ": " << pass.reason.en << " beside " << other.reason.en;
      }
    }
  }
}

TEST(Verdict, WithoutAReadingUnderLoadNoClockIsClaimed) {
  Observations seen = observe_sim("V100-SXM2-32GB", Mode::standard);
  for (GpuObservations& gpu : seen.gpus) gpu.soak_solo->series.clear();
  const Judgement judgement = judge(seen, card_database(), "");
  EXPECT_EQ(judgement.verdict, Verdict::inconclusive);
  for (const Finding& finding : judgement.findings)
    EXPECT_EQ(finding.reason.en.find("nan"), std::string::npos) << finding.reason.en;
}

TEST(Verdict, NothingComputedAndNothingSummedIsNoPass) {
  Observations seen = observe_sim("V100-SXM2-32GB", Mode::quick);
  for (GpuObservations& gpu : seen.gpus) {
    gpu.identity.sm_count.reset();
    gpu.sm_proof->cold.clear();
    gpu.identity.max_memory_mhz = 0;
  }
  seen.collective->own = seen.collective->nccl = Rung{};
  for (const Finding& finding : judge(seen, card_database(), "").findings) {
    const bool proves_nothing =
        finding.check == "C15" || finding.check == "C23" || finding.check == "C10";
    EXPECT_FALSE(proves_nothing && finding.status == Status::pass) << finding.reason.en;
  }
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

// The mining card has the family and the memory size of the card that was sold.
TEST(Claim, ACutCardIsNoVariant) {
  EXPECT_EQ(judge_sim("CMP-100-210", Mode::quick, "V100-SXM2-16GB").verdict, Verdict::reject);
  EXPECT_EQ(judge_sim("H100-PCIE", Mode::quick, "H100-SXM5").verdict, Verdict::reject);
  EXPECT_EQ(judge_sim("PG500-216", Mode::quick, "Quadro-GV100").verdict,
            Verdict::accept_with_notes);
}

TEST(Claim, IsJudgedEvenWhereTheDriverTellsNoClock) {
  Observations seen = observe_sim("V100-SXM2-16GB", Mode::quick);
  for (GpuObservations& gpu : seen.gpus) gpu.identity.sm_count.reset();
  EXPECT_EQ(judge(seen, card_database(), "V100-SXM2-16GB").verdict, Verdict::inconclusive);
  EXPECT_EQ(judge(seen, card_database(), "V100-SXM2-32GB").verdict, Verdict::reject);
}

// "Agree on the price" is no advice for a card that was altered.
TEST(Claim, AnAlteredCardIsNoVariant) {
  const Judgement judgement = judge_sim("PG503-216,foreign-vbios", Mode::quick, "V100-SXM2-32GB");
  for (const Finding& finding : judgement.findings) {
    if (finding.reason.en.find("this is a PG503-216") == std::string::npos) continue;
    const bool altered = finding.target == "gpu1";
    EXPECT_EQ(finding.status, altered ? Status::fail : Status::warn) << finding.target;
  }
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

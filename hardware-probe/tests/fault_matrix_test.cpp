// Every planted fault is found by the check that promises it, in every mode that promises it, with
// the right verdict; no card of the database is blamed when it is healthy.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "hardware-probe/checks/check_table.h"
#include "hardware-probe/tests/probe_runs.h"

namespace lockstep::probe {
namespace {

constexpr Mode kModes[] = {Mode::quick, Mode::standard, Mode::deep};

// At least one card of every family and form.
const char* const kCards[] = {"V100-SXM2-16GB",
                              "V100-SXM2-32GB",
                              "V100-PCIE-32GB",
                              "V100S-PCIE-32GB",
                              "PG500-216",
                              "PG503-216",
                              "CMP-100-210",
                              "P100-SXM2",
                              "P40",
                              "T4",
                              "RTX-2080Ti-22G",
                              "A100-SXM4-80GB",
                              "RTX-3090",
                              "RTX-4090-48G",
                              "H100-PCIE",
                              "H200-SXM"};

constexpr Verdict kReject = Verdict::reject, kNotes = Verdict::accept_with_notes;
constexpr Verdict kUnclear = Verdict::inconclusive;

const std::map<std::string, Verdict> kExpected = {
    {"bad-sm", kReject},
    {"hot-sm", kReject},
    {"burst-sm", kReject},
    {"slow-sm", kNotes},
    {"unreached-sm", kUnclear},
    {"tensor-cut", kReject},
    {"dp4a-cut", kReject},
    {"fp32-slow", kReject},
    {"stuck-bit", kReject},
    {"stuck-low", kReject},
    {"hot-bit", kReject},
    {"fading-bit", kReject},
    {"fake-memory", kReject},
    {"hbm-slow-chunk", kReject},
    {"slow-memory", kReject},
    {"memory-occupied", kUnclear},
    {"memory-hang", kUnclear},
    {"ecc-counting", kNotes},
    {"retired-pages", kReject},
    {"retired-few", kNotes},
    {"retired-burst", kReject},
    {"dbe-page", kReject},
    {"retired-pending", kUnclear},
    {"ecc-wiped", kNotes},
    {"xid-before", kNotes},
    {"remap-failure", kReject},
    {"uncorrectable", kReject},
    {"wrong-clock", kReject},
    {"remarked", kReject},
    {"foreign-vbios", kReject},
    {"broken-inforom", kReject},
    {"ecc-off", kNotes},
    {"power-limited", kNotes},
    {"other-process", kUnclear},
    {"small-bar1", kNotes},
    {"throttle", kReject},
    {"throttle-second", kNotes},
    {"power-brake", kReject},
    {"hot-memory", kReject},
    {"hot-idle", kNotes},
    {"pcie-x1", kReject},
    {"pcie-narrow", kNotes},
    {"pcie-slow", kReject},
    {"pcie-corrupt", kReject},
    {"pcie-replays", kReject},
    {"aer-correctable", kReject},
    {"aer-uncorrectable", kReject},
    {"nvlink-errors", kReject},
    {"nvlink-recovery", kReject},
    {"nvlink-missing", kReject},
    {"p2p-mirror", kReject},
    {"p2p-drop", kReject},
    {"p2p-store-drop", kReject},
    {"p2p-hang", kReject},
    {"p2p-slow", kReject},
    {"p2p-staged", kNotes},
    {"p2p-narrow", kReject},
    {"p2p-denied", kNotes},
    {"sums-wrong", kReject},
    {"iommu-translated", kNotes},
    {"acs-redirecting", kNotes},
    {"invisible", kReject},
    {"driver-too-new", kReject},
    {"driver-old", kNotes},
    {"nccl-no-arch", kReject},
    {"nccl-shadowed", kNotes},
    {"torch-no-arch", kNotes},
    {"nvml-absent", kUnclear},
    {"driver-absent", kUnclear},
    {"lost-mid-run", kReject},
    {"xid", kReject},
    {"xid-logged", kReject},
};

// Where the card's kind turns the usual verdict into a milder one.
bool is_milder_by_kind(const std::string& fault, const Card& card) {
  const bool bridge = card.form.compare(0, 3, "SXM") != 0;
  const bool over_pcie = card.nvlinks == 0;
  const bool clock_unverified = std::find(card.unverified.begin(), card.unverified.end(),
                                          "memory_mhz") != card.unverified.end();
  return (fault == "wrong-clock" && clock_unverified) || (fault == "nvlink-missing" && bridge) ||
         (fault == "p2p-narrow" && over_pcie);
}

TEST(FaultMatrix, TheTableOfVerdictsNamesEveryFault) {
  std::set<std::string> names;
  for (const sim::Fault& fault : sim::faults()) names.insert(fault.name);
  EXPECT_GE(names.size(), 30u);
  for (const auto& [name, verdict] : kExpected) EXPECT_TRUE(names.count(name)) << name;
  EXPECT_EQ(names.size(), kExpected.size());
}

TEST(FaultMatrix, EveryCheckHasAFault) {
  std::set<std::string> covered;
  for (const sim::Fault& fault : sim::faults()) covered.insert(fault.check);
  for (const CheckEntry& entry : check_table()) EXPECT_TRUE(covered.count(entry.id)) << entry.id;
  EXPECT_EQ(check_table().size(), 25u);
}

TEST(FaultMatrix, EveryFaultIsFoundByItsCheckInEveryModeThatPromisesIt) {
  std::map<std::string, int> cards_of_fault;
  for (const sim::Fault& fault : sim::faults()) {
    for (const char* name : kCards) {
      const Card& card = card_database().get(name);
      if (!fault.obstacle(sim::build_machine({&card, &card})).empty()) continue;
      ++cards_of_fault[fault.name];
      for (const Mode mode : kModes) {
        // Longer modes repeat what the shorter ones do: three cards of each fault suffice for them.
        const bool repeated = mode > fault.first_mode && cards_of_fault[fault.name] > 3;
        if (mode < fault.first_mode || repeated) continue;
        const Judgement judgement = judge_sim(std::string(name) + "," + fault.name, mode);
        const std::string where = std::string(name) + "," + fault.name + " " + mode_name(mode);
        EXPECT_TRUE(complains(judgement, fault.check)) << where << "\n" << complaints(judgement);
        const Verdict expected = is_milder_by_kind(fault.name, card) ? Verdict::accept_with_notes
                                                                     : kExpected.at(fault.name);
        EXPECT_EQ(verdict_name(judgement.verdict), std::string(verdict_name(expected)))
            << where << "\n"
            << complaints(judgement);
      }
    }
  }
  for (const sim::Fault& fault : sim::faults())
    EXPECT_GE(cards_of_fault[fault.name], 3) << fault.name;
}

TEST(FaultMatrix, QuickModeFindsWhatItPromises) {
  for (const char* fault :
       {"bad-sm", "stuck-bit", "p2p-mirror", "p2p-slow", "pcie-x1", "throttle"}) {
    EXPECT_EQ(judge_sim(std::string("V100-SXM2-32GB,") + fault, Mode::quick).verdict,
              Verdict::reject)
        << fault;
  }
}

TEST(FaultMatrix, FaultsActOnTheSecondCardAlone) {
  const Judgement judgement = judge_sim("PG500-216,bad-sm", Mode::quick);
  for (const Finding& finding : judgement.findings) {
    if (finding.target != "gpu0") continue;
    EXPECT_NE(finding.status, Status::fail) << finding.reason.en;
  }
}

TEST(FaultMatrix, NoHealthyCardIsBlamed) {
  for (const Card& card : card_database().cards()) {
    for (const Mode mode : kModes) {
      for (const char* count : {"", "*1"}) {
        const Judgement judgement = judge_sim(card.name + count, mode);
        EXPECT_EQ(judgement.verdict, Verdict::accept)
            << card.name << count << " " << mode_name(mode) << "\n"
            << complaints(judgement);
      }
    }
  }
}

TEST(FaultMatrix, NoHealthyMixedPairIsBlamed) {
  for (const char* spec :
       {"PG500-216+V100-SXM2-32GB", "V100-SXM2-32GB+PG503-216", "RTX-4090-48G+V100-PCIE-32GB"}) {
    const Judgement judgement = judge_sim(spec, Mode::standard);
    EXPECT_EQ(judgement.verdict, Verdict::accept) << spec << "\n" << complaints(judgement);
  }
}

TEST(Article, TheOldPairIsSoundButItsDirectLinkIsBroken) {
  const Judgement judgement = judge_sim("PG500-216,p2p-slow", Mode::standard);
  EXPECT_EQ(judgement.verdict, Verdict::reject);
  bool names_remedy = false;
  for (const Finding& finding : judgement.findings) {
    if (finding.status != Status::fail) continue;
    EXPECT_EQ(finding.check, "C22") << finding.reason.en;
    names_remedy =
        names_remedy || finding.remedy.en.find("NCCL_P2P_DISABLE=1") != std::string::npos;
  }
  EXPECT_TRUE(names_remedy);
}

TEST(Article, TheHotSecondCardIsAMatterOfAirFlowNotOfTheCard) {
  const Observations seen = observe_sim("V100-SXM2-32GB,throttle-second", Mode::standard);
  const Judgement judgement = judge(seen, card_database(), "");
  EXPECT_EQ(judgement.verdict, Verdict::accept_with_notes);
  const MachineSummary machine = summarize(seen, card_database(), judgement.findings);
  // Section 23: 55 C alone; 81 to 84 C and 1000 to 1270 MHz together, the first card above 1400
  // MHz.
  EXPECT_LE(machine.cards[1].solo_c, 56);
  EXPECT_GE(machine.cards[1].together_c, 81);
  EXPECT_LE(machine.cards[1].together_c, 84);
  EXPECT_GE(machine.cards[1].together_mhz, 1000);
  EXPECT_LE(machine.cards[1].together_mhz, 1270);
  EXPECT_GT(machine.cards[0].together_mhz, 1400);
}

TEST(Article, MemoryClockRanksFirstThenComputeAndCoolingThenNvlink) {
  const Observations old_pair = observe_sim("PG500-216,p2p-slow", Mode::standard);
  const Observations new_pair = observe_sim("V100-SXM2-32GB,throttle-second", Mode::standard);
  const MachineSummary older = summary_of(old_pair);
  const MachineSummary newer = summary_of(new_pair);
  // Section 19: 1058 against 878 GB/s, 20.5 %; compute of the new machine 23 % higher.
  EXPECT_NEAR(older.cards[0].read_gbps / newer.cards[0].read_gbps, 1.205, 0.006);
  EXPECT_NEAR(
      newer.cards[0].sm * newer.cards[0].sm_mhz / (older.cards[0].sm * older.cards[0].sm_mhz), 1.23,
      0.005);
  EXPECT_NEAR(newer.peer_gbps, 145, 1);
  EXPECT_NE(older.link_doubts.en.find("C22 failed"), std::string::npos) << older.link_doubts.en;
  EXPECT_EQ(newer.link_doubts.en, "");
  const std::vector<Text> lines = rank_difference(older, newer);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].en.find("Memory clock 1107 against 877"), std::string::npos) << lines[0].en;
  EXPECT_NE(lines[0].en.find("+20."), std::string::npos) << lines[0].en;
  EXPECT_NE(lines[1].en.find("Compute"), std::string::npos);
  EXPECT_NE(lines[2].en.find("Link"), std::string::npos);
}

TEST(Article, The4090HasMoreComputeAndLessBandwidthThanTheOldV100) {
  const Observations seen = observe_sim("RTX-4090-48G*1", Mode::standard);
  EXPECT_EQ(judge(seen, card_database(), "").verdict, Verdict::accept);
  EXPECT_NEAR(summary_of(seen).cards[0].read_gbps, 918, 5);
}

}  // namespace
}  // namespace lockstep::probe

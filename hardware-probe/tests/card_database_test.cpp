#include "hardware-probe/cards/card_database.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "hardware-probe/cards/embedded_cards.h"

namespace lockstep::probe {
namespace {

// A copy of the built-in Volta file with `from` replaced once by `to`.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = embedded_cards().front().text;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(CardDatabase, HoldsTheCardsThatTheArticleMeasured) {
  const Card& old_card = card_database().get("PG500-216");
  EXPECT_EQ(old_card.sm, 72);
  EXPECT_EQ(old_card.max_sm_mhz, 1380);
  EXPECT_EQ(old_card.memory_mhz, 1107);
  EXPECT_EQ(old_card.pci_ids.front(), "10de:1df0");
  const Card& new_card = card_database().get("V100-SXM2-32GB");
  EXPECT_EQ(new_card.sm, 80);
  EXPECT_EQ(new_card.memory_mhz, 877);
  EXPECT_EQ(new_card.nvlinks, 6);
}

TEST(CardDatabase, BandwidthComesFromTheFormula) {
  EXPECT_NEAR(card_database().get("V100-PCIE-32GB").theory_gbps(), 898, 1);
  EXPECT_NEAR(card_database().get("PG503-216").theory_gbps(), 1134, 1);
  EXPECT_NEAR(card_database().get("TITAN-V").theory_gbps(), 653, 1);
  EXPECT_NEAR(card_database().get("H200-SXM").theory_gbps(), 4814, 1);
  EXPECT_NEAR(card_database().get("RTX-4090").theory_gbps(), 1008, 1);
}

TEST(CardDatabase, EveryRowHasSourcesAndBars) {
  EXPECT_GE(card_database().cards().size(), 30u);
  for (const Card& card : card_database().cards()) {
    EXPECT_FALSE(card.sources.empty()) << card.name;
    EXPECT_LT(card.bars.read_fail, card.bars.read_pass) << card.name;
    if (card.measured_read_gbps > 0) {
      EXPECT_GE(card.measured_read_gbps / card.theory_gbps(), card.bars.read_pass) << card.name;
    }
    if (card.measured_copy_gbps > 0) {
      EXPECT_GE(card.measured_copy_gbps / card.theory_gbps(), card.bars.copy_pass) << card.name;
    }
    if (card.measured_p2p_gbps > 0) {
      EXPECT_GT(card.nvlinks, 0) << card.name;
      EXPECT_LE(card.measured_p2p_gbps, card.nvlinks * card.nvlink_gbps) << card.name;
    }
  }
}

TEST(CardDatabase, MatchesByIdAndMemorySize) {
  EXPECT_EQ(card_database().match("10de:2684", 24564)->name, "RTX-4090");
  EXPECT_EQ(card_database().match("10de:2684", 49140)->name, "RTX-4090-48G");
  EXPECT_EQ(card_database().match("10de:1db5", std::nullopt)->name, "V100-SXM2-32GB");
  EXPECT_EQ(card_database().match("10de:0000", std::nullopt), nullptr);
}

TEST(CardDatabase, RefusesBrokenFilesInOneLineThatNamesFileCardAndField) {
  const std::pair<std::string, std::string> edits[] = {
      {"\"format\": \"lockstep-card-database\"", "\"format\": \"other\""},
      {"\"version\": 1", "\"version\": 2"},
      {"\"memory_mhz\": 877,", ""},
      {"\"sm\": 80", "\"sm\": \"eighty\""},
      {"\"sm\": 80", "\"sm\": 0"},
      {"\"sources\": [\"smi-1db1\", \"dcgm\"]", "\"sources\": [\"nowhere\"]"},
      {"\"sources\": [\"smi-1db1\", \"dcgm\"]", "\"sources\": []"},
      {"\"family\": \"volta\"", "\"family\": \"vega\""},
      {"\"read_pass\": 0.94", "\"read_pass\": 0.5"},
      {"\"unverified\": []", "\"unverified\": [\"smm\"]"},
      {"V100-SXM2-16GB-B\"", "V100-SXM2-16GB\""},
      {"{", "["},
  };
  for (const auto& [from, to] : edits) {
    CardDatabase database;
    try {
      database.add_file(edited(from, to), "cards.json");
      FAIL() << to;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find("cards.json: "), 0u) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace lockstep::probe

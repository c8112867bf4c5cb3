#include "engine/device/cards.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/device/device.h"

namespace lockstep {
namespace {

const std::vector<Card> kTwo = {{0, "GPU-3f1c9a52-0d11-4c2e-9a9e-6f2b1a7c5d01", "0000:3b:00.0"},
                                {1, "GPU-3f1c77aa-5e0b-4b7d-8d55-0c4f9e2b6a02", "0000:af:00.0"}};

struct Refused {
  int code = 0;
  std::string text;
};

Refused refusal(const std::string& list, int n_ranks, bool may_share,
                const std::vector<Card>& cards = kTwo) {
  try {
    choose_cards(list, n_ranks, may_share, cards);
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
  return {};
}

using Indices = std::vector<int>;

TEST(Cards, AreNamedByIndexUuidOrPciId) {
  EXPECT_EQ(choose_cards("1,0", 2, false, kTwo), Indices({1, 0}));
  EXPECT_EQ(choose_cards("GPU-3f1c77aa-5e0b-4b7d-8d55-0c4f9e2b6a02,0", 2, false, kTwo),
            Indices({1, 0}));
  EXPECT_EQ(choose_cards("3F1C7", 1, false, kTwo), Indices({1}));
  EXPECT_EQ(choose_cards("0000:AF:00.0,3b:00.0", 2, false, kTwo), Indices({1, 0}));
}

TEST(Cards, WithoutAListTheFirstOnesAreTaken) {
  EXPECT_EQ(choose_cards("", 2, false, kTwo), Indices({0, 1}));
  EXPECT_EQ(choose_cards("", 1, false, kTwo), Indices({0}));
  const Refused one = refusal("", 2, false, {kTwo[0]});
  EXPECT_EQ(one.code, static_cast<int>(ExitCode::device_error));
  EXPECT_NE(one.text.find("2 ranks need 2 cards"), std::string::npos) << one.text;
  EXPECT_NE(one.text.find("here is card 0 (GPU-3f1c9a52"), std::string::npos) << one.text;
  EXPECT_NE(one.text.find("--share-device"), std::string::npos) << one.text;
}

TEST(Cards, OneCardForBothRanksMustBeAskedFor) {
  for (const char* list : {"1,1", "1,GPU-3f1c77aa", "1,af:00.0"}) {
    const Refused both = refusal(list, 2, false);
    EXPECT_EQ(both.code, static_cast<int>(ExitCode::usage)) << list;
    EXPECT_NE(both.text.find("add --share-device"), std::string::npos) << both.text;
    EXPECT_EQ(choose_cards(list, 2, true, kTwo), Indices({1, 1})) << list;
  }
  EXPECT_EQ(choose_cards("1", 2, true, kTwo), Indices({1, 1}));
  EXPECT_EQ(choose_cards("", 2, true, {kTwo[0]}), Indices({0, 0}));
}

TEST(Cards, ErrorsSayWhatIsHere) {
  const Refused absent = refusal("0,2", 2, false);
  EXPECT_EQ(absent.code, static_cast<int>(ExitCode::device_error));
  EXPECT_NE(absent.text.find("no card '2'"), std::string::npos) << absent.text;
  EXPECT_NE(absent.text.find("1 (GPU-3f1c77aa-5e0b-4b7d-8d55-0c4f9e2b6a02, 0000:af:00.0)"),
            std::string::npos)
      << absent.text;
  EXPECT_NE(refusal("0", 1, false, {}).text.find("the driver shows no card"), std::string::npos);
  EXPECT_NE(refusal("3f1c,0", 2, false).text.find("'3f1c' fits 2 cards"), std::string::npos);
  EXPECT_NE(refusal("0", 2, false).text.find("1 names for 2 ranks"), std::string::npos);
  EXPECT_NE(refusal("0,1,0", 2, true).text.find("3 names for 2 ranks"), std::string::npos);
  for (const char* list : {",", "0,", ",1", "0,,1"}) {
    EXPECT_NE(refusal(list, 2, false).text.find("empty name"), std::string::npos) << list;
  }
}

TEST(Cards, OfThisMachineHaveAllThreeNames) {
  const std::vector<Card> cards = cuda_cards();
  ASSERT_EQ(static_cast<int>(cards.size()), n_cuda_devices());
  for (const Card& card : cards) {
    EXPECT_EQ(choose_cards(card.uuid, 1, false, cards), Indices({card.index})) << card.uuid;
    EXPECT_EQ(choose_cards(card.pci_id, 1, false, cards), Indices({card.index})) << card.pci_id;
  }
}

}  // namespace
}  // namespace lockstep

#include "engine/ops/verify/cuda/verify_cuda.h"

#include "engine/base/philox.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/verify/verify.h"

namespace lockstep {
namespace {

using namespace op_test;

class VerifyCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

struct Round {
  std::vector<VerifySpan> spans;
  std::vector<int32_t> fed;
  std::vector<SampleResult> results;
  std::vector<int32_t> forced;
  std::vector<RopePosition> positions;
  std::vector<int32_t> first_positions;

  int32_t chosen(size_t c) const { return forced[c] >= 0 ? forced[c] : results[c].token; }
};

// Spans of 1 to 6 columns; three drafts of four are right, some tokens are forced, few are absent.
Round random_round(int n_spans, uint64_t seed) {
  PhiloxStream random(seed);
  Round round;
  for (int s = 0; s < n_spans; ++s) {
    const auto n = static_cast<int32_t>(1 + random.next_below(6));
    round.spans.push_back({static_cast<int32_t>(round.fed.size()), n});
    const auto first = static_cast<int32_t>(random.next_below(100000));
    round.first_positions.push_back(first);
    for (int32_t c = 0; c < n; ++c) {
      SampleResult result;
      result.token = random.next_below(9) == 0 ? -1 : static_cast<int32_t>(random.next_below(50));
      const bool forced = random.next_below(5) == 0;
      round.forced.push_back(forced ? static_cast<int32_t>(random.next_below(50)) : -1);
      const bool right = c > 0 && random.next_below(4) != 0;
      const int32_t before = c > 0 ? round.chosen(round.fed.size() - 1) : 0;
      round.fed.push_back(right ? before : static_cast<int32_t>(random.next_below(50)));
      round.results.push_back(result);
      round.positions.push_back({first + c + 7, first + c + 9, first + c + 11});
    }
  }
  return round;
}

TEST_F(VerifyCuda, KeepsWhatTheOpKeeps) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int n_spans = 1 + static_cast<int>(seed % kVerifySpans);
    const Round round = random_round(n_spans, seed);
    const auto n_columns = static_cast<int64_t>(round.fed.size());
    const GuardedBytes fed(round.fed);
    const GuardedBytes results(round.results);
    const GuardedBytes forced(round.forced);
    const GuardedBytes positions(round.positions);
    const GuardedBytes firsts(round.first_positions);
    const GuardedBytes ids(n_columns * 4);
    const GuardedBytes n_taken(n_spans * 4);
    const GuardedBytes last_positions(n_spans * 12);
    const GuardedBytes last_firsts(n_spans * 4);
    VerifyCudaArgs args;
    std::copy(round.spans.begin(), round.spans.end(), args.spans);
    args.n_spans = n_spans;
    args.fed = fed.as<int32_t>();
    args.positions = positions.as<RopePosition>();
    args.first_positions = firsts.as<int32_t>();
    args.results = results.as<SampleResult>();
    args.forced = forced.as<int32_t>();
    args.ids = ids.as<int32_t>();
    args.n_taken = n_taken.as<int32_t>();
    args.last = {nullptr, last_positions.as<RopePosition>(), last_firsts.as<int32_t>()};
    verify_cuda(args, card_stream());
    EXPECT_TRUE(ids.walls_intact() && n_taken.walls_intact() && last_positions.walls_intact() &&
                last_firsts.walls_intact());
    for (size_t s = 0; s < round.spans.size(); ++s) {
      const auto first = static_cast<size_t>(round.spans[s].first_column);
      std::vector<int32_t> chosen;
      for (int32_t c = 0; c < round.spans[s].n_columns; ++c) {
        chosen.push_back(round.chosen(first + static_cast<size_t>(c)));
      }
      const int32_t want = verify(&round.fed[first], chosen.data(), round.spans[s].n_columns);
      ASSERT_EQ(n_taken.values<int32_t>()[s], want) << "seed " << seed << ", span " << s;
      const size_t last = first + static_cast<size_t>(want) - 1;
      EXPECT_EQ(last_firsts.values<int32_t>()[s], round.first_positions[s] + want - 1);
      EXPECT_EQ(last_positions.values<RopePosition>()[s], round.positions[last]);
      for (size_t c = 0; c < chosen.size(); ++c) {
        const int32_t id = c < static_cast<size_t>(want) ? std::max(chosen[c], 0) : 0;
        EXPECT_EQ(ids.values<int32_t>()[first + c], id) << "seed " << seed << ", column " << c;
      }
    }
  }
}

TEST_F(VerifyCuda, TakesTheRowOfTheLastColumnThatStays) {
  for (const int64_t width : {8, 1024, 1032, 5120}) {
    const std::vector<VerifySpan> spans = {{0, 4}, {4, 1}, {5, 6}};
    const std::vector<int32_t> taken = {3, 1, 6};
    std::vector<uint16_t> rows(static_cast<size_t>(11 * width));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i * 40503u >> 4);
    const GuardedBytes n_taken(taken);
    const GuardedBytes in(rows);
    const GuardedBytes out(3 * width * 2);
    TakeRowsCudaArgs args;
    std::copy(spans.begin(), spans.end(), args.spans);
    args.n_spans = 3;
    args.n_taken = n_taken.as<int32_t>();
    args.rows = in.as<uint16_t>();
    args.out = out.as<uint16_t>();
    args.width = width;
    take_rows_cuda(args, card_stream());
    EXPECT_TRUE(out.walls_intact());
    std::vector<uint16_t> want;
    for (size_t s = 0; s < spans.size(); ++s) {
      const auto row = rows.begin() + (spans[s].first_column + taken[s] - 1) * width;
      want.insert(want.end(), row, row + width);
    }
    EXPECT_EQ(out.values<uint16_t>(), want) << width;
  }
}

TEST_F(VerifyCuda, OffersTheBestRowByItsToken) {
  const std::vector<int32_t> best = {2, -1, 0};
  const std::vector<float> logits = {1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0};
  const std::vector<int32_t> row_ids = {100, 200, 300};
  const GuardedBytes best_at(best);
  const GuardedBytes logits_at(logits);
  const GuardedBytes row_ids_at(row_ids);
  const GuardedBytes offers(3 * 8);
  offer_drafts_cuda({3, best_at.as<int32_t>(), logits_at.as<float>(), 4, row_ids_at.as<int32_t>(),
                     offers.as<DraftOffer>()},
                    card_stream());
  EXPECT_TRUE(offers.walls_intact());
  const std::vector<DraftOffer> got = offers.values<DraftOffer>();
  EXPECT_EQ(got[0].id, 300);
  EXPECT_EQ(got[0].logit, 3.0f);
  EXPECT_EQ(got[1].id, -1);
  EXPECT_EQ(got[2].id, 100);
  EXPECT_EQ(got[2].logit, 7.0f);
}

// The larger logit wins whichever rank has it, rank 0 a tie, and a rank without a row never.
TEST_F(VerifyCuda, DraftsMoveOnByOneUpToTheLastPosition) {
  const std::vector<DraftOffer> offers = {{1, 10}, {5, 11}, {2, 12}, {0, -1}, {0, -1},
                                          {3, 20}, {4, 21}, {2, 22}, {9, 23}, {0, -1}};
  const std::vector<int32_t> want = {20, 11, 12, 23, 0};
  const std::vector<RopePosition> positions(5, RopePosition{40, 50, 60});
  const std::vector<int32_t> firsts = {7, 7, 7, 7, 7};
  const std::vector<int32_t> last = {7, 8, 9, 100, 6};
  const GuardedBytes offers_at(offers);
  const GuardedBytes positions_at(positions);
  const GuardedBytes firsts_at(firsts);
  const GuardedBytes last_at(last);
  const GuardedBytes drafts(5 * 4);
  const GuardedBytes ids(5 * 4);
  next_draft_cuda({5,
                   2,
                   offers_at.as<DraftOffer>(),
                   last_at.as<int32_t>(),
                   drafts.as<int32_t>(),
                   {ids.as<int32_t>(), positions_at.as<RopePosition>(), firsts_at.as<int32_t>()}},
                  card_stream());
  EXPECT_TRUE(drafts.walls_intact() && ids.walls_intact() && positions_at.walls_intact() &&
              firsts_at.walls_intact());
  EXPECT_EQ(drafts.values<int32_t>(), want);
  EXPECT_EQ(ids.values<int32_t>(), want);
  EXPECT_EQ(firsts_at.values<int32_t>(), (std::vector<int32_t>{7, 8, 8, 8, 7}));
  for (size_t s = 0; s < 5; ++s) {
    const int32_t moved = s == 0 || s == 4 ? 0 : 1;
    EXPECT_EQ(positions_at.values<RopePosition>()[s],
              (RopePosition{40 + moved, 50 + moved, 60 + moved}));
  }
}

}  // namespace
}  // namespace lockstep

// Numbers are taken in order, whatever order they come in; a slow reader's ticket refuses.
#include "engine/rank/http/arrivals.h"

#include <gtest/gtest.h>

#include "engine/base/philox.h"

namespace lockstep {
namespace {

Arrival arrival(uint64_t sequence) {
  return {sequence, Request{}, std::make_shared<Ticket>(sequence)};
}

std::vector<uint64_t> numbers(const std::vector<Arrival>& due) {
  std::vector<uint64_t> result;
  for (const Arrival& one : due) result.push_back(one.sequence);
  return result;
}

TEST(Arrivals, WaitForEveryLowerNumber) {
  Arrivals arrivals;
  EXPECT_EQ(arrivals.add(arrival(2)), Arrivals::Outcome::taken);
  EXPECT_TRUE(arrivals.take_due().empty());
  arrivals.add(arrival(4));
  arrivals.add(arrival(1));
  EXPECT_EQ(numbers(arrivals.take_due()), (std::vector<uint64_t>{1, 2}));
  arrivals.add({3, std::nullopt, nullptr});
  const auto due = arrivals.take_due();
  EXPECT_EQ(numbers(due), (std::vector<uint64_t>{3, 4}));
  EXPECT_FALSE(due[0].request.has_value());
}

TEST(Arrivals, ANumberCountsOnce) {
  Arrivals arrivals;
  arrivals.add(arrival(1));
  EXPECT_EQ(arrivals.add(arrival(1)), Arrivals::Outcome::duplicate);
  arrivals.take_due();
  EXPECT_EQ(arrivals.add(arrival(1)), Arrivals::Outcome::duplicate);
  EXPECT_EQ(arrivals.add(arrival(2 + Arrivals::kMaxAhead)), Arrivals::Outcome::too_far);
  EXPECT_EQ(arrivals.unused_number(), 2u);
}

TEST(Arrivals, ACancelMayComeBeforeItsRequest) {
  Arrivals arrivals;
  EXPECT_TRUE(arrivals.cancel(2));
  arrivals.add(arrival(2));
  arrivals.add(arrival(1));
  const auto due = arrivals.take_due();
  EXPECT_FALSE(due[0].cancelled);
  EXPECT_TRUE(due[1].cancelled);
  EXPECT_FALSE(arrivals.cancel(2));
}

TEST(Arrivals, AnyOrderGivesTheSame) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    PhiloxStream random(seed, 3);
    std::vector<uint64_t> order;
    for (uint64_t i = 1; i <= 30; ++i) order.push_back(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next_below(i)]);
    Arrivals arrivals;
    std::vector<uint64_t> taken;
    for (const uint64_t number : order) {
      arrivals.add(arrival(number));
      for (const uint64_t due : numbers(arrivals.take_due())) taken.push_back(due);
    }
    ASSERT_EQ(taken.size(), order.size());
    for (uint64_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], i + 1);
  }
}

TEST(Ticket, GivesRoundsInOrderThenTheOutcome) {
  Ticket ticket(1);
  RoundOutput output;
  Outcome outcome;
  EXPECT_EQ(ticket.take(output, outcome, std::chrono::milliseconds(1)), Ticket::State::waiting);
  ticket.put({{1}, {}, 0});
  ticket.put({{2, 3}, {}, 0});
  ticket.finish({FinishReason::stop});
  EXPECT_EQ(ticket.take(output, outcome, {}), Ticket::State::output);
  EXPECT_EQ(output.ids, std::vector<int32_t>{1});
  EXPECT_EQ(ticket.take(output, outcome, {}), Ticket::State::output);
  EXPECT_EQ(output.ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(ticket.take(output, outcome, {}), Ticket::State::finished);
  EXPECT_EQ(outcome.reason, FinishReason::stop);
}

TEST(Ticket, RefusesWhenTheReaderFallsBehind) {
  Ticket ticket(1);
  for (size_t i = 0; i < Ticket::kMaxRounds; ++i) ASSERT_TRUE(ticket.put({{1}, {}, 0}));
  EXPECT_FALSE(ticket.put({{1}, {}, 0}));
  RoundOutput output;
  Outcome outcome;
  ASSERT_EQ(ticket.take(output, outcome, {}), Ticket::State::output);
  EXPECT_FALSE(ticket.put({{1}, {}, 0})) << "a gap must never be closed again";
  ticket.finish({FinishReason::cancelled});
  while (ticket.take(output, outcome, {}) == Ticket::State::output) {
  }
  EXPECT_TRUE(outcome.too_slow);
}

}  // namespace
}  // namespace lockstep

// Ranks start together only when nothing that matters differs.
#include "engine/rank/handshake.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "engine/base/error.h"
#include "engine/comm/mailbox.h"

namespace lockstep {
namespace {

struct Outcome {
  AgreedFacts agreed;
  std::string error;
  ExitCode code = ExitCode::pass;
};

std::vector<Outcome> shake(const RankFacts& first, const RankFacts& second) {
  const int mailbox = create_mailbox_file();
  const std::string path = "/proc/self/fd/" + std::to_string(mailbox);
  std::vector<Outcome> outcomes(2);
  const auto run = [&](int rank) {
    const auto comm = join_mailbox(path, rank, {});
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    try {
      outcome.agreed = agree_on_facts(rank == 0 ? first : second, *comm);
    } catch (const Error& error) {
      outcome.error = error.what();
      outcome.code = error.code();
    }
  };
  std::thread peer(run, 1);
  run(0);
  peer.join();
  ::close(mailbox);
  return outcomes;
}

RankFacts facts() {
  return {{{"build", "b1"}, {"precision", "bf16"}, {"slots", "2"}}, 1000, "shard-a"};
}

TEST(Handshake, TakesTheSmallerContextAndKnowsBothShards) {
  RankFacts other = facts();
  other.max_context = 900;
  other.shard_digest = "shard-b";
  for (const Outcome& outcome : shake(facts(), other)) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.agreed.max_context, 900);
    EXPECT_EQ(outcome.agreed.shard_digests, (std::vector<std::string>{"shard-a", "shard-b"}));
  }
}

TEST(Handshake, NamesTheFactThatDiffers) {
  for (size_t i = 0; i < facts().equal.size(); ++i) {
    RankFacts other = facts();
    other.equal[i].second = "x";
    for (const Outcome& outcome : shake(facts(), other)) {
      EXPECT_EQ(outcome.code, ExitCode::lockstep_failure);
      EXPECT_NE(outcome.error.find("differ in " + other.equal[i].first), std::string::npos)
          << outcome.error;
    }
  }
}

TEST(Handshake, AFactThatOneRankLacksIsADifference) {
  RankFacts other = facts();
  other.equal.push_back({"draft-vocab", "5"});
  for (const Outcome& outcome : shake(facts(), other)) {
    EXPECT_NE(outcome.error.find("draft-vocab: rank 0 has nothing"), std::string::npos)
        << outcome.error;
  }
}

}  // namespace
}  // namespace lockstep

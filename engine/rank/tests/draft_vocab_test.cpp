// Which tokens drafts come from: the file format, and the head that scores them.
#include "engine/rank/draft_vocab.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/philox.h"
#include "engine/base/temp_dir.h"
#include "engine/comm/mailbox.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

constexpr int64_t kRows = 3;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(DraftVocab, ReadsNumbersAndFiles) {
  EXPECT_TRUE(read_draft_vocab("", 100).empty());
  EXPECT_TRUE(read_draft_vocab("0", 100).empty());
  EXPECT_EQ(read_draft_vocab("3", 100), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(read_draft_vocab("100", 100).size(), 100u);
  const TempDir folder;
  const auto file = folder.path() / "vocab.txt";
  write_file_atomically(file, "lockstep draft-vocab 1\r\n# common words\n\n 7\n99\r\n3\n7\n");
  EXPECT_EQ(read_draft_vocab(file.string(), 100), (std::vector<int32_t>{3, 7, 99}));
}

TEST(DraftVocab, RefusesBadInputByLine) {
  const TempDir folder;
  const auto file = folder.path() / "vocab.txt";
  const auto complaint = [&](const std::string& text) {
    write_file_atomically(file, text);
    const std::string words = refusal([&] { read_draft_vocab(file.string(), 100); });
    return words.substr(std::min(words.size(), file.string().size()));
  };
  const std::string head = "lockstep draft-vocab 1\n";
  EXPECT_EQ(complaint("7\n"),
            ": is no draft vocabulary: its first line must be 'lockstep draft-vocab 1'");
  EXPECT_EQ(complaint(""), ": holds no token id");
  EXPECT_EQ(complaint("lockstep draft-vocab 2\n7\n"),
            ": version 2 is not 1, the one this build reads");
  EXPECT_EQ(complaint(head), ": holds no token id");
  EXPECT_EQ(complaint(head + "7\n100\n"), ":3: token 100 is outside the vocabulary of 100");
  EXPECT_EQ(complaint(head + "-1\n"), ":2: '-1' is no token id");
  EXPECT_EQ(complaint(head + "7 8\n"), ":2: '7 8' is no token id");
  EXPECT_EQ(complaint(head + "99999999999\n"), ":2: '99999999999' is no token id");
  EXPECT_EQ(refusal([] { read_draft_vocab("101", 100); }),
            "--draft-vocab 101: the vocabulary has 100 rows");
  EXPECT_THROW(read_draft_vocab((folder.path() / "absent").string(), 100), Error);
}

struct Golden {
  KvCache kv{{KvType::bf16, 1, 2, 256, 1}};
  ThreadPool pool{1};

  Model model(const RankWeights& weights, Communicator& comm) {
    return {golden_model().config, weights, false, Rounding::bf16, {}, kv, comm, pool};
  }
};

std::vector<float> random_rows() {
  PhiloxStream random(11, 3);
  std::vector<float> rows(static_cast<size_t>(kRows * golden_model().config.hidden_size));
  for (float& value : rows) value = 2.0f * random.next_uniform() - 1.0f;
  return rows;
}

// The best listed token by the logits of the whole head.
std::vector<int32_t> expected_tokens(const std::vector<float>& rows,
                                     const std::vector<int32_t>& ids) {
  Golden golden;
  const auto comm = make_single_rank_communicator();
  const Model model = golden.model(golden_model().whole, *comm);
  LogitBuffers buffers;
  compute_logits(model, rows.data(), kRows, buffers);
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < kRows; ++row) {
    const float* logits = buffers.logits.data() + row * model.config.vocab_size;
    tokens.push_back(*std::max_element(
        ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] < logits[b]; }));
  }
  return tokens;
}

std::vector<int32_t> solo_tokens(const std::vector<float>& rows, const std::vector<int32_t>& ids,
                                 int64_t n_live) {
  Golden golden;
  const auto comm = make_single_rank_communicator();
  const Model model = golden.model(golden_model().whole, *comm);
  const auto backend = make_cpu_backend(model);
  DraftHead head(model, *backend, ids, n_live);
  // A list is scored alone, up to blocks that share their scales.
  if (!ids.empty()) {
    EXPECT_LE(head.n_scored_rows(), 128 * std::ssize(ids));
  }
  return head.best_tokens(rows.data(), kRows);
}

std::vector<int32_t> pair_tokens(const std::vector<float>& rows, const std::vector<int32_t>& ids,
                                 int64_t n_live) {
  const int mailbox = create_mailbox_file();
  const std::string path = "/proc/self/fd/" + std::to_string(mailbox);
  std::vector<int32_t> tokens[2];
  const auto run = [&](int rank) {
    Golden golden;
    const auto comm = join_mailbox(path, rank, {});
    const Model model = golden.model(golden_model().halves[rank], *comm);
    const auto backend = make_cpu_backend(model);
    tokens[rank] = DraftHead(model, *backend, ids, n_live).best_tokens(rows.data(), kRows);
  };
  std::thread peer(run, 1);
  run(0);
  peer.join();
  ::close(mailbox);
  EXPECT_EQ(tokens[0], tokens[1]);
  return tokens[0];
}

TEST(DraftVocab, TheHeadChoosesTheBestListedToken) {
  const auto rows = random_rows();
  const int64_t vocab = golden_model().config.vocab_size;
  std::vector<int32_t> all(static_cast<size_t>(vocab));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::vector<int32_t>> lists = {
      {5},
      {1, 2, 3, 700, 701, static_cast<int32_t>(vocab) - 1},
      {all.begin(), all.begin() + 600},
      {all.end() - 3, all.end()}};
  for (const auto& ids : lists) {
    const auto expected = expected_tokens(rows, ids);
    EXPECT_EQ(solo_tokens(rows, ids, vocab), expected) << ids.size() << " ids";
    EXPECT_EQ(pair_tokens(rows, ids, vocab), expected) << ids.size() << " ids";
  }
  // Without a list: every row that exists.
  const std::vector<int32_t> live(all.begin(), all.begin() + 900);
  EXPECT_EQ(solo_tokens(rows, {}, 900), expected_tokens(rows, live));
  EXPECT_EQ(pair_tokens(rows, {}, 900), expected_tokens(rows, live));
}

TEST(DraftVocab, NanRowsGetSomeToken) {
  auto rows = random_rows();
  std::fill(rows.begin(), rows.end(), std::nanf(""));
  for (const int32_t token : pair_tokens(rows, {4, 3000}, golden_model().config.vocab_size)) {
    EXPECT_TRUE(token == 4 || token == 3000);
  }
}

}  // namespace
}  // namespace lockstep::testing

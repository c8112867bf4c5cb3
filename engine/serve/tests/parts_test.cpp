// The parts of the proxy that need no connection.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/serve/agreed_stream.h"
#include "engine/serve/api_keys.h"
#include "engine/serve/error_body.h"
#include "engine/serve/http_client.h"
#include "engine/serve/http_text.h"
#include "engine/serve/progress_watch.h"
#include "engine/serve/rank_lines.h"
#include "engine/serve/recorder.h"
#include "engine/serve/routes.h"

namespace lockstep::serve {
namespace {

using std::chrono::seconds;

TEST(AgreedStream, HandsOutWhatBothRanksSaid) {
  AgreedStream stream(2);
  EXPECT_EQ(stream.add(0, "abc"), "");
  EXPECT_FALSE(stream.level());
  EXPECT_EQ(stream.add(1, "ab"), "ab");
  EXPECT_EQ(stream.add(1, "cde"), "c");  // rank 1 is ahead now
  EXPECT_EQ(stream.n_ahead(), 2u);
  EXPECT_EQ(stream.add(0, "de"), "de");
  EXPECT_TRUE(stream.level());
}

TEST(AgreedStream, NamesTheFirstDifference) {
  AgreedStream stream(2);
  EXPECT_EQ(stream.add(1, "same "), "");
  EXPECT_EQ(stream.add(0, "same "), "same ");
  EXPECT_EQ(stream.add(1, "abX"), "");
  EXPECT_FALSE(stream.add(0, "abY").has_value());
  EXPECT_EQ(stream.first_difference(), 7u);
}

TEST(AgreedStream, OneRankAgreesWithItself) {
  AgreedStream stream(1);
  EXPECT_EQ(stream.add(0, "abc"), "abc");
  EXPECT_TRUE(stream.level());
}

TEST(Events, OnlyWholeOnesGoOut) {
  std::string text = "data: 1\n\ndata: 2\n\ndata:";
  EXPECT_EQ(take_whole_events(text), "data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(text, "data:");
  EXPECT_EQ(take_whole_events(text), "");
  text += " 3\n\n";
  EXPECT_EQ(take_whole_events(text), "data: 3\n\n");
}

TEST(ApiKeys, ReadsAFileThatOthersCannot) {
  const TempDir folder;
  const std::string file = folder.path() / "keys";
  write_file_atomically(file, std::string("# ours\n\n  first \nsecond\n"));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  const ApiKeys keys = ApiKeys::load(file);
  EXPECT_TRUE(keys.required());
  EXPECT_TRUE(keys.allow("first"));
  EXPECT_TRUE(keys.allow("second"));
  for (const char* wrong : {"", "firs", "first ", "# ours", "firsT"}) {
    EXPECT_FALSE(keys.allow(wrong)) << wrong;
  }
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THROW(ApiKeys::load(file), Error);
}

TEST(ApiKeys, AFileWithoutKeysIsRefused) {
  const TempDir folder;
  const std::string file = folder.path() / "keys";
  write_file_atomically(file, std::string("# none yet\n"));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_THROW(ApiKeys::load(file), Error);
}

TEST(ConstantTime, ComparesLengthsToo) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcabc"));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
  EXPECT_FALSE(equal_in_constant_time("a", ""));
}

class Watch : public ::testing::Test {
 protected:
  ProgressWatch::TimePoint at(int s) const { return begin_ + seconds(s); }
  ProgressWatch::TimePoint begin_{seconds(1000)};
  ProgressWatch watch_{seconds(10), 2, begin_};
};

TEST_F(Watch, IdleRanksMayStandStill) {
  EXPECT_FALSE(watch_.stalled(at(100), false, 0));
  EXPECT_FALSE(watch_.stalled(at(105), true, 0)) << "work for 5 s only";
}

TEST_F(Watch, RoundsOrAnswersAreProgress) {
  for (int s = 0; s < 60; s += 5) {
    watch_.report(0, static_cast<uint64_t>(s), at(s));
    watch_.report(1, static_cast<uint64_t>(s), at(s));
    EXPECT_FALSE(watch_.stalled(at(s), true, 0)) << s;
  }
  for (int s = 60; s < 120; s += 5) {
    EXPECT_FALSE(watch_.stalled(at(s), true, static_cast<uint64_t>(s))) << s;
  }
}

TEST_F(Watch, ASilentRankIsNamed) {
  for (int s = 0; s <= 20; ++s) watch_.report(0, 7, at(s));
  EXPECT_TRUE(watch_.stalled(at(20), true, 0));
  EXPECT_EQ(watch_.slowest_rank(at(20)), 1);
  EXPECT_EQ(watch_.describe(1, at(20)), "rank 1 does not answer");
}

TEST_F(Watch, TheRankThatIsBehindIsNamed) {
  for (int s = 0; s <= 20; ++s) {
    watch_.report(0, 6, at(s));
    watch_.report(1, 7, at(s));
  }
  EXPECT_TRUE(watch_.stalled(at(20), true, 0));
  EXPECT_EQ(watch_.slowest_rank(at(20)), 0);
  EXPECT_EQ(watch_.describe(0, at(20)), "rank 0 is stuck in round 6");
}

TEST_F(Watch, NeitherRankIsNamedWhenBothAnswerFromTheSameRound) {
  for (int s = 0; s <= 20; ++s) {
    watch_.report(0, 7, at(s));
    watch_.report(1, 7, at(s));
  }
  EXPECT_TRUE(watch_.stalled(at(20), true, 0));
  EXPECT_EQ(watch_.slowest_rank(at(20)), -1);
}

TEST(Errors, HaveTheShapeOfTheirApi) {
  const Refusal refusal{503, "api_error", "say \"it\""};
  EXPECT_EQ(error_json("/v1/chat/completions", refusal),
            R"({"error":{"message":"say \"it\"","type":"api_error","param":null,"code":null}})");
  EXPECT_EQ(error_json("/v1/messages?beta=true", refusal),
            R"({"type":"error","error":{"type":"api_error","message":"say \"it\""}})");
  EXPECT_TRUE(error_event("/v1/messages", refusal).starts_with("event: error\ndata: {"));
  EXPECT_TRUE(error_event("/v1/completions", refusal).starts_with("data: {\"error\""));
  EXPECT_TRUE(error_event("/v1/completions", refusal).ends_with("}\n\n"));
}

TEST(Routes, InternalPathsOfRanksAreNotForClients) {
  EXPECT_EQ(route_of("POST", "/v1/chat/completions?x=1"), Route::generate);
  EXPECT_EQ(route_of("GET", "/v1/chat/completions"), Route::wrong_method);
  EXPECT_EQ(route_of("POST", "/v1/messages/count_tokens"), Route::side_call);
  EXPECT_EQ(route_of("GET", "/v1/models/x"), Route::side_call);
  EXPECT_EQ(route_of("HEAD", "/health"), Route::page);
  for (const char* path : {"/lockstep/cancel", "/lockstep/void", "/v1/nothing", "//", ""}) {
    EXPECT_EQ(route_of("POST", path), Route::none) << path;
  }
}

TEST(RankLines, ListeningPortsAndNothingElse) {
  EXPECT_EQ(listening_port(R"({"event":"listening","port":4711,"rank":0})"), 4711);
  for (const char* line :
       {"", "listening 4711", R"({"event":"listening"})", R"({"event":"listening","port":0})",
        R"({"event":"listening","port":70000})", R"({"event":"other","port":1})"}) {
    EXPECT_FALSE(listening_port(line)) << line;
  }
}

TEST(RankLines, TheLockstepFailureSaysWhyARankEnded) {
  EXPECT_EQ(telling_line({"TP2 LOCKSTEP FAILURE round=3", "lockstep-rank: peer gone"}),
            "TP2 LOCKSTEP FAILURE round=3");
  EXPECT_EQ(telling_line({"one", R"({"event":"x"})", "lockstep-rank: no model", "{}"}),
            "lockstep-rank: no model");
  EXPECT_EQ(telling_line({}), "");
}

TEST(RankLines, StatusOfARank) {
  const auto status =
      parse_rank_status(R"({"round":9,"preparing":[5,"x"],"encoding":true,)"
                        R"("slots":[{"sequence":4,"phase":"decode","tokens":17}]})");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->round, 9u);
  EXPECT_EQ(status->preparing, std::vector<uint64_t>{5});
  EXPECT_TRUE(status->encoding);
  ASSERT_EQ(status->slots.size(), 1u);
  EXPECT_EQ(status->slots[0].phase, "decode");
  EXPECT_EQ(status->slots[0].n_tokens, 17);
  EXPECT_FALSE(parse_rank_status("[]"));
  EXPECT_FALSE(parse_rank_status("{"));
  EXPECT_TRUE(parse_rank_status(R"({"slots":[3]})"));
  EXPECT_FALSE(parse_rank_status(R"({"encoding":1})")->encoding);
}

TEST(Recorder, KeepsJobsOfRank0AndHidesThemFromTheLog) {
  const TempDir folder;
  const std::string path = folder.path() / "log.jsonl";
  const std::string line =
      R"({"event":"request","id":"a","digest":"d1","job":{"name":"a","ids":[1,2]}})";
  {
    Recorder recorder(path, R"({"version":1})");
    EXPECT_EQ(recorder.take(0, line), R"({"event":"request","id":"a","digest":"d1"})");
    EXPECT_EQ(recorder.take(1, line), R"({"event":"request","id":"a","digest":"d1"})");
    EXPECT_EQ(recorder.take(0, "no job"), "no job");
  }
  Recorder again(path, R"({"version":1})");
  again.take(0, line);
  EXPECT_EQ(read_text_file(path),
            "{\"version\":1}\n"
            R"({"job":{"name":"2-a","ids":[1,2]},"digest":"d1"})"
            "\n"
            R"({"job":{"name":"3-a","ids":[1,2]},"digest":"d1"})"
            "\n");
  EXPECT_THROW(Recorder(path, R"({"version":1,"model":"other"})"), Error);
}

TEST(HttpText, StreamsHaveChunksOnlyWhereTheyAreKnown) {
  const AnswerHead head{200, {{"content-type", "text/event-stream"}}};
  EXPECT_NE(response_head(head, {true, false}, std::nullopt).find("chunked"), std::string::npos);
  EXPECT_EQ(response_head(head, {false, true}, std::nullopt).find("chunked"), std::string::npos);
  EXPECT_EQ(chunk("0123456789abcdef", {true, false}), "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(chunk("x", {false, true}), "x");
  EXPECT_EQ(chunk("", {true, false}), "") << "an empty chunk would end the stream";
}

TEST(HttpUrl, Parts) {
  const HttpUrl url = parse_http_url("http://127.0.0.1:8000/v1/");
  EXPECT_EQ(url.host, "127.0.0.1");
  EXPECT_EQ(url.port, 8000);
  EXPECT_EQ(url.path, "/v1");
  EXPECT_EQ(parse_http_url("http://h").port, 80);
  for (const char* wrong : {"https://h", "h:80", "http://", "http://h:x", "http://:80"}) {
    EXPECT_THROW(parse_http_url(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::serve

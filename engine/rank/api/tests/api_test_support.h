// What the tests of the APIs share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "engine/rank/api/answer_format.h"
#include "engine/rank/api/api_error.h"
#include "engine/text/tokenizer.h"

namespace lockstep::testing {

// Expects `parse` to refuse with 400 and this `param`.
inline void expect_refused(const std::string& param, const std::function<void()>& parse) {
  try {
    parse();
    ADD_FAILURE() << "accepted, wanted a complaint about " << param;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), param) << error.what();
  }
}

// The golden model's.
const Tokenizer& golden_tokenizer();

inline AnswerIdentity test_identity() {
  return {"abc", "tiny", "lockstep-1-2", 1700000000};
}

// Reads `text` as an answer to `request`, `piece_tokens` tokens a round, and gives it to `format`
// as a stream would: all events, or the whole body.
inline std::string answer_in(AnswerFormat& format, const GenerationRequest& request,
                             const std::string& text, bool starts_inside, bool stream,
                             size_t piece_tokens = 2, EndReason length_or_stop = EndReason::stop) {
  const std::vector<int32_t> ids = golden_tokenizer().encode(text);
  AnswerReader reader(golden_tokenizer(), request, starts_inside);
  Answer answer;
  AnswerUsage usage{7, 3, 0, 0};
  std::string events = format.begin(usage);
  for (size_t at = 0; at < ids.size(); at += piece_tokens) {
    const size_t n = std::min(piece_tokens, ids.size() - at);
    const AnswerPiece piece = reader.push(std::span(ids).subspan(at, n), {});
    answer.add(piece);
    events += format.piece(piece);
  }
  const AnswerPiece last = reader.finish();
  answer.add(last);
  AnswerEnd end;
  usage.completion_tokens = reader.n_tokens();
  usage.reasoning_tokens = reader.n_reasoning_tokens();
  end.usage = usage;
  end.reason = reader.has_calls() ? EndReason::tool_calls : length_or_stop;
  if (const auto stop = reader.stop_string()) {
    end.reason = EndReason::stop_string;
    end.stop_string = *stop;
  }
  if (!stream) return format.whole(answer, end);
  events += format.piece(last);
  return events + format.end(end);
}

}  // namespace lockstep::testing

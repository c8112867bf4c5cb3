#include "engine/rank/api/answer.h"

#include <iterator>

namespace lockstep {
namespace {

constexpr const char* kCallEnd = "</tool_call>";

TokenLogprob to_logprob(const Tokenizer& tokenizer, const GenerationRequest& request, int32_t id,
                        const StepLogits& step) {
  const auto name = [&](int32_t token) {
    return request.tokens_as_ids ? "token_id:" + std::to_string(token)
                                 : std::string(tokenizer.token_bytes(token));
  };
  TokenLogprob entry;
  entry.bytes = name(id);
  entry.logprob = step.chosen_value - step.log_sum_exp;
  const auto n_top = static_cast<size_t>(request.n_top_logprobs);
  for (size_t i = 0; i < std::min(n_top, step.ids.size()); ++i) {
    entry.top.emplace_back(name(step.ids[i]), step.values[i] - step.log_sum_exp);
  }
  return entry;
}

ToolSchemas schemas_of(const GenerationRequest& request) {
  return request.tools_json.empty() ? ToolSchemas() : ToolSchemas::from_request(request.tools_json);
}

}  // namespace

void Answer::add(const AnswerPiece& piece) {
  reasoning += piece.reasoning;
  for (const ToolEvent& event : piece.events) {
    switch (event.kind) {
      case ToolEvent::Kind::content:
        content += event.text;
        break;
      case ToolEvent::Kind::call:
        calls.push_back({event.text, ""});
        break;
      case ToolEvent::Kind::arguments:
        calls.at(event.index).arguments_json += event.text;
        break;
    }
  }
  logprobs.insert(logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
}

std::vector<std::string> generation_stops(const GenerationRequest& request) {
  std::vector<std::string> stops = request.stops;
  if (request.one_call_only) stops.push_back(kCallEnd);
  return stops;
}

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const GenerationRequest& request,
                           bool starts_inside)
    : tokenizer_(tokenizer),
      request_(request),
      detokenizer_(tokenizer),
      stops_(generation_stops(request)),
      splitter_(starts_inside, !request.tools_json.empty()),
      think_begin_(tokenizer.added_token_id("<think>")),
      think_end_(tokenizer.added_token_id("</think>")),
      call_begin_(tokenizer.added_token_id("<tool_call>")),
      in_reasoning_(starts_inside) {
  if (!request.tools_json.empty()) parser_.emplace(schemas_of(request));
  if (request.prefix_in_answer) read_text(request.forced_prefix, head_);
}

AnswerPiece AnswerReader::push(std::span<const int32_t> ids, std::span<const StepLogits> logits) {
  AnswerPiece piece = std::exchange(head_, {});
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    count(ids[i]);
    text += detokenizer_.push(ids[i]);
    const bool shown = request_.logprobs && i < logits.size() &&
                       (request_.tokens_as_ids || !tokenizer_.is_special(ids[i]));
    if (shown) piece.logprobs.push_back(to_logprob(tokenizer_, request_, ids[i], logits[i]));
  }
  read_text(stops_.push(text), piece);
  return piece;
}

AnswerPiece AnswerReader::finish() {
  AnswerPiece piece = std::exchange(head_, {});
  std::string text = stops_.push(detokenizer_.finish());
  if (!stops_.matched()) text += stops_.finish();
  const bool at_call_end = stops_.matched() && *stops_.matched() >= request_.stops.size();
  if (at_call_end) text += kCallEnd;
  read_text(text, piece);
  if (request_.split_reasoning) {
    const ReasoningDelta last = splitter_.finish();
    piece.reasoning += last.reasoning;
    read_content(last.content, piece);
  }
  if (parser_) note(parser_->finish(), piece);
  return piece;
}

std::optional<std::string> AnswerReader::stop_string() const {
  const auto matched = stops_.matched();
  if (!matched || *matched >= request_.stops.size()) return std::nullopt;
  return request_.stops[*matched];
}

void AnswerReader::read_text(std::string_view text, AnswerPiece& piece) {
  if (text.empty()) return;
  if (!request_.split_reasoning) return read_content(text, piece);
  const ReasoningDelta delta = splitter_.push(text);
  piece.reasoning += delta.reasoning;
  read_content(delta.content, piece);
}

void AnswerReader::read_content(std::string_view text, AnswerPiece& piece) {
  if (text.empty()) return;
  if (parser_) return note(parser_->push(text), piece);
  note({{ToolEvent::Kind::content, 0, std::string(text)}}, piece);
}

void AnswerReader::note(std::vector<ToolEvent> events, AnswerPiece& piece) {
  for (ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::call) has_calls_ = true;
    piece.events.push_back(std::move(event));
  }
}

void AnswerReader::count(int32_t id) {
  if (n_tokens_ == 0 && think_begin_ == id) in_reasoning_ = true;
  ++n_tokens_;
  if (!in_reasoning_ || !request_.split_reasoning) return;
  const bool call_begins = parser_ && call_begin_ == id;
  if (!call_begins) ++n_reasoning_tokens_;
  if (think_end_ == id || call_begins) in_reasoning_ = false;
}

}  // namespace lockstep

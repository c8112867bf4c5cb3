#include "engine/rank/http/prompt_builder.h"

#include <algorithm>

#include "engine/rank/api/api_error.h"
#include "engine/rank/prompt_images.h"

namespace lockstep {
namespace {

bool ends_inside_reasoning(const std::string& prompt) {
  const size_t open = prompt.rfind("<think>");
  const size_t closed = prompt.rfind("</think>");
  return open != std::string::npos && (closed == std::string::npos || closed < open);
}

}  // namespace

std::string PromptBuilder::render(const GenerationRequest& asked, int64_t now_unix_s,
                                  ImageList& images) const {
  std::string body = *asked.chat_json;
  images = take_chat_images(body, {}, loaded_.images);
  return loaded_.text.render(body, now_unix_s) + asked.forced_prefix;
}

// The tokens that the answer may have: what was asked, or what the context has left.
void PromptBuilder::set_room(const GenerationRequest& asked, Request& request) const {
  const int64_t limit = engine_.max_context();
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t left = limit - n_prompt;
  const char* param = asked.chat_json ? "messages" : "prompt";
  if (left < 1) {
    refuse_field(param,
                 fmt::format("this model's maximum context length is {} tokens, but the prompt "
                             "has {}; shorten it",
                             limit, n_prompt),
                 "context_length_exceeded");
  }
  if (asked.max_tokens.value_or(1) > left) {
    refuse_field(param,
                 fmt::format("this model's maximum context length is {} tokens, but {} were asked "
                             "for: {} in the prompt and {} in the answer",
                             limit, n_prompt + *asked.max_tokens, n_prompt, *asked.max_tokens),
                 "context_length_exceeded");
  }
  request.max_tokens = asked.max_tokens.value_or(left);
}

void PromptBuilder::check_bias(const SamplingParams& sampling) const {
  const int64_t n_tokens = live_tokens(loaded_.source.config, loaded_.options);
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id < n_tokens) continue;
    refuse_field("logit_bias",
                 fmt::format("names token {}; this model's tokens are 0 to {}", id, n_tokens - 1));
  }
}

void PromptBuilder::make_prompt(const GenerationRequest& asked, int64_t now_unix_s,
                                PreparedRequest& prepared) const {
  Request& request = prepared.request;
  if (asked.prompt_ids) {
    request.prompt = *asked.prompt_ids;
    return;
  }
  const std::string words = asked.chat_json ? render(asked, now_unix_s, request.images)
                                            : *asked.prompt_text + asked.forced_prefix;
  prepared.starts_inside_reasoning = asked.split_reasoning && ends_inside_reasoning(words);
  request.prompt = expand_image_pads(loaded_.text.encode(words), request.images,
                                     loaded_.source.config, "the request");
}

PreparedRequest PromptBuilder::build(const GenerationRequest& asked, int64_t now_unix_s) const {
  PreparedRequest prepared;
  Request& request = prepared.request;
  try {
    make_prompt(asked, now_unix_s, prepared);
    if (request.prompt.empty()) refuse_field("prompt", "is empty");
    set_room(asked, request);
    check_bias(asked.sampling);
    request.sampling = asked.sampling;
    request.ignore_eos = asked.ignore_eos;
    request.stop_strings = generation_stops(asked);
    request.stop_watcher = loaded_.text.watch(request.stop_strings);
    if (asked.logprobs) request.n_logits = std::max(1, asked.n_top_logprobs);
    engine_.check_request(request);
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    refuse_field(asked.chat_json ? "messages" : "prompt", error.what());
  }
  return prepared;
}

std::vector<int32_t> PromptBuilder::encode(const GenerationRequest& asked,
                                           int64_t now_unix_s) const {
  PreparedRequest prepared;
  try {
    make_prompt(asked, now_unix_s, prepared);
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    refuse_field(asked.chat_json ? "messages" : "prompt", error.what());
  }
  return prepared.request.prompt;
}

}  // namespace lockstep

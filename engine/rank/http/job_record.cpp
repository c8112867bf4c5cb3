#include "engine/rank/http/job_record.h"

#include <nlohmann/json.hpp>

#include "engine/base/digest.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// URLs of the pictures in a chat's messages, in order.
Json picture_urls(const std::string& chat_json) {
  Json urls = Json::array();
  const Json chat = Json::parse(chat_json);
  for (const Json& message : chat["messages"]) {
    if (!message.contains("content") || !message["content"].is_array()) continue;
    for (const Json& part : message["content"]) {
      if (!part.is_object()) continue;
      for (const char* key : {"image_url", "image"}) {
        if (!part.contains(key)) continue;
        const Json& url = part[key];
        if (url.is_string()) urls.push_back(url);
        if (url.is_object() && url.contains("url")) urls.push_back(url["url"]);
      }
    }
  }
  return urls;
}

}  // namespace

std::string job_json(const Request& request, const GenerationRequest& asked) {
  const SamplingParams& sampling = request.sampling;
  Json job = {{"name", request.name},
              {"ids", request.prompt},
              {"temperature", sampling.temperature},
              {"top_k", sampling.top_k},
              {"top_p", sampling.top_p},
              {"min_p", sampling.min_p},
              {"presence_penalty", sampling.presence_penalty},
              {"frequency_penalty", sampling.frequency_penalty},
              {"repetition_penalty", sampling.repetition_penalty},
              {"seed", sampling.seed},
              {"ignore_eos", request.ignore_eos}};
  Json bias = Json::object();
  for (const auto& [id, value] : sampling.logit_bias) bias[std::to_string(id)] = value;
  if (!bias.empty()) job["logit_bias"] = std::move(bias);
  if (!request.stop_strings.empty()) job["stop"] = request.stop_strings;
  if (!request.images.empty()) job["images"] = picture_urls(*asked.chat_json);
  return job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string with_max_tokens(const std::string& job, int64_t max_tokens) {
  Json json = Json::parse(job);
  json["max_tokens"] = max_tokens;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string result_digest(const std::vector<int32_t>& ids) {
  const std::string text = Json{{"ids", ids}, {"logits", nullptr}}.dump();
  return digest128_hex(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace lockstep

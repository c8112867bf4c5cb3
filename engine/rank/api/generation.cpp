#include "engine/rank/api/generation.h"

#include <nlohmann/json.hpp>

#include "engine/rank/api/api_error.h"
#include "engine/rank/api/unsupported_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void read_float(const JsonView& field, double low, double high, float& value) {
  if (field.given()) value = static_cast<float>(field.number(low, high));
}

void read_logit_bias(const JsonView& field, std::map<int32_t, float>& bias) {
  if (!field.given()) return;
  if (!field.is_object()) field.refuse("must be an object");
  bias.clear();
  for (const auto& [key, value] : static_cast<const Json*>(field.node())->items()) {
    const bool digits =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || !value.is_number() || value < -100 || value > 100) {
      field.refuse("must map token ids to numbers in [-100, 100]");
    }
    bias[static_cast<int32_t>(std::stol(key))] = value.get<float>();
  }
}

void read_sampling(const JsonView& body, GenerationRequest& request) {
  SamplingParams& params = request.sampling;
  read_float(body["temperature"], 0.0, 2.0, params.temperature);
  read_float(body["top_p"], 0.0, 1.0, params.top_p);
  read_float(body["min_p"], 0.0, 1.0, params.min_p);
  read_float(body["presence_penalty"], -2.0, 2.0, params.presence_penalty);
  read_float(body["frequency_penalty"], -2.0, 2.0, params.frequency_penalty);
  read_float(body["repetition_penalty"], 0.01, 100.0, params.repetition_penalty);
  if (const JsonView top_k = body["top_k"]; top_k.given()) {
    const int64_t value = top_k.integer(-1, INT32_MAX);
    params.top_k = value < 0 ? 0 : static_cast<int32_t>(value);
  }
  read_logit_bias(body["logit_bias"], params.logit_bias);
  if (const JsonView seed = body["seed"]; seed.given()) {
    params.seed = static_cast<uint64_t>(seed.integer(INT64_MIN, INT64_MAX));
    request.seed_given = true;
  }
}

}  // namespace

std::vector<std::string> read_stops(const JsonView& field) {
  std::vector<std::string> stops;
  if (!field.given()) return stops;
  if (field.is_string()) {
    stops.push_back(field.text());
  } else if (field.is_array()) {
    for (size_t i = 0; i < field.size(); ++i) stops.push_back(field.item(i).text());
  } else {
    field.refuse("must be a string or a list of strings");
  }
  if (stops.size() > kMaxStops) field.refuse(fmt::format("holds more than {}", kMaxStops));
  for (const std::string& stop : stops) {
    if (stop.empty()) field.refuse("holds an empty string");
    if (stop.size() > kMaxStopBytes) {
      field.refuse(fmt::format("holds a string of more than {} bytes", kMaxStopBytes));
    }
  }
  return stops;
}

void read_openai_common(const JsonView& body, GenerationRequest& request) {
  if (const JsonView model = body["model"]; model.given()) request.model = model.text();
  read_sampling(body, request);
  request.stops = read_stops(body["stop"]);
  if (const JsonView n = body["n"]; n.given() && n.integer(1, 128) != 1) {
    n.refuse("only 1 answer a request is supported");
  }
  refuse_unsupported_fields(body);
  if (const JsonView flag = body["ignore_eos"]; flag.given()) request.ignore_eos = flag.flag();
  if (const JsonView flag = body["return_tokens_as_token_ids"]; flag.given()) {
    request.tokens_as_ids = flag.flag();
  }
  if (const JsonView stream = body["stream"]; stream.given()) request.stream = stream.flag();
  if (const JsonView options = body["stream_options"]; options.given()) {
    const JsonView usage = options["include_usage"];
    if (usage.given()) request.include_usage = usage.flag();
    if (!request.stream) options.refuse("is only allowed when stream is true");
  }
}

void check_model(const std::string& asked, const std::string& served, bool strict) {
  if (!strict || asked == served) return;
  throw ApiError(404, "invalid_request_error", "model", "model_not_found",
                 fmt::format("the model '{}' does not exist; this server has '{}'", asked, served));
}

}  // namespace lockstep

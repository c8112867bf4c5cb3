#include "engine/rank/http/rank_service.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/rank/api/json_view.h"
#include "engine/rank/api/messages.h"
#include "engine/rank/api/models.h"
#include "engine/rank/api/tokens.h"
#include "engine/rank/http/status_json.h"

namespace lockstep {
namespace {

constexpr double kRecentToken_s = 10.0;

HttpReply json_reply(std::string body) {
  return {200, "application/json", std::move(body), {}};
}

// The same time for every key of the right length.
bool same_key(const std::string& given, const std::string& wanted) {
  if (given.size() != wanted.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(wanted[i]);
  }
  return difference == 0;
}

ApiError server_found(int status, const HttpRequest& request) {
  const auto error = [status](const char* code, const std::string& message) {
    return ApiError(status, "invalid_request_error", "", code, message);
  };
  switch (status) {
    case 404:
      return error("not_found", fmt::format("there is no {} {}", request.method, request.path));
    case 413:
      return error("request_too_large", "the request's body is larger than this server takes");
    case 414:
      return error("uri_too_long", "the request's address is too long");
    case 431:
      return error("headers_too_large", "the request's headers are larger than this server takes");
    default:
      return error("bad_request", "the request could not be read");
  }
}

}  // namespace

RankService::RankService(const LoadedRank& loaded, const RankEngine& engine, Scheduler& scheduler,
                         const ServedModel& model, EventLog& log, std::string key)
    : loaded_(loaded),
      scheduler_(scheduler),
      model_(model),
      log_(log),
      key_(std::move(key)),
      generation_(loaded, engine, scheduler, model, log) {}

HttpReply RankService::handle(const HttpRequest& request, int found_status) const {
  try {
    if (found_status >= 400) throw server_found(found_status, request);
    if (!key_.empty() && !same_key(request.header("Lockstep-Key").value_or(""), key_)) {
      throw ApiError(403, "invalid_request_error", "", "wrong_key",
                     "this rank belongs to a proxy; ask the proxy");
    }
    return route(request);
  } catch (const ApiError& error) {
    return refused(request, error);
  } catch (const std::exception& error) {
    return refused(request, ApiError(500, "server_error", "", "", error.what()));
  }
}

// A numbered request that needs no engine gives its number up, on both ranks alike.
HttpReply RankService::refused(const HttpRequest& request, const ApiError& error) const {
  const auto sequence = sequence_of(request);
  if (sequence && error.status() != 403 && error.status() != 409) scheduler_.make_void(*sequence);
  ++n_refused_;
  RequestEvent event;
  event.id = request.header("Lockstep-Request-Id").value_or("");
  event.sequence = sequence.value_or(0);
  event.api = request.path.substr(0, 100);
  event.status = error.status();
  event.error = error.what();
  log_.write(event);
  return {error.status(), "application/json", error_body(error, dialect_of_path(request.path)), {}};
}

HttpReply RankService::route(const HttpRequest& request) const {
  if (request.method == "GET" || request.method == "HEAD") return get(request);
  if (request.method == "POST") return post(request);
  throw ApiError(405, "invalid_request_error", "", "method_not_allowed",
                 fmt::format("{} is not allowed", request.method));
}

HttpReply RankService::get(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (path == "/health") return json_reply("{\"status\":\"ok\"}");
  if (path == "/ready") return ready(request);
  if (path == "/lockstep/status") return json_reply(status_json(model_, scheduler_.status()));
  if (path == "/metrics") {
    return {200,
            "text/plain; version=0.0.4",
            metrics_text(model_, scheduler_.status(), n_refused_),
            {}};
  }
  const std::string models = "/v1/models";
  if (path == models) return json_reply(models_json(model_));
  if (path.rfind(models + "/", 0) == 0) {
    check_model(path.substr(models.size() + 1), model_.id, true);
    return json_reply(model_json(model_));
  }
  if (path.rfind("/v1/responses/", 0) == 0) {
    throw ApiError(404, "invalid_request_error", "", "not_found",
                   "this server keeps no responses: /v1/responses is stateless");
  }
  throw server_found(404, request);
}

// A token was made a moment ago, or one is made now. Behind a proxy only a numbered request makes
// one, because both ranks must.
HttpReply RankService::ready(const HttpRequest& request) const {
  const bool numbered = sequence_of(request).has_value();
  const double token_s = scheduler_.status().seconds_since_token;
  const bool recent = token_s >= 0.0 && token_s <= kRecentToken_s;
  if (!numbered && recent) return json_reply("{\"status\":\"ready\"}");
  if (!numbered && model_.n_ranks > 1) {
    return {503,
            "application/json",
            "{\"status\":\"no token lately: ask with Lockstep-Sequence to make one\"}",
            {}};
  }
  return generation_.probe(request, read_request_headers(request, false));
}

HttpReply RankService::control(const HttpRequest& request) const {
  const JsonDocument document(request.body);
  const auto sequence = static_cast<uint64_t>(document.root()["sequence"].integer(1, INT64_MAX));
  if (request.path == "/lockstep/void") {
    scheduler_.make_void(sequence);
  } else {
    scheduler_.cancel(sequence);
  }
  return json_reply("{\"status\":\"ok\"}");
}

HttpReply RankService::post(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (const GenerationApi* api = generation_api(path)) {
    return generation_.answer(*api, request, read_request_headers(request, model_.n_ranks > 1));
  }
  if (path == "/lockstep/void" || path == "/lockstep/cancel") return control(request);
  HttpReply reply = tokens(request);
  if (const auto sequence = sequence_of(request)) scheduler_.make_void(*sequence);
  return reply;
}

// What needs the tokenizer alone.
HttpReply RankService::tokens(const HttpRequest& request) const {
  const std::string& path = request.path;
  const auto encode = [&](const GenerationRequest& asked) {
    return generation_.prompts().encode(asked, read_request_headers(request, false).unix_time_s);
  };
  if (path == "/v1/messages/count_tokens") {
    const auto ids = encode(parse_count_tokens(request.body, {}));
    return json_reply(count_tokens_json(static_cast<int64_t>(ids.size())));
  }
  if (path == "/tokenize") {
    return json_reply(tokenize_json(encode(parse_tokenize(request.body)), model_.max_context));
  }
  if (path == "/detokenize") {
    const std::vector<int32_t> ids = parse_detokenize(request.body);
    return json_reply(detokenize_json(loaded_.text.tokenizer().decode(ids)));
  }
  throw server_found(404, request);
}

}  // namespace lockstep

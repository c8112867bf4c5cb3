#include "engine/rank/http/generation_endpoint.h"

#include "engine/base/error.h"
#include "engine/rank/api/chat_completions.h"
#include "engine/rank/api/completions.h"
#include "engine/rank/api/messages.h"
#include "engine/rank/api/responses.h"
#include "engine/rank/http/exchange.h"
#include "engine/rank/http/job_record.h"
#include "engine/rank/jobs.h"

namespace lockstep {
namespace {

constexpr GenerationApi kApis[] = {
    {"/v1/chat/completions", ApiDialect::openai, parse_chat_completion, chat_completion_format},
    {"/v1/completions", ApiDialect::openai, parse_completion, completion_format},
    {"/v1/messages", ApiDialect::anthropic, parse_message, message_format},
    {"/v1/responses", ApiDialect::openai, parse_response, response_format},
};

}  // namespace

const GenerationApi* generation_api(std::string_view path) {
  for (const GenerationApi& api : kApis) {
    if (path == api.path) return &api;
  }
  return nullptr;
}

GenerationEndpoint::GenerationEndpoint(const LoadedRank& loaded, const RankEngine& engine,
                                       Scheduler& scheduler, const ServedModel& model,
                                       EventLog& log)
    : loaded_(loaded),
      prompts_(loaded, engine),
      scheduler_(scheduler),
      model_(model),
      log_(log),
      defaults_(load_generation_defaults(loaded.flags.model_dir)) {}

HttpReply GenerationEndpoint::answer(const GenerationApi& api, const HttpRequest& http,
                                     const RequestHeaders& headers) const {
  Scheduler::Preparation preparation(scheduler_, headers.sequence);
  auto exchange = std::make_shared<Exchange>();
  exchange->api = api.path;
  exchange->request_id = headers.request_id;
  exchange->asked = api.parse(http.body, defaults_);
  GenerationRequest& asked = exchange->asked;
  if (!asked.model.empty()) check_model(asked.model, model_.id, model_.strict);
  if (!asked.seed_given) asked.sampling.seed = headers.seed;
  PreparedRequest prepared = prompts_.build(asked, headers.unix_time_s);
  prepared.request.name = headers.request_id;
  exchange->reader.emplace(loaded_.text.tokenizer(), asked, prepared.starts_inside_reasoning);
  exchange->format =
      api.format({headers.request_id, model_.id, model_.fingerprint(), headers.unix_time_s}, asked);
  exchange->usage.prompt_tokens = static_cast<int64_t>(prepared.request.prompt.size());
  exchange->max_tokens = prepared.request.max_tokens;
  if (log_.with_prompts()) exchange->prompt = http.body;
  if (log_.with_jobs()) exchange->job = job_json(prepared.request, asked);
  exchange->client_gone = http.client_gone;
  exchange->scheduler = &scheduler_;
  exchange->log = &log_;
  exchange->ticket = scheduler_.submit(headers.sequence, std::move(prepared.request));
  preparation.end();
  return asked.stream ? stream_answer(exchange) : whole_answer(*exchange);
}

HttpReply GenerationEndpoint::probe(const HttpRequest& http, const RequestHeaders& headers) const {
  Request request;
  request.name = headers.request_id;
  request.prompt = {0};
  request.max_tokens = 1;
  request.use_prefix_cache = false;
  const auto ticket = scheduler_.submit(headers.sequence, std::move(request));
  return await_probe(*ticket, scheduler_, http.client_gone);
}

}  // namespace lockstep

// The endpoints that generate text: parse, hand to the scheduler, write what comes back.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/rank/api/answer_format.h"
#include "engine/rank/api/api_error.h"
#include "engine/rank/api/generation.h"
#include "engine/rank/api/served_model.h"
#include "engine/rank/http/event_log.h"
#include "engine/rank/http/http_server.h"
#include "engine/rank/http/prompt_builder.h"
#include "engine/rank/http/request_headers.h"
#include "engine/rank/http/scheduler.h"

namespace lockstep {

// One API's way of asking and answering.
struct GenerationApi {
  const char* path;
  ApiDialect dialect;
  GenerationRequest (*parse)(std::string_view body, const SamplingParams& defaults);
  std::unique_ptr<AnswerFormat> (*format)(const AnswerIdentity& identity,
                                          const GenerationRequest& request);
};

// The API at `path`, or null.
const GenerationApi* generation_api(std::string_view path);

class GenerationEndpoint {
 public:
  // All references must outlive the endpoint.
  GenerationEndpoint(const LoadedRank& loaded, const RankEngine& engine, Scheduler& scheduler,
                     const ServedModel& model, EventLog& log);

  // Throws ApiError for a request that is refused.
  HttpReply answer(const GenerationApi& api, const HttpRequest& http,
                   const RequestHeaders& headers) const;

  // One token, from all ranks: that they can.
  HttpReply probe(const HttpRequest& http, const RequestHeaders& headers) const;

  const PromptBuilder& prompts() const { return prompts_; }

 private:
  const LoadedRank& loaded_;
  const PromptBuilder prompts_;
  Scheduler& scheduler_;
  const ServedModel& model_;
  EventLog& log_;
  const SamplingParams defaults_;
};

}  // namespace lockstep

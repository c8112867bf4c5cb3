#include "engine/rank/http/status_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// A label's value: quotes, backslashes and line ends escaped.
std::string label(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return '"' + escaped + '"';
}

class Exposition {
 public:
  void add(const char* name, const char* type, const char* help, double value) {
    text_ += fmt::format("# HELP lockstep_{0} {1}\n# TYPE lockstep_{0} {2}\nlockstep_{0} {3}\n",
                         name, help, type, value);
  }
  void info(const ServedModel& model) {
    text_ += "# HELP lockstep_info What is served.\n# TYPE lockstep_info gauge\nlockstep_info{";
    text_ += "model=" + label(model.id) + ",rank=\"" + std::to_string(model.rank) + '"';
    text_ += ",build=" + label(model.build_digest);
    text_ += ",checkpoint=" + label(model.checkpoint_digest);
    text_ += ",shard=" + label(model.shard_digests.at(static_cast<size_t>(model.rank)));
    if (!model.transport.empty()) text_ += ",transport=" + label(model.transport);
    text_ += "} 1\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string status_json(const ServedModel& model, const SchedulerStatus& status) {
  Json json = {{"rank", model.rank},          {"ranks", model.n_ranks},
               {"round", status.rounds},      {"seconds_since_round", status.seconds_since_round},
               {"waiting", status.waiting},   {"preparing", status.preparing},
               {"encoding", status.encoding}, {"slots", Json::array()}};
  for (const SlotStatus& slot : status.slots) {
    json["slots"].push_back({{"sequence", slot.sequence},
                             {"phase", slot.decoding ? "decode" : "prefill"},
                             {"tokens", slot.generated_tokens},
                             {"prompt_tokens", slot.prompt_tokens},
                             {"prefilled_tokens", slot.prefilled_tokens}});
  }
  json["drafted"] = status.drafted;
  json["accepted"] = status.accepted;
  json["requests"] = {{"finished", status.requests_finished},
                      {"cancelled", status.requests_cancelled}};
  json["tokens"] = {{"prompt", status.prompt_tokens},
                    {"cached", status.cached_tokens},
                    {"generated", status.generated_tokens}};
  json["pages"] = {{"capacity", status.cache.capacity_pages},
                   {"free", status.cache.free_pages},
                   {"held", status.cache.held_pages},
                   {"cached", status.cache.cached_pages}};
  json["snapshots"] = status.cache.snapshots;
  json["n_slots"] = model.n_slots;
  json["max_context"] = model.max_context;
  if (!model.transport.empty()) json["transport"] = model.transport;
  json["digests"] = {{"build", model.build_digest},
                     {"checkpoint", model.checkpoint_digest},
                     {"shards", model.shard_digests}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string metrics_text(const ServedModel& model, const SchedulerStatus& status,
                         int64_t requests_refused) {
  Exposition page;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  page.info(model);
  page.add("rounds_total", "counter", "Rounds that the ranks agreed on.", number(status.rounds));
  page.add("requests_finished_total", "counter", "Requests that ended, cancelled ones too.",
           number(status.requests_finished));
  page.add("requests_cancelled_total", "counter", "Requests that were cancelled.",
           number(status.requests_cancelled));
  page.add("requests_refused_total", "counter", "Requests that were refused.",
           number(requests_refused));
  page.add("prompt_tokens_total", "counter", "Prompt tokens, cached ones too.",
           number(status.prompt_tokens));
  page.add("cached_tokens_total", "counter", "Prompt tokens that the prefix cache spared.",
           number(status.cached_tokens));
  page.add("generated_tokens_total", "counter", "Tokens of finished requests.",
           number(status.generated_tokens));
  page.add("drafted_tokens_total", "counter", "Drafts that were verified.", number(status.drafted));
  page.add("accepted_tokens_total", "counter", "Drafts that were accepted.",
           number(status.accepted));
  page.add("slots_running", "gauge", "Requests in a slot.",
           number(static_cast<int64_t>(status.slots.size())));
  page.add("requests_waiting", "gauge", "Requests without a slot.", number(status.waiting));
  page.add("kv_pages", "gauge", "Pages of the KV cache.", number(status.cache.capacity_pages));
  page.add("kv_pages_free", "gauge", "Pages that nothing owns.", number(status.cache.free_pages));
  page.add("kv_pages_held", "gauge", "Pages of running requests.", number(status.cache.held_pages));
  page.add("kv_pages_cached", "gauge", "Pages that only the prefix cache owns.",
           number(status.cache.cached_pages));
  page.add("seconds_since_round", "gauge", "Since the last round ended.",
           status.seconds_since_round);
  return page.text();
}

}  // namespace lockstep

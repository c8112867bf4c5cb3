#include "engine/rank/api/models.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created_unix_s},
          {"owned_by", "lockstep"},
          {"max_model_len", model.max_context},
          {"lockstep",
           {{"ranks", model.n_ranks},
            {"slots", model.n_slots},
            {"build", model.build_digest},
            {"checkpoint", model.checkpoint_digest},
            {"shards", model.shard_digests}}}};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string models_json(const ServedModel& model) {
  return dump({{"object", "list"}, {"data", Json::array({to_json(model)})}});
}

std::string model_json(const ServedModel& model) {
  return dump(to_json(model));
}

}  // namespace lockstep

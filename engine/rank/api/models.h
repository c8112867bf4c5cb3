// OpenAI's GET /v1/models.
#pragma once

#include <string>

#include "engine/rank/api/served_model.h"

namespace lockstep {

// {"object": "list", "data": [model]}
std::string models_json(const ServedModel& model);

// One model: OpenAI's members, max_model_len, and the digests under "lockstep".
std::string model_json(const ServedModel& model);

}  // namespace lockstep

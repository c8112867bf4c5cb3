// A served request as a job that runs it again (docs/formats/jobs.md), and the digest of what came
// of it (docs/formats/request-log.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/rank/api/generation.h"
#include "engine/rank/request.h"

namespace lockstep {

// The job as JSON, without "max_tokens": a request that was cancelled runs again to where it came.
// Pictures are data URLs, as they came.
std::string job_json(const Request& request, const GenerationRequest& asked);

// The job with its limit.
std::string with_max_tokens(const std::string& job, int64_t max_tokens);

// XXH3-128 over the generated ids, as `lockstep replay` compares it.
std::string result_digest(const std::vector<int32_t>& ids);

}  // namespace lockstep

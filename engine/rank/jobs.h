// Job files: one JSON object a line (docs/formats/jobs.md), run in one start of the engine.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/rank/request.h"

namespace lockstep {

// Throws Error that names file, line and field.
std::vector<Request> read_jobs(const std::filesystem::path& path);

// One line of results.jsonl.
std::string result_line(const Request& request, const RequestResult& result);

}  // namespace lockstep

// Job files: one JSON object a line (docs/formats/jobs.md), run in one start of the engine.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/rank/image_reader.h"
#include "engine/rank/model_text.h"
#include "engine/rank/request.h"

namespace lockstep {

// Values from the command line: they override the request, which overrides generation_config.json.
struct JobOverrides {
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};

// What turns the words and pictures of a job into a prompt.
struct PromptMaker {
  const ModelConfig& config;
  const ModelText& text;
  const ImageReader& images;
};

// Throws Error that names file, line and field. Pictures of "images" are files, relative to the
// folder of the job file.
std::vector<Request> read_jobs(const std::filesystem::path& path, const PromptMaker& maker,
                               const SamplingParams& defaults, const JobOverrides& overrides);

// Sampling defaults of DIR/generation_config.json; greedy when it is absent or do_sample is false.
SamplingParams load_generation_defaults(const std::filesystem::path& model_dir);

// One line of results.jsonl. `text` may be null: no "text" field then.
std::string result_line(const Request& request, const RequestResult& result,
                        const std::string* text);

}  // namespace lockstep

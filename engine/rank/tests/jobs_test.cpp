// What reaches the template from a job file is what the request said.
#include "engine/rank/jobs.h"

#include <gtest/gtest.h>

#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

// Members in no alphabetical order: the template prints tool schemas as they were written.
const std::string kChat =
    R"({"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": [)"
    R"({"type": "function", "function": {"name": "get_weather", "description": "Weather now",)"
    R"( "parameters": {"type": "object", "properties": {"town": {"type": "string"},)"
    R"( "day": {"type": "integer"}}, "required": ["town"]}}}]})";

TEST(Jobs, AChatKeepsTheOrderOfItsMembers) {
  const std::string model = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";
  const ModelText text(model);
  const ImageReader images(model, golden_model().config);
  const TempDir folder;
  const auto file = folder.path() / "jobs.jsonl";
  write_file_atomically(file, R"({"name": "chat", "chat": )" + kChat + "}\n");
  const auto requests = read_jobs(file, {golden_model().config, text, images}, {}, {});
  EXPECT_EQ(requests.at(0).prompt, text.encode_chat(kChat));
}

}  // namespace
}  // namespace lockstep::testing

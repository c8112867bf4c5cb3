// lockstep generate: starts one or two rank processes on a job file, or on one prompt.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/apps/rank_runner.h"
#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/rank/request_log.h"
#include "engine/rank/run_flags.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct GenerateFlags {
  RunFlags run;
  std::string jobs;
  std::string out_dir;
  std::string prompt;
  std::string chat;
  std::vector<std::string> images;
  std::string record;
  bool json = false;
};

Json single_job(const GenerateFlags& flags) {
  Json job = {{"name", "prompt"}};
  if (!flags.chat.empty()) {
    job["chat"] = Json::parse(read_text_file(flags.chat), nullptr, false);
    if (!job["chat"].is_object()) fail("--chat {}: is not a JSON object", flags.chat);
  } else {
    job["prompt"] = flags.prompt;
  }
  for (const std::string& image : flags.images)
    job["images"].push_back(fs::absolute(image).string());
  return job;
}

void print_statistics(const Json& result) {
  const Json& timing = result["timing"];
  const Json& mtp = result["mtp"];
  const double decode_s = timing["decode_s"].get<double>();
  const double rate = decode_s > 0 ? timing["decode_tokens"].get<double>() / decode_s : 0.0;
  fmt::print(stderr,
             "{} prompt tokens ({} cached), {} generated ({}), {:.1f} tokens/s; drafts {} of {}\n",
             result["prompt_tokens"].get<int64_t>(), result["cache"]["hit_tokens"].get<int64_t>(),
             result["completion_tokens"].get<int64_t>(), result["finish_reason"].get<std::string>(),
             rate, mtp["accepted"].get<int64_t>(), mtp["drafted"].get<int64_t>());
}

// One prompt: the text to stdout, statistics to stderr, or everything as JSON to stdout.
int generate_one(const GenerateFlags& flags) {
  const TempDir folder;
  const fs::path jobs = folder.path() / "jobs.jsonl";
  write_file_atomically(
      jobs, single_job(flags).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!flags.record.empty()) require_recordable(flags.record, flags.run, jobs);
  if (const int code = run_ranks(flags.run, jobs, folder.path()); code != 0) return code;
  if (!flags.record.empty()) write_request_log(flags.record, flags.run, jobs, folder.path());
  Json result = Json::parse(read_text_file(folder.path() / "results.jsonl"));
  if (flags.json) {
    result.erase("name");
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}\n", result["text"].get<std::string>());
    std::fflush(stdout);
    print_statistics(result);
  }
  return 0;
}

int generate_jobs(const GenerateFlags& flags) {
  std::error_code error;
  fs::create_directories(flags.out_dir, error);
  if (error) fail("--out {}: {}", flags.out_dir, error.message());
  if (!flags.record.empty()) require_recordable(flags.record, flags.run, flags.jobs);
  const int code = run_ranks(flags.run, flags.jobs, flags.out_dir);
  if (code == 0 && !flags.record.empty()) {
    write_request_log(flags.record, flags.run, flags.jobs, flags.out_dir);
  }
  if (code == 0 && flags.json) {
    fmt::print("{}", read_text_file(fs::path(flags.out_dir) / "results.jsonl", size_t{1} << 30));
  }
  return code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-generate", [&] {
    CLI::App app("Generate text from a prompt, or run a job file, on one or two ranks");
    lockstep::GenerateFlags flags;
    lockstep::add_run_options(app, flags.run);
    auto* prompt = app.add_option("--prompt", flags.prompt, "Text to continue");
    auto* chat = app.add_option("--chat", flags.chat, "File with a chat-completions request body");
    auto* images = app.add_option("--image", flags.images,
                                  "Picture that --prompt or --chat is about (repeatable)");
    images->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    auto* jobs = app.add_option("--jobs", flags.jobs, "Job file, one JSON object a line");
    auto* out =
        app.add_option("--out", flags.out_dir, "Folder for results.jsonl and taps of --jobs");
    jobs->needs(out);
    out->needs(jobs);
    prompt->excludes(chat)->excludes(jobs);
    chat->excludes(jobs);
    images->excludes(jobs);
    app.add_option("--record", flags.record,
                   "Write a request log that 'lockstep replay' runs again");
    app.add_flag("--json", flags.json, "Print the results as JSON");
    app.parse_complete_callback([&] {
      if (prompt->count() + chat->count() + jobs->count() == 0) {
        throw CLI::RequiredError("one of --prompt, --chat and --jobs");
      }
    });
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    if (!flags.record.empty()) lockstep::require_writable("--record", flags.record);
    return jobs->count() > 0 ? lockstep::generate_jobs(flags) : lockstep::generate_one(flags);
  });
}

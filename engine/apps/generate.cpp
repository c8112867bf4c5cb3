// lockstep generate: starts one or two rank processes on a job file, or on one prompt.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "engine/comm/mailbox.h"
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
  bool json = false;
};

std::vector<std::string> rank_command(const GenerateFlags& flags, const fs::path& jobs,
                                      const fs::path& out_dir, int rank, int mailbox_fd) {
  const char* program = flags.run.fault.empty() ? "lockstep-rank" : "lockstep-rank-faulty";
  std::vector<std::string> argv = {sibling_program(program).string(),
                                   "--jobs=" + jobs.string(),
                                   "--out=" + out_dir.string(),
                                   "--rank=" + std::to_string(rank)};
  for (std::string& argument : run_arguments(flags.run)) argv.push_back(std::move(argument));
  if (mailbox_fd >= 0) argv.push_back("--mailbox=/proc/self/fd/" + std::to_string(mailbox_fd));
  return argv;
}

// Waits for all ranks. When one fails, the others get a moment to say why and are then killed; the exit
// code is that of the first that failed.
int wait_for_ranks(std::vector<ChildProcess>& ranks) {
  using Clock = std::chrono::steady_clock;
  std::vector<bool> done(ranks.size(), false);
  int exit_code = 0;
  Clock::time_point give_up = Clock::time_point::max();
  for (size_t n_done = 0; n_done < ranks.size();) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (done[i] || ranks[i].running()) continue;
      done[i] = true;
      ++n_done;
      const int code = ranks[i].wait();
      if (code != 0 && exit_code == 0) {
        exit_code = code;
        give_up = Clock::now() + std::chrono::seconds(2);
      }
    }
    if (Clock::now() > give_up) {
      ranks.clear();  // kills what still runs
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return exit_code;
}

int run_ranks(const GenerateFlags& flags, const fs::path& jobs, const fs::path& out_dir) {
  const int mailbox_fd = flags.run.n_ranks > 1 ? create_mailbox_file() : -1;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < flags.run.n_ranks; ++rank) {
    ranks.emplace_back(rank_command(flags, jobs, out_dir, rank, mailbox_fd));
  }
  return wait_for_ranks(ranks);
}

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
  fmt::print(stderr, "{} prompt tokens ({} cached), {} generated ({}), {:.1f} tokens/s; drafts {} of {}\n",
             result["prompt_tokens"].get<int64_t>(), result["cache"]["hit_tokens"].get<int64_t>(),
             result["completion_tokens"].get<int64_t>(),
             result["finish_reason"].get<std::string>(), rate, mtp["accepted"].get<int64_t>(),
             mtp["drafted"].get<int64_t>());
}

// One prompt: the text to stdout, statistics to stderr, or everything as JSON to stdout.
int generate_one(const GenerateFlags& flags) {
  const TempDir folder;
  const fs::path jobs = folder.path() / "jobs.jsonl";
  write_file_atomically(
      jobs, single_job(flags).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (const int code = run_ranks(flags, jobs, folder.path()); code != 0) return code;
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
  const int code = run_ranks(flags, flags.jobs, flags.out_dir);
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
    auto* out = app.add_option("--out", flags.out_dir, "Folder for results.jsonl and taps of --jobs");
    jobs->needs(out);
    out->needs(jobs);
    prompt->excludes(chat)->excludes(jobs);
    chat->excludes(jobs);
    images->excludes(jobs);
    app.add_flag("--json", flags.json, "Print the results as JSON");
    try {
      app.parse(argc, argv);
      if (prompt->count() + chat->count() + jobs->count() == 0) {
        throw CLI::RequiredError("one of --prompt, --chat and --jobs");
      }
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : static_cast<int>(lockstep::ExitCode::usage);
    }
    return jobs->count() > 0 ? lockstep::generate_jobs(flags) : lockstep::generate_one(flags);
  });
}

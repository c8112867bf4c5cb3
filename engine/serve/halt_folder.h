// Folders of halt records: DIR/PID-START holds what ranks and proxy leave at a halt
// (docs/formats/halt.md). Private, because it holds the requests that were in flight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/serve/messages.h"

namespace lockstep::serve {

struct Halt {
  int64_t unix_time_s = 0;
  int rank = -1;  // -1: no single one
  int exit_code = 0;
  std::string reason;
  std::string requests;  // in flight: "req-1 (decode), req-2 (prefill)"
  std::filesystem::path folder;
};

// Throws Error when it cannot be made.
std::filesystem::path make_halt_folder(const std::filesystem::path& dir, int start);
void remove_if_empty(const std::filesystem::path& folder);
// Removes empty folders of servers that no longer run.
void reclaim_halt_folders(const std::filesystem::path& dir);

// A request that was with the ranks.
struct HaltedRequest {
  std::string id;
  uint64_t sequence = 0;
  Phase phase = Phase::queued;
  uint64_t seed = 0;
  int64_t unix_time_s = 0;
  ClientRequest request;
};

// FOLDER/requests.jsonl, so that they can be run again.
void write_halt_requests(const std::filesystem::path& folder,
                         const std::vector<HaltedRequest>& requests);
// FOLDER/halt.json. `engine_arguments`: flags of 'lockstep generate' that run the same engine.
void write_halt_summary(const Halt& halt, const std::vector<std::string>& engine_arguments);

}  // namespace lockstep::serve

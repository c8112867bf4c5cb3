// What a rank leaves behind when it halts.
#pragma once

#include <deque>
#include <string>

#include "engine/base/error.h"
#include "engine/rank/http/scheduler.h"

namespace lockstep {

// JSON: {"halt": 1, "rank", "pid", "exit_code", "message", "rounds": [[record of rank 0, record of
// rank 1], ...]}, oldest round first.
std::string halt_json(const Error& error, int rank, const std::deque<RecordedRound>& rounds);

struct HaltDump {
  std::string program;
  std::string folder;  // empty: nothing is written
  int rank = 0;

  // Writes FOLDER/halt-RANK-PID.json, says the error on stderr and ends the process with its exit
  // code, at once: open streams end without a proper ending.
  [[noreturn]] void end_process(const Error& error, const std::deque<RecordedRound>& rounds) const;
};

}  // namespace lockstep

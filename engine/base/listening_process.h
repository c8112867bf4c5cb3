// A server as a child process, for benchmarks and tests: it takes a free port and says which in its
// first line on stdout, {"event":"listening",...,"port":N}.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {

class ListeningProcess {
 public:
  // Starts `argv` and returns once its stdout holds a line with `awaited`. Throws Error (exit 3)
  // with its stderr when it ends before, or when `bound` is over.
  ListeningProcess(const std::vector<std::string>& argv, std::string_view awaited,
                   std::chrono::milliseconds bound = std::chrono::minutes(10));

  uint16_t port() const { return port_; }
  std::string log() const;  // stderr so far
  ChildProcess& process() const { return *process_; }

 private:
  std::string said() const;  // whole lines of stdout so far

  TempDir folder_;
  std::unique_ptr<ChildProcess> process_;
  uint16_t port_ = 0;
};

}  // namespace lockstep

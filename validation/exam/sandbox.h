// Runs code that nobody trusts: in a process of its own, without network, without other processes,
// without files to write, with limits on time, memory and output.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct SandboxLimits {
  std::chrono::seconds wall{10};
  int cpu_s = 2;
  int64_t memory_bytes = int64_t{512} << 20;  // of address space
  int64_t output_bytes = int64_t{64} << 10;
};

enum class SandboxEnd { finished, failed, out_of_time, killed };

struct SandboxResult {
  SandboxEnd end = SandboxEnd::finished;
  int exit_code = 0;
  std::string output;  // stdout and stderr together, at most output_bytes
};

class Sandbox {
 public:
  // `program` is lockstep-exam, which starts itself with --contained inside the walls.
  explicit Sandbox(std::filesystem::path program, SandboxLimits limits = {});

  // Why this machine cannot contain a program, in one line; empty when it can. Found by trying.
  std::string unavailable() const;

  // Runs Python code with /usr/bin/python3; the code can read `input` as /input and nothing else
  // but /usr. Throws Error (exit 3) when the walls cannot be built.
  SandboxResult run_python(const std::string& code, const std::string& input) const;

 private:
  std::filesystem::path program_;
  SandboxLimits limits_;
};

// The inner half: builds the walls in this process, runs FOLDER/code there, and returns the exit
// code. Exit kNoWalls with one line on stderr when a wall cannot be built.
inline constexpr int kNoWalls = 125;
int run_contained(const std::filesystem::path& folder, const SandboxLimits& limits);

}  // namespace lockstep

// What `lockstep bench cpu` was asked to measure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct CpuBenchSettings {
  std::filesystem::path golden = "golden";
  std::filesystem::path model;     // empty: GOLDEN/tiny-qwen3_5
  std::filesystem::path generate;  // empty: lockstep-generate beside this program
  std::string cpu_target = "auto";
  std::string kv = "bf16";
  std::vector<int> threads = {1, 2};
  std::vector<std::string> codecs;  // empty: all
  std::vector<std::string> prompts = {"code-short", "code-3k"};
  std::vector<std::string> sections = {"ops", "engine"};
  int n_runs = 3;
  int n_decode_tokens = 64;
  int64_t max_matrix_bytes = int64_t{24} << 20;
  std::filesystem::path machine;  // a probe profile of this machine; empty for none
  bool json = false;

  bool wants(const std::string& section) const;
};

}  // namespace lockstep

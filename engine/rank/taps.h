// Named tensors that a run offers to its judge (names of the oracle: embed, layers.N.mixer,
// layers.N.mlp, layers.N.out, final_norm, decode/..., state/...). A job without taps pays one null
// check.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/model/shard_plan.h"

namespace lockstep {

struct TapRequest {
  std::vector<std::string> names;  // exact, or a prefix followed by '*'
  int64_t last = 8;                // positions: the last of the prompt, the first of decode

  bool wants(const std::string& name) const;
};

class TapRecorder {
 public:
  explicit TapRecorder(const TapRequest& request) : request_(request) {}

  bool wants(const std::string& name) const { return request_.wants(name); }
  // Whether any pattern can match a name that starts with "state/".
  bool wants_states() const;
  int64_t last() const { return request_.last; }

  // Rows [first_row, first_row + n_rows) of a replicated tensor [.., width]. A later call for the
  // same rows counts: columns of refused drafts are fed again.
  void put_rows(const std::string& name, int64_t first_row, const float* rows, int64_t n_rows,
                int64_t width);

  // A tensor of which this rank holds the dimension-0 ranges `ranges` of `total`.
  void put_sharded(const std::string& name, const std::vector<int64_t>& shape,
                   const std::vector<float>& values, int64_t total,
                   const std::vector<IndexRange>& ranges);

  // Safetensors; metadata "shard:NAME" = "TOTAL;a:b,c:d" for sharded tensors.
  void write(const std::filesystem::path& path) const;

 private:
  struct Tap {
    std::vector<int64_t> shape;
    std::vector<float> values;
    std::string shard;
  };
  TapRequest request_;
  std::map<std::string, Tap> taps_;
};

}  // namespace lockstep

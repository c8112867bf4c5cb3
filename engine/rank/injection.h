// Tensors that a job puts in place of what a pass computes: the names and shapes of the row taps
// (docs/formats/taps.md). A prompt tensor [n, hidden] holds the last n prompt positions, a
// "decode/" tensor the first n positions that decode feeds. Taps of the same names record what was
// computed, before it is replaced: with every layer's output put in, each layer is seen alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/ops/common/rounding.h"
#include "engine/rank/taps.h"

namespace lockstep {

class Injection {
 public:
  struct Rows {
    int64_t n_rows = 0;
    std::vector<float> values;  // [n_rows, hidden]
  };

  // Takes the tensors of a safetensors file that `chosen` names. Throws Error that names file and
  // tensor: unreadable, none chosen, a name that cannot be put in, a shape that is not [n, hidden].
  Injection(const std::filesystem::path& path, const TapRequest& chosen, const ModelConfig& config);

  // Throws Error that starts with `where` when a tensor has more rows than the request has
  // positions for it.
  void check(int64_t prompt_tokens, int64_t max_tokens, const std::string& where) const;

  // Null when there is none of that name.
  const Rows* find(const std::string& name) const;

 private:
  std::string label_;
  std::map<std::string, Rows> tensors_;
};

// Replaces rows of x [n_tokens, width] of the positions from `first_position` on by those that the
// tensor holds from `tensor_position` on, each value rounded as an activation is.
void replace_rows(const Injection::Rows& rows, int64_t tensor_position, int64_t first_position,
                  int64_t n_tokens, int64_t width, Rounding rounding, float* x);

}  // namespace lockstep

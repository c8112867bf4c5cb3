// What is in a checkpoint, what runs where, and what is odd about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/config.h"

namespace lockstep {

// Matrices or small tensors of one class ("mlp", "attention", ...) that share a serialisation.
struct InspectRow {
  std::string tensor_class;
  std::string format;  // name of the weight format, or dtypes of small tensors
  int64_t n_matrices = 0;
  int64_t n_bytes = 0;
  std::vector<int64_t> rank_bytes;  // [rank]
};

struct InspectReport {
  std::vector<InspectRow> rows;
  int64_t n_tensors = 0;
  int64_t n_bytes = 0;
  bool has_mtp = false;
  bool has_vision = false;
  std::vector<std::string> oddities;  // one line each
};

// The class of a tensor by its canonical name: embedding, lm_head, attention, gdn, mlp, norms, mtp,
// vision.
std::string tensor_class(const std::string& name);

// `config_json` is the text of config.json, whose claims about formats are compared with the
// tensors.
InspectReport inspect_checkpoint(const ModelConfig& config, const Checkpoint& checkpoint,
                                 int n_ranks, const std::string& config_json);

// Adds a line for every format in the report that is known to be slow on one of these cards.
void note_slow_formats(const std::vector<std::string>& cards, InspectReport& report);

}  // namespace lockstep

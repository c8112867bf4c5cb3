// Writes the text model as one GGUF file of architecture qwen35, as llama.cpp reads it: other
// names, norm weights stored as 1 + w, -exp(A_log), and value heads in tiled order. Vision is left
// out.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/companion_files.h"
#include "engine/model/config.h"
#include "engine/model/convert/convert.h"

namespace lockstep {

const std::vector<std::string_view>& gguf_targets();  // "gguf-f32", "gguf-f16", "gguf-q8_0"

struct GgufReport {
  std::filesystem::path path;
  int64_t n_tensors = 0;
  std::vector<ConvertError> errors;
};

// Writes OUT/model-TYPE.gguf. Small tensors are F32 in every target. Throws Error when the model
// cannot be written so (irregular layer types, `with_mtp` without an MTP layer, rows that q8_0
// cannot hold).
GgufReport export_gguf(const ModelConfig& config, const Checkpoint& source,
                       const CompanionFiles& companions, const std::string& target, bool with_mtp,
                       const std::filesystem::path& out);

// Index of the value head that lies at `position` in tiled order: position r*K + k holds head k*R +
// r, for K key heads with R value heads each.
int64_t tiled_v_head(const GdnConfig& gdn, int64_t position);

}  // namespace lockstep

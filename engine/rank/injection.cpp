#include "engine/rank/injection.h"

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/model/safetensors.h"

namespace lockstep {
namespace {

const std::string kDecode = "decode/";

// Names without "decode/" that forward() passes its rows through.
std::set<std::string> row_taps(const ModelConfig& config) {
  std::set<std::string> names = {"embed", "final_norm"};
  for (int layer = 0; layer < config.n_layers(); ++layer) {
    for (const char* branch : {"mixer", "mlp", "out"}) {
      names.insert(fmt::format("layers.{}.{}", layer, branch));
    }
  }
  return names;
}

bool is_decode(const std::string& name) {
  return name.starts_with(kDecode);
}

}  // namespace

Injection::Injection(const std::filesystem::path& path, const TapRequest& chosen,
                     const ModelConfig& config)
    : label_(path.string()) {
  const SafetensorsFile file(path);
  const std::set<std::string> known = row_taps(config);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!chosen.wants(tensor.name)) continue;
    const std::string point =
        is_decode(tensor.name) ? tensor.name.substr(kDecode.size()) : tensor.name;
    if (known.count(point) == 0) {
      fail(
          "{}: {} cannot be put in; embed, layers.N.mixer, layers.N.mlp, layers.N.out (N < {}) "
          "and final_norm can, also of decode/",
          label_, tensor.name, config.n_layers());
    }
    if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] != config.hidden_size) {
      fail("{}: {} has shape {}, expected [positions, {}]", label_, tensor.name,
           tensor.shape_text(), config.hidden_size);
    }
    try {
      tensors_[tensor.name] = {tensor.shape[0], to_float_vector(tensor)};
    } catch (const Error& error) {
      fail("{}: {}", label_, error.what());
    }
  }
  if (tensors_.empty()) fail("{}: holds no tensor of the names to put in", label_);
}

void Injection::check(int64_t prompt_tokens, int64_t max_tokens, const std::string& where) const {
  for (const auto& [name, rows] : tensors_) {
    const int64_t limit = is_decode(name) ? max_tokens : prompt_tokens;
    if (rows.n_rows <= limit) continue;
    fail("{}: {}: {} has {} rows, the {} has {} positions", where, label_, name, rows.n_rows,
         is_decode(name) ? "decode phase" : "prompt", limit);
  }
}

const Injection::Rows* Injection::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

void replace_rows(const Injection::Rows& rows, int64_t tensor_position, int64_t first_position,
                  int64_t n_tokens, int64_t width, Rounding rounding, float* x) {
  const int64_t begin = std::max(tensor_position, first_position);
  const int64_t end = std::min(tensor_position + rows.n_rows, first_position + n_tokens);
  if (begin >= end) return;
  const float* from = rows.values.data() + (begin - tensor_position) * width;
  float* to = x + (begin - first_position) * width;
  for (int64_t i = 0; i < (end - begin) * width; ++i) {
    to[i] = rounding == Rounding::bf16 ? round_to_bf16(from[i]) : from[i];
  }
}

}  // namespace lockstep

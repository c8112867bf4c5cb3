#include "engine/model/unused_layers.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "engine/base/error.h"

namespace lockstep {
namespace {

// The number that follows `prefix` in a tensor's name; -1 for names of another kind.
int layer_of(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return -1;
  int layer = -1;
  const char* begin = name.data() + prefix.size();
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, layer);
  return error == std::errc() && stop != end && *stop == '.' ? layer : -1;
}

void refuse_beyond(const Checkpoint& checkpoint, const std::string& prefix, const char* key,
                   int n_used) {
  int first = -1;
  int last = -1;
  std::string example;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const int layer = layer_of(name, prefix);
    if (layer < n_used) continue;
    if (first < 0 || layer < first) {
      first = layer;
      example = name;
    }
    last = std::max(last, layer);
  }
  if (first < 0) return;
  fail(
      "{}: holds layers {} to {} ({} ...), which {} {} of config.json leaves unused: set it to {} "
      "or fetch the config again",
      checkpoint.label(), first, last, example, key, n_used, last + 1);
}

}  // namespace

void refuse_unused_layers(const ModelConfig& config, const Checkpoint& checkpoint) {
  refuse_beyond(checkpoint, "model.language_model.layers.", "num_hidden_layers", config.n_layers());
  if (!config.vision) return;
  refuse_beyond(checkpoint, "model.visual.blocks.", "vision_config.depth", config.vision->depth);
}

}  // namespace lockstep

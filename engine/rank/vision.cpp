#include "engine/rank/vision.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/ops/bias_add/bias_add.h"
#include "engine/ops/gelu/gelu.h"
#include "engine/ops/layernorm/layernorm.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/vision_attention/vision_attention.h"
#include "engine/ops/vision_rope/vision_rope.h"
#include "engine/ops/weighted_embedding/weighted_embedding.h"

namespace lockstep {
namespace {

constexpr double kRopeTheta = 10000.0;
constexpr float kNormEps = 1e-6f;
constexpr int64_t kMlpRows = 1024;  // patches that go through the MLP together: bounds its memory

using Rows = std::vector<float>;

// Place of every patch on the grid, in merge order.
std::vector<GridPosition> grid_positions(const ImagePatches& image) {
  const int64_t merge = image.merge_size;
  const int64_t blocks_across = image.grid_width / merge;
  std::vector<GridPosition> positions;
  for (int64_t n = 0; n < image.n_patches(); ++n) {
    const int64_t block = n / (merge * merge);
    const int64_t inside = n % (merge * merge);
    positions.push_back({static_cast<int32_t>(block / blocks_across * merge + inside / merge),
                         static_cast<int32_t>(block % blocks_across * merge + inside % merge)});
  }
  return positions;
}

// A coordinate of `n` evenly spaced ones from 0 to side - 1: between which two table rows it lies.
struct Between {
  int32_t low;
  int32_t high;
  float share;  // of `high`
};

Between place_between(int64_t i, int64_t n, int64_t side) {
  if (n == 1) return {0, static_cast<int32_t>(std::min<int64_t>(1, side - 1)), 0.0f};
  const int64_t scaled = i * (side - 1);
  const int64_t low = scaled / (n - 1);
  const float share = static_cast<float>(scaled % (n - 1)) / static_cast<float>(n - 1);
  Between between{static_cast<int32_t>(low), static_cast<int32_t>(std::min(low + 1, side - 1)),
                  share};
  if (fault_fires("vision.position-nearest")) between.share = share < 0.5f ? 0.0f : 1.0f;
  return between;
}

// Position embeddings are a square table, read bilinearly with the corners aligned.
std::vector<WeightedRows> position_sources(const ImagePatches& image,
                                           const std::vector<GridPosition>& positions,
                                           int64_t side) {
  std::vector<WeightedRows> sources;
  for (const GridPosition& position : positions) {
    const Between row = place_between(position[0], image.grid_height, side);
    const Between column = place_between(position[1], image.grid_width, side);
    const auto at = [&](int32_t r, int32_t c) { return r * static_cast<int32_t>(side) + c; };
    sources.push_back(
        {{at(row.low, column.low), at(row.low, column.high), at(row.high, column.low),
          at(row.high, column.high)},
         {(1.0f - row.share) * (1.0f - column.share), (1.0f - row.share) * column.share,
          row.share * (1.0f - column.share), row.share * column.share}});
  }
  return sources;
}

Rows product(const Model& model, const BiasedMatrix& matrix, const float* x, int64_t n_rows) {
  const WeightMatrix& weight = matrix.weight;
  Rows out(static_cast<size_t>(n_rows * weight.n_rows));
  linear({weight, x, weight.n_cols, out.data(), weight.n_rows, n_rows, Rounding::none}, model.pool);
  bias_add(out.data(), matrix.bias.data(), n_rows, weight.n_rows, model.rounding, model.pool);
  return out;
}

Rows normalised(const Model& model, const LayerNormWeights& norm, const Rows& x) {
  const auto width = static_cast<int64_t>(norm.weight.size());
  Rows out(x.size());
  layernorm({x.data(), norm.weight.data(), norm.bias.data(), out.data(),
             static_cast<int64_t>(x.size()) / width, width, kNormEps, model.rounding},
            model.pool);
  return out;
}

void add(const Model& model, const Rows& branch, float* x) {
  residual_add(x, branch.data(), static_cast<int64_t>(branch.size()), model.rounding);
}

// Patches in the order of the processor; as float32 they are rounded to what the precision stores.
Rows embed_patches(const Model& model, const ImagePatches& image,
                   const std::vector<GridPosition>& positions) {
  const VisionWeights& weights = *model.weights.vision;
  const int64_t width = weights.patch_embed.weight.n_cols;
  Rows patches = image.values;
  if (fault_fires("vision.patch-order")) {
    for (int64_t n = 0; n + 3 < image.n_patches(); n += 4) {
      std::swap_ranges(patches.begin() + (n + 1) * width, patches.begin() + (n + 2) * width,
                       patches.begin() + (n + 2) * width);
    }
  }
  Rows x = product(model, weights.patch_embed, patches.data(), image.n_patches());
  const int64_t hidden = model.config.vision->hidden_size;
  const int64_t n_positions = model.config.vision->n_position_embeddings;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(n_positions)));
  const std::vector<WeightedRows> sources = position_sources(image, positions, side);
  Rows embedded(x.size());
  weighted_embedding({weights.positions.data(), n_positions, hidden, sources.data(),
                      embedded.data(), image.n_patches(), model.rounding},
                     model.pool);
  add(model, embedded, x.data());
  return x;
}

// x += proj(attention(norm1(x)))
void attend_patches(const Model& model, const VisionBlockWeights& block,
                    const std::vector<GridPosition>& positions, Rows& x) {
  const VisionConfig& vision = *model.config.vision;
  const int64_t hidden = vision.hidden_size;
  const int head_dim = vision.hidden_size / vision.n_heads;
  const auto n = static_cast<int64_t>(positions.size());
  const std::vector<float> inv_freq = rope_inverse_frequencies(kRopeTheta, head_dim / 2);
  const Rows normed = normalised(model, block.norm1, x);
  Rows qkv = product(model, block.qkv, normed.data(), n);
  std::vector<GridPosition> places = positions;
  if (fault_fires("vision.rope-axes-swapped")) {
    for (GridPosition& place : places) std::swap(place[0], place[1]);
  }
  for (float* part : {qkv.data(), qkv.data() + hidden}) {
    vision_rope({part, 3 * hidden, places.data(), inv_freq.data(), n, vision.n_heads, head_dim,
                 model.rounding},
                model.pool);
  }
  Rows out(x.size());
  vision_attention(
      {qkv.data(), qkv.data() + hidden, qkv.data() + 2 * hidden, 3 * hidden, out.data(), n,
       vision.n_heads, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim)), model.rounding},
      model.pool);
  add(model, product(model, block.proj, out.data(), n), x.data());
}

// x += fc2(gelu(fc1(norm2(x))))
void transform_patches(const Model& model, const VisionBlockWeights& block, Rows& x) {
  const int64_t hidden = model.config.vision->hidden_size;
  const auto n = static_cast<int64_t>(x.size()) / hidden;
  const Rows normed = normalised(model, block.norm2, x);
  for (int64_t begin = 0; begin < n; begin += kMlpRows) {
    const int64_t n_rows = std::min(kMlpRows, n - begin);
    Rows wide = product(model, block.fc1, normed.data() + begin * hidden, n_rows);
    gelu(wide.data(), static_cast<int64_t>(wide.size()), GeluKind::tanh, model.rounding,
         model.pool);
    add(model, product(model, block.fc2, wide.data(), n_rows), x.data() + begin * hidden);
  }
}

// Norm of each patch, then merge^2 patches in a row as one.
Rows merge_patches(const Model& model, int64_t n_tokens, const Rows& x) {
  const VisionWeights& weights = *model.weights.vision;
  const Rows normed = normalised(model, weights.merger_norm, x);
  Rows wide = product(model, weights.merger_fc1, normed.data(), n_tokens);
  const GeluKind kind = fault_fires("vision.merger-gelu-tanh") ? GeluKind::tanh : GeluKind::exact;
  gelu(wide.data(), static_cast<int64_t>(wide.size()), kind, model.rounding, model.pool);
  return product(model, weights.merger_fc2, wide.data(), n_tokens);
}

}  // namespace

std::vector<float> vision_forward(const Model& model, const ImagePatches& image) {
  LOCKSTEP_CHECK(model.weights.vision != nullptr && model.config.vision.has_value());
  const VisionWeights& weights = *model.weights.vision;
  LOCKSTEP_CHECK(image.merge_size == model.config.vision->spatial_merge_size);
  LOCKSTEP_CHECK(static_cast<int64_t>(image.values.size()) ==
                 image.n_patches() * weights.patch_embed.weight.n_cols);
  const std::vector<GridPosition> positions = grid_positions(image);
  Rows x = embed_patches(model, image, positions);
  for (const VisionBlockWeights& block : weights.blocks) {
    attend_patches(model, block, positions, x);
    transform_patches(model, block, x);
  }
  return merge_patches(model, image.n_tokens(), x);
}

}  // namespace lockstep

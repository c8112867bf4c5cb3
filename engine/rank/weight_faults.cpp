// Planted faults in weights, as a wrong loader or converter would leave them.
#include "engine/rank/planted_faults.h"

#if defined(LOCKSTEP_FAULTS)

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/math.h"

namespace lockstep {
namespace {

// Makes a private copy of bytes that a fault will change.
std::byte* private_codes(WeightMatrix& matrix, RankWeights& weights) {
  const auto n_bytes = static_cast<size_t>(matrix.row_bytes * matrix.n_rows);
  auto copy = std::make_shared<std::vector<std::byte>>(matrix.codes, matrix.codes + n_bytes);
  matrix.codes = copy->data();
  weights.keep_alive.push_back(copy);
  return copy->data();
}

uint8_t* private_scales(WeightMatrix& matrix, RankWeights& weights) {
  const auto* scales = static_cast<const uint8_t*>(matrix.block_scales);
  const auto n_bytes = static_cast<size_t>(matrix.block_scale_stride * matrix.n_rows);
  auto copy = std::make_shared<std::vector<uint8_t>>(scales, scales + n_bytes);
  matrix.block_scales = copy->data();
  weights.keep_alive.push_back(copy);
  return copy->data();
}

void swap_neighbouring_rows(WeightMatrix& matrix, RankWeights& weights) {
  std::byte* codes = private_codes(matrix, weights);
  for (int64_t row = 0; row + 1 < matrix.n_rows; row += 2) {
    std::swap_ranges(codes + row * matrix.row_bytes, codes + (row + 1) * matrix.row_bytes,
                     codes + (row + 1) * matrix.row_bytes);
  }
}

void raise_first_block_scales(WeightMatrix& matrix, RankWeights& weights) {
  if (matrix.codec != Codec::nvfp4) return;
  uint8_t* scales = private_scales(matrix, weights);
  for (int64_t row = 0; row < matrix.n_rows; ++row) {
    uint8_t& code = scales[row * matrix.block_scale_stride];
    if (code < 0x7e) ++code;
  }
}

void shift_block_scales(WeightMatrix& matrix, RankWeights& weights) {
  if (matrix.codec != Codec::nvfp4) return;
  uint8_t* scales = private_scales(matrix, weights);
  for (int64_t row = 0; row < matrix.n_rows; ++row) {
    uint8_t* first = scales + row * matrix.block_scale_stride;
    std::rotate(first, first + 1, first + matrix.block_scale_stride);
  }
}

void swap_nibbles(WeightMatrix& matrix, RankWeights& weights) {
  if (matrix.codec != Codec::nvfp4) return;
  std::byte* codes = private_codes(matrix, weights);
  for (int64_t i = 0; i < matrix.row_bytes * matrix.n_rows; ++i) {
    codes[i] = codes[i] << 4 | codes[i] >> 4;
  }
}

void plant_mlp_faults(MlpWeights& mlp, RankWeights& weights, const FaultSite& site) {
  WeightMatrix& up = mlp.up_proj[0];
  if (fault_fires("mlp.rows-permuted", site)) swap_neighbouring_rows(up, weights);
  if (fault_fires("mlp.block-scale-plus-1", site)) raise_first_block_scales(up, weights);
  if (fault_fires("mlp.scale-of-next-block", site)) shift_block_scales(up, weights);
  if (fault_fires("mlp.nibbles-swapped", site)) swap_nibbles(up, weights);
  if (fault_fires("mlp.global-scale-missing", site)) up.row_scale = nullptr;
}

void plant_gdn_faults(GdnWeights& gdn, const FaultSite& site) {
  if (fault_fires("gdn.dt-bias-missing", site)) {
    std::fill(gdn.dt_bias.begin(), gdn.dt_bias.end(), 0.0f);
  }
  if (fault_fires("gdn.a-log-without-exp", site)) {
    for (float& a : gdn.a_log) a = static_cast<float>(log_f64(std::fabs(a) + 1e-6));
  }
  const bool reversed = fault_fires("gdn.conv-taps-reversed", site);
  const bool late = fault_fires("gdn.conv-one-tap-late", site);
  for (auto tap = gdn.conv.begin(); tap != gdn.conv.end(); tap += kConvWidth) {
    if (reversed) std::reverse(tap, tap + kConvWidth);
    if (late) std::rotate(tap, tap + 1, tap + kConvWidth);
  }
}

void plant_attention_faults(AttentionWeights& attention, const FaultSite& site) {
  if (fault_fires("attention.q-norm-is-k-norm", site)) attention.q_norm = attention.k_norm;
  if (fault_fires("attention.fp8-scale-missing", site)) attention.v_proj[0].row_scale = nullptr;
}

}  // namespace

void plant_weight_faults(RankWeights& weights) {
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const FaultSite site{static_cast<int>(i), weights.dims.rank, -1};
    LayerWeights& layer = weights.layers[i];
    plant_mlp_faults(layer.mlp, weights, site);
    if (layer.kind == LayerKind::full_attention) {
      plant_attention_faults(layer.attention, site);
    } else {
      plant_gdn_faults(layer.gdn, site);
    }
    if (i + 1 < weights.layers.size() && fault_fires("weights.norm-of-next-layer", site)) {
      layer.input_norm = weights.layers[i + 1].input_norm;
    }
  }
  if (fault_fires("weights.final-norm-is-first")) weights.final_norm = weights.layers[0].input_norm;
  if (weights.mtp != nullptr && fault_fires("mtp.norms-swapped")) {
    std::swap(weights.mtp->embedding_norm, weights.mtp->hidden_norm);
  }
}

}  // namespace lockstep

#endif

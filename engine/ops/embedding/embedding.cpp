#include "engine/ops/embedding/embedding.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

// Tables lie in a file mapping at any alignment, hence memcpy.
template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

void widen_row(Codec codec, const std::byte* row, int64_t n, float* out) {
  switch (codec) {
    case Codec::bf16:
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(load<uint16_t>(row + 2 * i));
      return;
    case Codec::f16:
      for (int64_t i = 0; i < n; ++i) out[i] = f16_to_float(load<uint16_t>(row + 2 * i));
      return;
    case Codec::f32:
      std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
      return;
    default:
      LOCKSTEP_CHECK(!"an embedding table is stored as bf16, f16 or f32");
  }
}

}  // namespace

void embedding(const WeightMatrix& table, const int32_t* ids, int64_t n_tokens, Rounding rounding,
               float* out) {
  // bf16 is already what rounding would give.
  const bool round = rounding == Rounding::bf16 && table.codec != Codec::bf16;
  for (int64_t t = 0; t < n_tokens; ++t) {
    LOCKSTEP_CHECK(ids[t] >= 0 && ids[t] < table.n_rows);
    float* row = out + t * table.n_cols;
    widen_row(table.codec, table.codes + ids[t] * table.row_bytes, table.n_cols, row);
    if (!round) continue;
    for (int64_t i = 0; i < table.n_cols; ++i) row[i] = round_to_bf16(row[i]);
  }
}

}  // namespace lockstep

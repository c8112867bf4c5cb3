#include "bench/material.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// Random codes of one piece of a matrix; the matrix repeats it. Its length is no power of two, so
// that rows differ.
std::vector<std::byte> code_piece(Codec codec, uint64_t seed) {
  constexpr int64_t kCodes = 30011;
  PhiloxStream random(seed);
  std::vector<std::byte> piece;
  for (int64_t i = 0; i < kCodes; ++i) {
    const float value = 2.0f * random.next_uniform() - 1.0f;
    switch (codec) {
      case Codec::f32:
        append(piece, value);
        break;
      case Codec::bf16:
        append(piece, float_to_bf16(value));
        break;
      case Codec::f16:
        append(piece, float_to_f16(value));
        break;
      case Codec::fp8:
      case Codec::fp8_block:
        append(piece, float_to_e4m3(value));
        break;
      case Codec::nvfp4:
      case Codec::int4:
        append(piece, static_cast<uint8_t>(random.next_below(256)));
        break;
    }
  }
  return piece;
}

}  // namespace

std::vector<float> bench_floats(int64_t n, uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = round_to_bf16(2.0f * random.next_uniform() - 1.0f);
  return values;
}

BenchMatrix::BenchMatrix(Codec codec, int64_t n_rows, int64_t n_cols, uint64_t seed) {
  view_.codec = codec;
  view_.n_rows = n_rows;
  view_.n_cols = n_cols;
  view_.row_bytes = codec_row_bytes(codec, n_cols);
  codes_.resize(static_cast<size_t>(n_rows * view_.row_bytes));
  const std::vector<std::byte> piece = code_piece(codec, seed);
  for (size_t at = 0; at < codes_.size(); at += piece.size()) {
    std::memcpy(codes_.data() + at, piece.data(), std::min(piece.size(), codes_.size() - at));
  }
  view_.codes = codes_.data();
  if (codec == Codec::fp8 || codec == Codec::nvfp4) {
    row_scale_.assign(static_cast<size_t>(n_rows), 0.5f);
    view_.row_scale = row_scale_.data();
  }
  if (codec == Codec::nvfp4) {
    view_.block_scale_stride = n_cols / 16;
    byte_scales_.assign(static_cast<size_t>(n_rows * view_.block_scale_stride),
                        float_to_e4m3(0.75f));
    view_.block_scales = byte_scales_.data();
  } else if (codec == Codec::fp8_block || codec == Codec::int4) {
    const bool blocks = codec == Codec::fp8_block;
    view_.group = blocks ? 0 : kBenchInt4Group;
    view_.block_scale_stride = blocks ? (n_cols + 127) / 128 : n_cols / kBenchInt4Group;
    const int64_t scale_rows = blocks ? (n_rows + 127) / 128 : n_rows;
    float_scales_.assign(static_cast<size_t>(scale_rows * view_.block_scale_stride), 0.125f);
    view_.block_scales = float_scales_.data();
  }
}

BenchCache::BenchCache(KvType type, int n_kv_heads, int head_dim, int64_t n_positions) {
  const int64_t n_pages = (n_positions + kPageTokens - 1) / kPageTokens;
  const int64_t page_bytes = kv_page_bytes(type, n_kv_heads, head_dim);
  const bool halves = type == KvType::fp16 || type == KvType::int8;
  const BenchMatrix codes(halves ? Codec::f16 : Codec::bf16, n_pages, page_bytes / 2, 3);
  pool_.assign(codes.view().codes, codes.view().codes + n_pages * page_bytes);
  pages_.resize(static_cast<size_t>(n_pages));
  std::iota(pages_.begin(), pages_.end(), 0u);
  view_ = {type, n_kv_heads, head_dim, pool_.data(), pages_.data()};
}

}  // namespace lockstep

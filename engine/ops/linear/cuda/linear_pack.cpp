#include "engine/ops/linear/cuda/linear_pack.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/ops/linear/cuda/linear_words.h"

namespace lockstep {
namespace {

// Where the 16 bytes are that hold column `column` of row `row`, and which of their codes it is.
struct Place {
  int64_t vector;  // index of the 16 bytes
  int code;        // 0..vector_codes-1
};

Place place_of(const LinearCudaPlan& plan, int64_t row, int64_t column) {
  const LinearRoute& route = *plan.route;
  const int64_t tile = row / route.tile_rows;
  const auto in_tile = static_cast<int>(row % route.tile_rows);
  if (route.family == KernelFamily::sm70) {
    const int lane = 4 * (in_tile / 8) + in_tile % 4 + 16 * (in_tile % 8 / 4);
    const int64_t n_vectors = plan.padded_cols / route.vector_codes;
    const int64_t vector = column / route.vector_codes;
    return {(tile * n_vectors + vector) * 32 + lane, static_cast<int>(column % route.vector_codes)};
  }
  const int64_t block = column / route.block_columns;
  const auto in_block = static_cast<int>(column % route.block_columns);
  int t = in_block / route.vector_codes;
  int code = in_block % route.vector_codes;
  if (route.codec == Codec::int4) {
    t = in_block % 16 / 4;
    code = 4 * (in_block / 16) + in_block % 4;
  }
  const int64_t n_blocks = plan.padded_cols / route.block_columns;
  const int lane = 4 * (in_tile % 8) + t;
  return {((tile * n_blocks + block) * 2 + in_tile / 8) * 32 + lane, code};
}

// Byte index of the nvfp4 scale of columns [16 group, 16 group + 16) of a row.
int64_t nvfp4_scale_place(const LinearCudaPlan& plan, int64_t row, int64_t group) {
  const LinearRoute& route = *plan.route;
  const int64_t tile = row / route.tile_rows;
  const auto in_tile = static_cast<int>(row % route.tile_rows);
  const int64_t n_blocks = plan.padded_cols / route.block_columns;
  const int groups = route.block_columns / 16;
  const int64_t block = group / groups;
  const auto in_block = static_cast<int>(group % groups);
  if (route.family == KernelFamily::sm70) {
    const int lane = 4 * (in_tile / 8) + in_tile % 4 + 16 * (in_tile % 8 / 4);
    return ((tile * n_blocks + block) * 32 + lane) * 4 + in_block;
  }
  const int lane = 4 * (in_tile % 8) + in_block / 2;
  return ((tile * n_blocks + block) * 32 + lane) * 4 + 2 * (in_tile / 8) + in_block % 2;
}

// The power of two that brings the largest magnitude of a bf16 row to [2^14, 2^15), as exponent.
int bf16_row_shift(const WeightMatrix& matrix, int64_t row) {
  const auto* values = reinterpret_cast<const uint16_t*>(matrix.codes + row * matrix.row_bytes);
  uint32_t largest = 0;
  for (int64_t k = 0; k < matrix.n_cols; ++k) {
    const uint32_t magnitude = values[k] & 0x7fffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const int exponent = static_cast<int>(largest >> 7) - 127;
  return largest == 0 || exponent == 128 ? 0 : std::min(14 - exponent, 126);
}

struct Packer {
  const WeightMatrix& matrix;
  const LinearCudaPlan& plan;
  std::string_view what;
  std::vector<std::byte> bytes;

  Packer(const WeightMatrix& stored, const LinearCudaPlan& target, std::string_view name)
      : matrix(stored), plan(target), what(name) {
    bytes.assign(static_cast<size_t>(plan.weight_bytes), std::byte{0});
  }

  const uint8_t* row(int64_t n) const {
    return reinterpret_cast<const uint8_t*>(matrix.codes + n * matrix.row_bytes);
  }
  void put_word(int64_t vector, int word, uint32_t value) {
    std::memcpy(bytes.data() + vector * 16 + word * 4, &value, 4);
  }
  void put_float(int64_t offset, int64_t index, float value) {
    std::memcpy(bytes.data() + offset + index * 4, &value, 4);
  }

  void pack_nibbles(int64_t n) {
    const uint8_t* codes = row(n);
    const bool e2m1 = matrix.codec == Codec::nvfp4;
    for (int64_t k = 0; k < matrix.n_cols; k += 4) {
      // A word holds eight columns; where int4 blocks interleave lanes, two runs of four.
      const Place place = place_of(plan, n, k);
      if (place.code % 8 != 0) continue;
      const int64_t second = second_half(k);
      uint8_t word[8] = {};
      for (int i = 0; i < 8; ++i) {
        const int64_t column = i < 4 ? k + i : second + i - 4;
        if (column >= matrix.n_cols) continue;
        word[i] = static_cast<uint8_t>((codes[column / 2] >> (4 * (column % 2))) & 15u);
      }
      put_word(place.vector, place.code / 8, e2m1 ? pack_e2m1_word(word) : pack_int4_word(word));
    }
  }
  int64_t second_half(int64_t k) const {
    const bool interleaved =
        plan.route->codec == Codec::int4 && plan.route->family == KernelFamily::sm80;
    return interleaved ? k + 16 : k + 4;
  }

  void pack_bytes(int64_t n) {
    const uint8_t* codes = row(n);
    for (int64_t k = 0; k < matrix.n_cols; k += 4) {
      uint8_t word[4] = {};
      for (int i = 0; i < 4 && k + i < matrix.n_cols; ++i) {
        if (e4m3_is_nan(codes[k + i])) {
          fail("{}: row {} holds a NaN code: the checkpoint is damaged", what, n);
        }
        word[i] = codes[k + i];
      }
      const Place place = place_of(plan, n, k);
      put_word(place.vector, place.code / 4, pack_e4m3_word(word));
    }
  }

  void pack_halves(int64_t n, int shift) {
    const auto* values = reinterpret_cast<const uint16_t*>(row(n));
    const bool convert = matrix.codec == Codec::bf16 && plan.route->family == KernelFamily::sm70;
    for (int64_t k = 0; k < matrix.n_cols; ++k) {
      uint16_t bits = values[k];
      if (convert) bits = float_to_f16(std::ldexp(bf16_to_float(bits), shift));
      const Place place = place_of(plan, n, k);
      std::memcpy(bytes.data() + place.vector * 16 + place.code * 2, &bits, 2);
    }
  }

  void pack_nvfp4_scales(int64_t n) {
    const auto* scales =
        static_cast<const uint8_t*>(matrix.block_scales) + n * matrix.block_scale_stride;
    for (int64_t g = 0; g < matrix.n_cols / 16; ++g) {
      if (scales[g] >= 0x7f) {
        fail("{}: row {} has a negative or NaN block scale: the checkpoint is damaged", what, n);
      }
      bytes[static_cast<size_t>(plan.scales_offset + nvfp4_scale_place(plan, n, g))] =
          std::byte{pack_nvfp4_scale(scales[g])};
    }
  }
  void pack_fp8_block_scales() {
    const auto* scales = static_cast<const float*>(matrix.block_scales);
    const int64_t stride = (plan.padded_cols + 127) / 128;
    for (int64_t r = 0; r < (matrix.n_rows + 127) / 128; ++r) {
      for (int64_t c = 0; c < (matrix.n_cols + 127) / 128; ++c) {
        put_float(plan.scales_offset, r * stride + c, scales[r * matrix.block_scale_stride + c]);
      }
    }
  }
  void pack_int4_scales(int64_t n) {
    const auto* scales =
        static_cast<const float*>(matrix.block_scales) + n * matrix.block_scale_stride;
    for (int64_t g = 0; g < matrix.n_cols / matrix.group; ++g) {
      const uint8_t zero = matrix.zero_points == nullptr
                               ? uint8_t{8}
                               : matrix.zero_points[n * matrix.block_scale_stride + g];
      const int64_t record = g * plan.padded_rows + n;
      const uint32_t wide_zero = zero;
      put_float(plan.scales_offset, 2 * record, scales[g]);
      std::memcpy(bytes.data() + plan.scales_offset + 8 * record + 4, &wide_zero, 4);
    }
  }

  void pack_row(int64_t n) {
    int shift = 0;
    switch (matrix.codec) {
      case Codec::nvfp4:
        pack_nibbles(n);
        pack_nvfp4_scales(n);
        break;
      case Codec::int4:
        pack_nibbles(n);
        pack_int4_scales(n);
        break;
      case Codec::fp8:
      case Codec::fp8_block:
        pack_bytes(n);
        break;
      default:
        if (matrix.codec == Codec::bf16 && plan.route->family == KernelFamily::sm70) {
          shift = bf16_row_shift(matrix, n);
        }
        pack_halves(n, shift);
        break;
    }
    const float scale = matrix.row_scale == nullptr ? 1.0f : matrix.row_scale[n];
    put_float(plan.row_scale_offset, n, std::ldexp(scale, -shift));
  }
};

float word_value(const LinearCudaPlan& plan, uint32_t word, int code) {
  const Codec codec = plan.route->codec;
  if (codec == Codec::nvfp4) {
    uint32_t pairs[4];
    decode_e2m1_word(word, pairs);
    return std::ldexp(f16_to_float(static_cast<uint16_t>(pairs[code / 2] >> (16 * (code % 2)))),
                      14);
  }
  if (codec == Codec::fp8 || codec == Codec::fp8_block) {
    uint32_t pairs[2];
    decode_e4m3_word(word, pairs);
    return std::ldexp(f16_to_float(static_cast<uint16_t>(pairs[code / 2] >> (16 * (code % 2)))), 8);
  }
  return static_cast<float>((word >> (4 * (code / 2) + 16 * (code % 2))) & 15u);
}

float packed_float(const std::vector<std::byte>& packed, int64_t offset, int64_t index) {
  float value;
  std::memcpy(&value, packed.data() + offset + index * 4, 4);
  return value;
}

void check_reversible(const WeightMatrix& matrix, const LinearCudaPlan& plan,
                      const std::vector<std::byte>& packed, std::string_view what) {
  WeightMatrix unscaled = matrix;
  unscaled.row_scale = nullptr;
  std::vector<float> stored(static_cast<size_t>(matrix.n_cols));
  std::vector<float> back(stored.size());
  for (int64_t n = 0; n < matrix.n_rows; ++n) {
    decode_row(unscaled, n, stored.data());
    unpack_row(packed, plan, n, back.data());
    for (size_t k = 0; k < stored.size(); ++k) {
      if (std::bit_cast<uint32_t>(stored[k]) != std::bit_cast<uint32_t>(back[k])) {
        fail("{}: the packed layout does not give row {} column {} back", what, n, k);
      }
    }
  }
}

}  // namespace

std::vector<std::byte> pack_linear(const WeightMatrix& matrix, const LinearCudaPlan& plan,
                                   bool verify, std::string_view what) {
  LOCKSTEP_CHECK(matrix.codec == plan.route->codec && matrix.n_rows == plan.n_rows &&
                 matrix.n_cols == plan.n_cols);
  LOCKSTEP_CHECK(matrix.codec != Codec::int4 || matrix.group == plan.group);
  Packer packer(matrix, plan, what);
  for (int64_t n = 0; n < matrix.n_rows; ++n) packer.pack_row(n);
  if (matrix.codec == Codec::fp8_block) packer.pack_fp8_block_scales();
  if (verify) check_reversible(matrix, plan, packer.bytes, what);
  return std::move(packer.bytes);
}

void unpack_row(const std::vector<std::byte>& packed, const LinearCudaPlan& plan, int64_t row,
                float* out) {
  const Codec codec = plan.route->codec;
  const int word_codes = plan.route->vector_codes / 4;
  for (int64_t k = 0; k < plan.n_cols; ++k) {
    const Place place = place_of(plan, row, k);
    uint32_t word;
    std::memcpy(&word, packed.data() + place.vector * 16 + place.code / word_codes * 4, 4);
    const int code = place.code % word_codes;
    if (codec == Codec::bf16 || codec == Codec::f16) {
      const auto bits = static_cast<uint16_t>(word >> (16 * code));
      const bool half = codec == Codec::f16 || plan.route->family == KernelFamily::sm70;
      out[k] = half ? f16_to_float(bits) : bf16_to_float(bits);
      if (codec == Codec::bf16 && half) {
        out[k] *= packed_float(packed, plan.row_scale_offset, row);
      }
      continue;
    }
    float value = word_value(plan, word, code);
    if (codec == Codec::nvfp4) {
      const auto byte = static_cast<uint32_t>(
          packed[static_cast<size_t>(plan.scales_offset + nvfp4_scale_place(plan, row, k / 16))]);
      const uint32_t half = decode_nvfp4_scales(byte, 0) & 0xffffu;
      value *= std::ldexp(f16_to_float(static_cast<uint16_t>(half)), -7);
    } else if (codec == Codec::fp8_block) {
      const int64_t stride = (plan.padded_cols + 127) / 128;
      value *= packed_float(packed, plan.scales_offset, row / 128 * stride + k / 128);
    } else if (codec == Codec::int4) {
      const int64_t index = k / plan.group * plan.padded_rows + row;
      value -= static_cast<float>(packed[static_cast<size_t>(plan.scales_offset + 8 * index + 4)]);
      value *= packed_float(packed, plan.scales_offset, 2 * index);
    }
    out[k] = value;
  }
}

}  // namespace lockstep

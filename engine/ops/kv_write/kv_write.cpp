#include "engine/ops/kv_write/kv_write.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

constexpr float kLargestF16 = 65504.0f;

uint16_t float_to_f16_saturated(float value) {
  // NaN passes through both comparisons and stays NaN: a poisoned input must stay visible.
  if (value > kLargestF16) value = kLargestF16;
  if (value < -kLargestF16) value = -kLargestF16;
  return float_to_f16(value);
}

// Adding and taking away 1.5 * 2^23 leaves no fraction bits: round to nearest even for |x| < 2^22.
float round_to_integer(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

// A NaN anywhere in the group makes the scale NaN, so that every value reads back as NaN.
void write_int8_group(const float* x, int8_t* codes, uint16_t* scale_bits) {
  float largest = 0;
  bool has_nan = false;
  for (int i = 0; i < kInt8ScaleGroup; ++i) {
    has_nan |= std::isnan(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  *scale_bits = float_to_f16_saturated(has_nan ? NAN : largest / 127.0f);
  const float scale = f16_to_float(*scale_bits);
  if (has_nan || scale == 0.0f) {
    std::memset(codes, 0, kInt8ScaleGroup);
    return;
  }
  for (int i = 0; i < kInt8ScaleGroup; ++i) {
    const float clamped = std::clamp(x[i] / scale, -127.0f, 127.0f);
    codes[i] = static_cast<int8_t>(round_to_integer(clamped));
  }
}

void write_vector(KvType type, const float* x, int head_dim, std::byte* codes, uint16_t* scales) {
  switch (type) {
    case KvType::fp32:
      std::memcpy(codes, x, static_cast<size_t>(head_dim) * sizeof(float));
      break;
    case KvType::bf16:
      for (int d = 0; d < head_dim; ++d)
        reinterpret_cast<uint16_t*>(codes)[d] = float_to_bf16(x[d]);
      break;
    case KvType::fp16:
      for (int d = 0; d < head_dim; ++d) {
        reinterpret_cast<uint16_t*>(codes)[d] = float_to_f16_saturated(x[d]);
      }
      break;
    case KvType::int8:
      for (int d = 0; d < head_dim; d += kInt8ScaleGroup) {
        write_int8_group(x + d, reinterpret_cast<int8_t*>(codes) + d, scales + d / kInt8ScaleGroup);
      }
      break;
  }
}

}  // namespace

void kv_write(const KvWriteArgs& args) {
  const KvView& cache = args.cache;
  const bool scaled = cache.type == KvType::int8;
  LOCKSTEP_CHECK(!scaled || cache.head_dim % kInt8ScaleGroup == 0);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const int64_t position = args.first_position + t;
    for (int h = 0; h < cache.n_kv_heads; ++h) {
      const int64_t offset = int64_t{h} * cache.head_dim;
      write_vector(cache.type, args.k + t * args.k_stride + offset, cache.head_dim,
                   cache.k_codes(h, position), scaled ? cache.k_scales(h, position) : nullptr);
      write_vector(cache.type, args.v + t * args.v_stride + offset, cache.head_dim,
                   cache.v_codes(h, position), scaled ? cache.v_scales(h, position) : nullptr);
    }
  }
}

void kv_read(const KvView& cache, bool value, int kv_head, int64_t position, float* out) {
  const std::byte* codes =
      value ? cache.v_codes(kv_head, position) : cache.k_codes(kv_head, position);
  const auto* halves = reinterpret_cast<const uint16_t*>(codes);
  switch (cache.type) {
    case KvType::fp32:
      std::memcpy(out, codes, static_cast<size_t>(cache.head_dim) * sizeof(float));
      break;
    case KvType::bf16:
      for (int d = 0; d < cache.head_dim; ++d) out[d] = bf16_to_float(halves[d]);
      break;
    case KvType::fp16:
      for (int d = 0; d < cache.head_dim; ++d) out[d] = f16_to_float(halves[d]);
      break;
    case KvType::int8: {
      const uint16_t* scales =
          value ? cache.v_scales(kv_head, position) : cache.k_scales(kv_head, position);
      for (int d = 0; d < cache.head_dim; ++d) {
        const auto code = static_cast<float>(reinterpret_cast<const int8_t*>(codes)[d]);
        out[d] = code * f16_to_float(scales[d / kInt8ScaleGroup]);
      }
      break;
    }
  }
}

}  // namespace lockstep

// Decoders of stored weight codes into the 16 lanes, exact for every code (one rounding where a
// codec multiplies by a float32 scale, as decode_row does).
//
// A row is cut into segments of columns that share their scales. RowCodes<codec>::segment(i) holds
// what segment i needs in registers; its block(p) decodes the 16 codes that start at p.
//
// Included once per instruction set by Highway's foreach_target.

#if defined(LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_DECODE_INL_H_
#undef LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_DECODE_INL_H_
#else
#define LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_DECODE_INL_H_
#endif

#include <cstring>

#include "engine/base/float_formats.h"
#include "engine/model/weight_matrix.h"
#include "engine/ops/common/lanes-inl.h"
#include "engine/ops/linear/e4m3_table.h"
#include "engine/ops/linear/linear_plan.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

using F16Tag = hn::Rebind<hwy::float16_t, FloatTag>;
using U16Tag = hn::Rebind<uint16_t, FloatTag>;
using U32Tag = hn::RebindToUnsigned<FloatTag>;
using I32Tag = hn::RebindToSigned<FloatTag>;
using Bytes16Tag = hn::FixedTag<uint8_t, 16>;
using Words8Tag = hn::FixedTag<uint16_t, 8>;

template <Codec kCodec>
struct Segment;

template <>
struct Segment<Codec::f32> {
  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    return lanes_load(reinterpret_cast<const float*>(codes));
  }
};

template <>
struct Segment<Codec::bf16> {
  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    const auto* words = reinterpret_cast<const uint16_t*>(codes);
    Lanes16 r;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) {
      const auto wide = hn::PromoteTo(U32Tag(), hn::LoadU(U16Tag(), words + i * kVecLanes));
      r.v[i] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(wide));
    }
    return r;
  }
};

template <>
struct Segment<Codec::f16> {
  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    const auto* words = reinterpret_cast<const uint16_t*>(codes);
    Lanes16 r;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) {
      const auto half = hn::BitCast(F16Tag(), hn::LoadU(U16Tag(), words + i * kVecLanes));
      r.v[i] = hn::PromoteTo(FloatTag(), half);
    }
    return r;
  }
};

// E4M3 in the fields of float32 is the value times 2^-120 (the biases are 7 and 127), also for
// subnormals, which are those of float32 then: no kernel runs with denormals flushed. Fewer
// operations than by way of binary16. NaN codes come out as 480: NanWatch finds them.
template <>
struct Segment<Codec::fp8> {
  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    const hn::Rebind<int8_t, FloatTag> di8;
    const auto* bytes = reinterpret_cast<const int8_t*>(codes);
    Lanes16 r;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) {
      // Sign extension repeats the sign in the exponent after the shift; the mask clears it.
      const auto wide = hn::PromoteTo(I32Tag(), hn::LoadU(di8, bytes + i * kVecLanes));
      const auto fields =
          hn::And(hn::ShiftLeft<20>(wide), hn::Set(I32Tag(), static_cast<int32_t>(0x87f00000u)));
      r.v[i] = hn::Mul(hn::BitCast(FloatTag(), fields), hn::Set(FloatTag(), 0x1p120f));
    }
    return r;
  }
};

template <>
struct Segment<Codec::fp8_block> {
  FloatVec scale;

  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    Lanes16 r = Segment<Codec::fp8>().block(codes);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Mul(r.v[i], scale);
    return r;
  }
};

#if HWY_TARGET <= HWY_AVX3

// Four-bit codes look up one register of 16 decoded values, which the segment has scaled already.
struct NibbleTable {
  FloatVec values;

  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    const hn::Repartition<uint64_t, FloatTag> du64;
    const hn::Repartition<uint8_t, FloatTag> du8;
    // Byte k / 2 to 32-bit lane k. The lookup reads the low four bits of a lane and no others.
    alignas(64) static constexpr uint32_t kByteOfLane[16] = {0, 0, 1, 1, 2, 2, 3, 3,
                                                             4, 4, 5, 5, 6, 6, 7, 7};
    alignas(64) static constexpr uint32_t kShiftOfLane[16] = {0, 4, 0, 4, 0, 4, 0, 4,
                                                              0, 4, 0, 4, 0, 4, 0, 4};
    uint64_t bits;
    std::memcpy(&bits, codes, sizeof(bits));
    const auto spread = hn::TableLookupBytes(hn::BitCast(du8, hn::Set(du64, bits)),
                                             hn::BitCast(du8, hn::Load(U32Tag(), kByteOfLane)));
    const auto index = hn::Shr(hn::BitCast(U32Tag(), spread), hn::Load(U32Tag(), kShiftOfLane));
    Lanes16 r;
    r.v[0] = hn::TableLookupLanes(values, hn::IndicesFromVec(FloatTag(), index));
    return r;
  }
};

template <>
struct Segment<Codec::nvfp4> : NibbleTable {
  Segment() = default;
  HWY_INLINE explicit Segment(float scale) {
    values = hn::Mul(hn::LoadU(FloatTag(), kE2m1Values), hn::Set(FloatTag(), scale));
  }
};

template <>
struct Segment<Codec::int4> : NibbleTable {
  Segment() = default;
  HWY_INLINE Segment(float zero, float scale) {
    const FloatTag d;
    values = hn::Mul(hn::Sub(hn::Iota(d, 0.0f), hn::Set(d, zero)), hn::Set(d, scale));
  }
};

#else

// The 16 four-bit codes of eight bytes, one a byte, in order of columns.
HWY_INLINE hn::Vec<Bytes16Tag> unpack_nibbles(const std::byte* codes) {
  const Words8Tag d16;
  const hn::Half<Bytes16Tag> d8;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(codes)));
  const auto both = hn::Or(wide, hn::ShiftLeft<4>(wide));
  return hn::BitCast(Bytes16Tag(), hn::And(both, hn::Set(d16, uint16_t{0x0f0f})));
}

template <>
struct Segment<Codec::nvfp4> {
  FloatVec scale;

  Segment() = default;
  HWY_INLINE explicit Segment(float block_scale) : scale(hn::Set(FloatTag(), block_scale)) {}

  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    // The low byte of every E2M1 value is zero in binary16, so one lookup of the high byte is
    // enough.
    alignas(16) static constexpr uint8_t kHighBytes[16] = {0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42,
                                                           0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe,
                                                           0xc0, 0xc2, 0xc4, 0xc6};
    const Bytes16Tag d8;
    const hn::FixedTag<hwy::float16_t, 8> d16;
    const auto high = hn::TableLookupBytes(hn::Load(d8, kHighBytes), unpack_nibbles(codes));
    const auto zero = hn::Zero(d8);
    Lanes16 r;
    r.v[0] = hn::PromoteTo(FloatTag(), hn::BitCast(d16, hn::InterleaveLower(d8, zero, high)));
    r.v[1] = hn::PromoteTo(FloatTag(), hn::BitCast(d16, hn::InterleaveUpper(d8, zero, high)));
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) r.v[i] = hn::Mul(r.v[i], scale);
    return r;
  }
};

template <>
struct Segment<Codec::int4> {
  FloatVec zero;
  FloatVec scale;

  Segment() = default;
  HWY_INLINE Segment(float zero_point, float group_scale)
      : zero(hn::Set(FloatTag(), zero_point)), scale(hn::Set(FloatTag(), group_scale)) {}

  HWY_INLINE Lanes16 block(const std::byte* codes) const {
    const hn::Half<Bytes16Tag> half;
    const auto bytes = unpack_nibbles(codes);
    const hn::Vec<decltype(half)> halves[2] = {hn::LowerHalf(half, bytes),
                                               hn::UpperHalf(half, bytes)};
    Lanes16 r;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) {
      const auto q = hn::ConvertTo(FloatTag(), hn::PromoteTo(I32Tag(), halves[i]));
      r.v[i] = hn::Mul(hn::Sub(q, zero), scale);
    }
    return r;
  }
};

#endif

constexpr int64_t block_bytes(Codec codec) {
  switch (codec) {
    case Codec::f32:
      return 64;
    case Codec::bf16:
    case Codec::f16:
      return 32;
    case Codec::fp8:
    case Codec::fp8_block:
      return 16;
    case Codec::nvfp4:
    case Codec::int4:
      return 8;
  }
  return 0;
}

// One row of a matrix whose codec is known.
template <Codec kCodec>
struct RowCodes {
  const std::byte* codes = nullptr;
  const void* scales = nullptr;
  const uint8_t* zeros = nullptr;

  RowCodes() = default;
  HWY_INLINE RowCodes(const WeightMatrix& matrix, int64_t row)
      : codes(matrix.codes + row * matrix.row_bytes) {
    const int64_t offset =
        (kCodec == Codec::fp8_block ? row / 128 : row) * matrix.block_scale_stride;
    if constexpr (kCodec == Codec::nvfp4) {
      scales = static_cast<const uint8_t*>(matrix.block_scales) + offset;
    } else if constexpr (kCodec == Codec::fp8_block || kCodec == Codec::int4) {
      scales = static_cast<const float*>(matrix.block_scales) + offset;
      if (matrix.zero_points != nullptr) zeros = matrix.zero_points + offset;
    }
  }

  // Columns in a segment, a multiple of 16. For fp8 it is only the stride of the search for NaN
  // codes.
  static HWY_INLINE int64_t segment_columns(const WeightMatrix& matrix) {
    if constexpr (kCodec == Codec::nvfp4) return 16;
    if constexpr (kCodec == Codec::fp8 || kCodec == Codec::fp8_block) return 128;
    if constexpr (kCodec == Codec::int4) return matrix.group;
    return padded_columns(matrix.n_cols);
  }

  HWY_INLINE Segment<kCodec> segment(int64_t index) const {
    if constexpr (kCodec == Codec::nvfp4) {
      return Segment<kCodec>(kE4m3Table[static_cast<const uint8_t*>(scales)[index]]);
    } else if constexpr (kCodec == Codec::fp8_block) {
      return {hn::Set(FloatTag(), static_cast<const float*>(scales)[index])};
    } else if constexpr (kCodec == Codec::int4) {
      const float zero = zeros == nullptr ? 8.0f : static_cast<float>(zeros[index]);
      return Segment<kCodec>(zero, static_cast<const float*>(scales)[index]);
    } else {
      return {};
    }
  }
};

// Looks for the two NaN codes of E4M3, 0x7f and 0xff: the greatest signed and unsigned byte. Wide
// loads make that cheaper than a check of every decoded block, and going along with the decoder
// keeps the memory busy.
template <Codec kCodec>
struct NanWatch {
  HWY_INLINE void look(const std::byte*, int64_t) {}
  HWY_INLINE bool found() const { return false; }
};

struct E4m3NanWatch {
  using Unsigned = hn::Repartition<uint8_t, FloatTag>;
  using Signed = hn::Repartition<int8_t, FloatTag>;
  hn::Vec<Signed> greatest_signed;
  hn::Vec<Unsigned> greatest_unsigned;
  bool found_in_rest = false;

  HWY_INLINE E4m3NanWatch()
      : greatest_signed(hn::Zero(Signed())), greatest_unsigned(hn::Zero(Unsigned())) {}
  HWY_INLINE void look(const std::byte* codes, int64_t n) {
    constexpr int64_t kStep = 4 * kVecLanes;
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
    int64_t k = 0;
    for (; k + kStep <= n; k += kStep) {
      const auto v = hn::LoadU(Unsigned(), bytes + k);
      greatest_unsigned = hn::Max(greatest_unsigned, v);
      greatest_signed = hn::Max(greatest_signed, hn::BitCast(Signed(), v));
    }
    for (; k < n; ++k) found_in_rest |= (bytes[k] & 0x7f) == 0x7f;
  }
  HWY_INLINE bool found() const {
    return found_in_rest ||
           !hn::AllFalse(Signed(), hn::Eq(greatest_signed, hn::Set(Signed(), int8_t{0x7f}))) ||
           !hn::AllFalse(Unsigned(), hn::Eq(greatest_unsigned, hn::Set(Unsigned(), uint8_t{0xff})));
  }
};

template <>
struct NanWatch<Codec::fp8> : E4m3NanWatch {
  HWY_INLINE NanWatch() {}
};
template <>
struct NanWatch<Codec::fp8_block> : E4m3NanWatch {
  HWY_INLINE NanWatch() {}
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_ENGINE_OPS_LINEAR_LINEAR_DECODE_INL_H_

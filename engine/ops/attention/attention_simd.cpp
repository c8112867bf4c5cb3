#include "engine/ops/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/attention/attention_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/ops/common/aligned_floats.h"
#include "engine/ops/common/lanes-inl.h"
#include "engine/ops/common/tile-inl.h"

// Work is cut into (kv head, block of tokens). A block walks the segments of the cache; in a
// segment it walks strips of kStrip positions, and every query head of the group uses a strip while
// it is in the first-level cache. A tile of query rows never mixes tokens, so all its rows see the
// same positions.

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kStrip = 32;      // divides kPageTokens: a strip is contiguous in its page
constexpr int64_t kBlockRows = 96;  // query rows of a block: their scores and sums stay in L2
// Fewer tokens than this read the stored codes in the kernels; more convert a strip once for all
// rows.
constexpr int64_t kConvertTokens = 3;

// Vectors of a narrow type; float32 needs none of this (FloatSource).
template <KvType kType>
struct CodeSource {
  const std::byte* codes;
  int64_t head_dim;
  const float* scales;  // int8: [row][head_dim / 64]

  HWY_INLINE FloatVec load(int64_t row, int64_t column) const {
    const FloatTag d;
    const int64_t index = row * head_dim + column;
    if constexpr (kType == KvType::bf16) {
      const hn::Rebind<uint16_t, FloatTag> d16;
      const hn::RebindToUnsigned<FloatTag> d32;
      const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(codes) + index);
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
    } else if constexpr (kType == KvType::fp16) {
      const hn::Rebind<hwy::float16_t, FloatTag> d16;
      return hn::PromoteTo(d,
                           hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(codes) + index));
    } else {
      const hn::Rebind<int8_t, FloatTag> d8;
      const hn::RebindToSigned<FloatTag> d32;
      const auto code = hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes) + index);
      const float scale = scales[(row * head_dim + column) / kInt8ScaleGroup];
      return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, code)), hn::Set(d, scale));
    }
  }
};

struct Scratch {
  AlignedFloats q, scores, strip, scales, segment, running, partials;
};

Scratch& scratch() {
  static thread_local Scratch s;
  return s;
}

// One block of tokens against one kv head. Row r is token first + r / group, head r % group.
struct Block {
  const AttentionArgs& args;
  int kv_head;
  int64_t first_token;
  int64_t n_tokens;

  int64_t group() const { return args.n_heads / args.cache.n_kv_heads; }
  int64_t n_rows() const { return n_tokens * group(); }
  int64_t head_dim() const { return args.cache.head_dim; }
  int64_t position(int64_t token) const { return args.first_position + first_token + token; }
  int64_t last_position() const { return position(n_tokens - 1); }
};

// Queries as dense aligned rows.
void load_queries(const Block& block, float* q) {
  const AttentionArgs& args = block.args;
  const int64_t group = block.group();
  for (int64_t r = 0; r < block.n_rows(); ++r) {
    const int64_t head = block.kv_head * group + r % group;
    const float* from =
        args.q + (block.first_token + r / group) * args.q_stride + head * args.q_head_stride;
    std::copy(from, from + block.head_dim(), q + r * block.head_dim());
  }
}

// Exact float values of the scales of kStrip positions.
const float* load_scales(const Block& block, bool value, int64_t position) {
  const KvView& cache = block.args.cache;
  const int64_t n = kStrip * (cache.head_dim / kInt8ScaleGroup);
  float* out = scratch().scales.reserve(n);
  const uint16_t* bits =
      value ? cache.v_scales(block.kv_head, position) : cache.k_scales(block.kv_head, position);
  for (int64_t i = 0; i < n; ++i) out[i] = f16_to_float(bits[i]);
  return out;
}

// Calls use.run(source) with a Source of the strip's kStrip rows.
template <KvType kType, class Use>
void with_strip(const Block& block, bool value, int64_t position, const Use& use) {
  const KvView& cache = block.args.cache;
  const int64_t head_dim = block.head_dim();
  const std::byte* codes =
      value ? cache.v_codes(block.kv_head, position) : cache.k_codes(block.kv_head, position);
  if constexpr (kType == KvType::fp32) {
    use.run(FloatSource{reinterpret_cast<const float*>(codes), head_dim});
  } else {
    CodeSource<kType> source{codes, head_dim, nullptr};
    if constexpr (kType == KvType::int8) source.scales = load_scales(block, value, position);
    if (block.n_tokens < kConvertTokens) {
      use.run(source);
      return;
    }
    const int64_t n_rows = std::min(kStrip, block.last_position() + 1 - position);
    const int64_t n_padded = (n_rows + 15) / 16 * 16;
    float* strip = scratch().strip.reserve(kStrip * head_dim);
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t column = 0; column < head_dim; column += kVecLanes) {
        hn::StoreU(source.load(row, column), FloatTag(), strip + row * head_dim + column);
      }
    }
    // Scores come in groups of 16; the ones past the last position are dropped.
    std::fill(strip + n_rows * head_dim, strip + n_padded * head_dim, 0.0f);
    use.run(FloatSource{strip, head_dim});
  }
}

// Positions of [first, first + limit) that a token sees.
HWY_INLINE int64_t n_seen(const Block& block, int64_t token, int64_t first, int64_t limit) {
  return std::clamp<int64_t>(block.position(token) + 1 - first, 0, limit);
}

struct ScoreStrip {
  const Block& block;
  int64_t segment_start;
  int64_t position;
  const float* q;
  float* scores;

  template <class Source>
  HWY_NOINLINE void run(const Source& keys) const {
    const int64_t group = block.group();
    const int64_t head_dim = block.head_dim();
    for (int64_t token = 0; token < block.n_tokens; ++token) {
      const int64_t n_keys = n_seen(block, token, position, kStrip);
      for (int64_t key = 0; key < n_keys; key += 16) {
        for (int64_t head = 0; head < group; head += kMaxDotRows) {
          const int64_t row = token * group + head;
          dot_rows(q + row * head_dim, head_dim, std::min<int64_t>(kMaxDotRows, group - head), keys,
                   key, head_dim, block.args.scale,
                   scores + row * kAttentionSegment + position - segment_start + key,
                   kAttentionSegment);
        }
      }
    }
  }
};

struct ValueStrip {
  const Block& block;
  int64_t segment_start;
  int64_t position;
  const float* weights;
  float* sums;

  template <class Source>
  HWY_NOINLINE void run(const Source& values) const {
    const int64_t group = block.group();
    const int64_t head_dim = block.head_dim();
    for (int64_t token = 0; token < block.n_tokens; ++token) {
      const int64_t n_keys = n_seen(block, token, position, kStrip);
      if (n_keys == 0) continue;
      fma_matrix(weights + token * group * kAttentionSegment + position - segment_start,
                 kAttentionSegment, 1, group, values, n_keys, head_dim,
                 sums + token * group * head_dim, head_dim);
    }
  }
};

// Turns n scores into exp(s - max); returns the maximum and the 16-lane sum.
void softmax_segment(float* s, int64_t n, float* maximum, float* sum) {
  const int64_t padded = (n + 15) / 16 * 16;
  std::fill(s + n, s + padded, -std::numeric_limits<float>::infinity());
  Lanes16 tops = lanes_load(s);
  for (int64_t j = 16; j < padded; j += 16) {
    const Lanes16 next = lanes_load(s + j);
    for (int i = 0; i < kVecs; ++i) tops.v[i] = hn::Max(tops.v[i], next.v[i]);
  }
  float top_lanes[16];
  lanes_store(tops, top_lanes);
  const float top = *std::max_element(top_lanes, top_lanes + 16);
  const Lanes16 minus_top = lanes_set(-top);
  Lanes16 total = lanes_zero();
  for (int64_t j = 0; j < padded; j += 16) {
    const Lanes16 p = lanes_exp(lanes_add(lanes_load(s + j), minus_top));
    lanes_store(p, s + j);
    total = lanes_add(total, p);
  }
  *maximum = top;
  *sum = lanes_tree_sum(total);
}

// What a row knows of the positions so far: out = sums / total, weights relative to exp(maximum).
struct RowSums {
  float* maximum;  // [n_rows]
  float* total;    // [n_rows]
  float* sums;     // [n_rows, head_dim]

  static int64_t n_floats(int64_t n_rows, int64_t head_dim) {
    return (n_rows * (head_dim + 2) + 15) / 16 * 16;
  }
  static RowSums at(float* memory, int64_t n_rows, int64_t head_dim) {
    return {memory + n_rows * head_dim, memory + n_rows * (head_dim + 1), memory};
  }
};

template <KvType kType>
void attend_segment(const Block& block, int64_t start, const float* q, const RowSums& out) {
  float* scores = scratch().scores.reserve(block.n_rows() * kAttentionSegment);
  const int64_t end = std::min(start + kAttentionSegment, block.last_position() + 1);
  for (int64_t position = start; position < end; position += kStrip) {
    with_strip<kType>(block, false, position, ScoreStrip{block, start, position, q, scores});
  }
  for (int64_t r = 0; r < block.n_rows(); ++r) {
    const int64_t n = n_seen(block, r / block.group(), start, kAttentionSegment);
    if (n > 0) softmax_segment(scores + r * kAttentionSegment, n, out.maximum + r, out.total + r);
  }
  std::fill(out.sums, out.sums + block.n_rows() * block.head_dim(), 0.0f);
  for (int64_t position = start; position < end; position += kStrip) {
    with_strip<kType>(block, true, position, ValueStrip{block, start, position, scores, out.sums});
  }
}

void attend_segment_any(const Block& block, int64_t start, const float* q, const RowSums& out) {
  switch (block.args.cache.type) {
    case KvType::fp32:
      return attend_segment<KvType::fp32>(block, start, q, out);
    case KvType::bf16:
      return attend_segment<KvType::bf16>(block, start, q, out);
    case KvType::fp16:
      return attend_segment<KvType::fp16>(block, start, q, out);
    case KvType::int8:
      return attend_segment<KvType::int8>(block, start, q, out);
  }
}

HWY_INLINE float exp_one(float x) {
  return hn::GetLane(exp_vec(hn::Set(FloatTag(), x)));
}

// Adds row r of `segment` to row r of `all`.
void merge_row(const RowSums& all, const RowSums& segment, int64_t r, int64_t head_dim) {
  const float top = std::max(all.maximum[r], segment.maximum[r]);
  const float old_factor = exp_one(all.maximum[r] - top);
  const float new_factor = exp_one(segment.maximum[r] - top);
  all.maximum[r] = top;
  const FloatTag d;
  const FloatVec old_vec = hn::Set(d, old_factor);
  const FloatVec new_vec = hn::Set(d, new_factor);
  float* to = all.sums + r * head_dim;
  const float* from = segment.sums + r * head_dim;
  for (int64_t i = 0; i < head_dim; i += kVecLanes) {
    const FloatVec added = hn::Mul(hn::LoadU(d, from + i), new_vec);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, to + i), old_vec, added), d, to + i);
  }
  const FloatVec total =
      hn::MulAdd(hn::Set(d, all.total[r]), old_vec, hn::Mul(hn::Set(d, segment.total[r]), new_vec));
  all.total[r] = hn::GetLane(total);
}

// Divides, gates, rounds and stores row r of a block.
void finish_row(const Block& block, const RowSums& all, int64_t r) {
  const AttentionArgs& args = block.args;
  const int64_t head_dim = block.head_dim();
  const int64_t token = block.first_token + r / block.group();
  const int64_t head = block.kv_head * block.group() + r % block.group();
  const float* gate = args.gate == nullptr
                          ? nullptr
                          : args.gate + token * args.gate_stride + head * args.gate_head_stride;
  float* out = args.out + token * args.out_stride + head * head_dim;
  const FloatTag d;
  for (int64_t i = 0; i < head_dim; i += kVecLanes) {
    FloatVec x = hn::Div(hn::LoadU(d, all.sums + r * head_dim + i), hn::Set(d, all.total[r]));
    if (args.rounding == Rounding::bf16) x = round_bf16_vec(x);
    if (gate != nullptr) {
      x = hn::Mul(x, sigmoid_vec(hn::LoadU(d, gate + i)));
      if (args.rounding == Rounding::bf16) x = round_bf16_vec(x);
    }
    hn::StoreU(x, d, out + i);
  }
}

void attend_block(const Block& block) {
  Scratch& s = scratch();
  const int64_t n_rows = block.n_rows();
  const int64_t head_dim = block.head_dim();
  const int64_t n_floats = RowSums::n_floats(n_rows, head_dim);
  float* q = s.q.reserve(n_rows * head_dim);
  load_queries(block, q);
  const RowSums all = RowSums::at(s.running.reserve(n_floats), n_rows, head_dim);
  const RowSums segment = RowSums::at(s.segment.reserve(n_floats), n_rows, head_dim);
  attend_segment_any(block, block.args.first_visible, q, all);
  for (int64_t start = block.args.first_visible + kAttentionSegment; start <= block.last_position();
       start += kAttentionSegment) {
    attend_segment_any(block, start, q, segment);
    for (int64_t r = 0; r < n_rows; ++r) {
      if (block.position(r / block.group()) >= start) merge_row(all, segment, r, head_dim);
    }
  }
  for (int64_t r = 0; r < n_rows; ++r) finish_row(block, all, r);
}

// Few tokens and more threads than kv heads: the segments are shared out and merged afterwards, in
// the same order, by whoever finishes the rows.
void attend_split(const AttentionArgs& args, ThreadPool& pool) {
  const int64_t n_kv_heads = args.cache.n_kv_heads;
  const int64_t head_dim = args.cache.head_dim;
  const int64_t n_rows = args.n_tokens * (args.n_heads / n_kv_heads);
  const int64_t n_floats = RowSums::n_floats(n_rows, head_dim);
  const int64_t n_positions = args.first_position + args.n_tokens - args.first_visible;
  const int64_t n_segments = (n_positions + kAttentionSegment - 1) / kAttentionSegment;
  const auto segment_start = [&args](int64_t index) {
    return args.first_visible + index * kAttentionSegment;
  };
  float* partials = scratch().partials.reserve(n_kv_heads * n_segments * n_floats);
  const auto partial = [=](int64_t item) {
    return RowSums::at(partials + item * n_floats, n_rows, head_dim);
  };
  const auto block_of = [&args](int64_t kv_head) {
    return Block{args, static_cast<int>(kv_head), 0, args.n_tokens};
  };
  pool.parallel_for(n_kv_heads * n_segments, 1, [&](int64_t begin, int64_t end) {
    float* q = scratch().q.reserve(n_rows * head_dim);
    for (int64_t item = begin; item < end; ++item) {
      const Block block = block_of(item / n_segments);
      load_queries(block, q);
      attend_segment_any(block, segment_start(item % n_segments), q, partial(item));
    }
  });
  pool.parallel_for(n_kv_heads * n_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t kv_head = i / n_rows;
      const int64_t r = i % n_rows;
      const Block block = block_of(kv_head);
      const RowSums all = partial(kv_head * n_segments);
      for (int64_t segment = 1; segment < n_segments; ++segment) {
        if (block.position(r / block.group()) < segment_start(segment)) break;
        merge_row(all, partial(kv_head * n_segments + segment), r, head_dim);
      }
      finish_row(block, all, r);
    }
  });
}

}  // namespace

void attention_target(const AttentionArgs& args, ThreadPool& pool) {
  const int64_t n_kv_heads = args.cache.n_kv_heads;
  const int64_t group = args.n_heads / n_kv_heads;
  const int64_t block_tokens = std::max<int64_t>(1, kBlockRows / group);
  const int64_t n_blocks = (args.n_tokens + block_tokens - 1) / block_tokens;
  if (n_blocks == 1 && pool.n_threads() > n_kv_heads) {
    attend_split(args, pool);
    return;
  }
  pool.parallel_for(n_blocks * n_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // Late blocks see more positions: taking blocks from both ends in turn gives every contiguous
      // range of items about the same work.
      const int64_t step = i / n_kv_heads;
      const int64_t index = step % 2 == 0 ? step / 2 : n_blocks - 1 - step / 2;
      const int64_t first = index * block_tokens;
      attend_block(Block{args, static_cast<int>(i % n_kv_heads), first,
                         std::min(block_tokens, args.n_tokens - first)});
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(attention_target);

void attention(const AttentionArgs& args, ThreadPool& pool) {
  if (args.n_tokens == 0) return;
  LOCKSTEP_CHECK(args.cache.n_kv_heads > 0 && args.n_heads % args.cache.n_kv_heads == 0);
  LOCKSTEP_CHECK(args.cache.head_dim % 16 == 0);
  LOCKSTEP_CHECK(args.first_visible % kAttentionSegment == 0 &&
                 args.first_visible <= args.first_position);
  LOCKSTEP_CHECK(args.cache.type != KvType::int8 || args.cache.head_dim % kInt8ScaleGroup == 0);
  HWY_DYNAMIC_DISPATCH(attention_target)(args, pool);
}

}  // namespace lockstep
#endif  // HWY_ONCE

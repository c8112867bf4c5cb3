#include "engine/ops/linear/linear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/linear/linear_simd.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/common/lanes-inl.h"
#include "engine/ops/linear/linear_decode-inl.h"
#include "engine/ops/linear/linear_plan.h"
#include "engine/ops/linear/linear_streamed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// Sums, scales, rounds and stores a tile: acc[t * kRows + r] belongs to out[t * out_stride + r],
// and factors[t * kRows + r] is its row's. Rows from n_rows on are computed but not stored.
template <int kRows, int kTokens>
HWY_INLINE void finish_tile(const Lanes16* acc, const float* factors, const LinearArgs& args,
                            float* out, int64_t n_rows) {
  constexpr int kTile = kRows * kTokens;
  static_assert(kTile <= kVecLanes);
  const FloatVec scaled = hn::Mul(lanes_tree_sums<kTile>(acc), hn::LoadU(FloatTag(), factors));
  alignas(64) float values[kVecLanes];
  hn::Store(args.rounding == Rounding::bf16 ? round_bf16_vec(scaled) : scaled, FloatTag(), values);
  if (n_rows >= kRows) {
    LOCKSTEP_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      std::memcpy(out + t * args.out_stride, values + t * kRows, kRows * sizeof(float));
    }
    return;
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int64_t r = 0; r < n_rows; ++r) out[t * args.out_stride + r] = values[t * kRows + r];
  }
}

// ---- Many tokens: a panel of rows is decoded to float32 once and then meets blocks of tokens.

constexpr int kTileRows = kVecs == 1 ? 4 : 2;
constexpr int kTileTokens = kVecs == 1 ? 4 : 3;

// Widths that are no multiple of 16 are padded, which only the panel path does.
bool is_streamed(const LinearArgs& args) {
  return args.n_tokens <= kMaxStreamedTokens && args.weight.n_cols % 16 == 0;
}

// Tokens that are packed together. Packed activations are groups of tokens, one after the other; a
// group of g tokens is [k / 16][g][16], so that a tile reads one stream. Rows of one stride would
// meet in the same cache sets.
int64_t group_tokens(const LinearArgs& args) {
  return is_streamed(args) ? args.n_tokens : kTileTokens;
}

// Packs tokens [first, last), a whole group; columns from weight.n_cols on become zero.
void pack_group(const LinearArgs& args, int64_t first, int64_t last, float* packed) {
  const int64_t n_cols = args.weight.n_cols;
  const int64_t whole = n_cols / 16 * 16;
  for (int64_t t = first; t < last; ++t) {
    const float* x = args.x + t * args.x_stride;
    float* out = packed + (t - first) * 16;
    for (int64_t k = 0; k < whole; k += 16, out += (last - first) * 16) {
      lanes_store(lanes_load(x + k), out);
    }
    if (whole == n_cols) continue;
    std::fill_n(out, 16, 0.0f);
    std::copy_n(x + whole, n_cols - whole, out);
  }
}

// Decodes row r of a tile into panel [k / 16][kTileRows][16]; columns from n_cols on become zero.
template <Codec kCodec>
void decode_panel_row(const WeightMatrix& weight, int64_t row, float* out) {
  const RowCodes<kCodec> codes(weight, row);
  const int64_t whole = weight.n_cols / 16 * 16;
  const int64_t step = RowCodes<kCodec>::segment_columns(weight);
  int64_t offset = 0;
  for (int64_t begin = 0, index = 0; begin < weight.n_cols; begin += step, ++index) {
    const Segment<kCodec> segment = codes.segment(index);
    const int64_t end = std::min(begin + step, whole);
    for (int64_t k = begin; k < end; k += 16, offset += block_bytes(kCodec)) {
      lanes_store(segment.block(codes.codes + offset), out + k * kTileRows);
    }
    if (begin + step > whole && whole < weight.n_cols) {
      // Zero codes decode to zero in every codec that allows such widths.
      std::byte rest[64] = {};
      const int64_t row_bytes = codec_row_bytes(kCodec, weight.n_cols);
      std::memcpy(rest, codes.codes + offset, static_cast<size_t>(row_bytes - offset));
      lanes_store(segment.block(rest), out + whole * kTileRows);
    }
  }
}

template <int kTokens>
HWY_INLINE void panel_tile(const float* w, const float* x, int64_t n_cols, const float* factors,
                           const LinearArgs& args, float* out, int64_t n_rows) {
  Lanes16 acc[kTileRows * kTokens];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kTileRows * kTokens; ++i) acc[i] = lanes_zero();
  for (int64_t k = 0; k < n_cols; k += 16, w += kTileRows * 16, x += kTokens * 16) {
    // Register by register: two halves of a wide tile would not fit the registers of AVX2 together.
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVecs; ++i) {
      FloatVec wr[kTileRows];
      LOCKSTEP_UNROLL
      for (int r = 0; r < kTileRows; ++r) {
        wr[r] = hn::LoadU(FloatTag(), w + r * 16 + i * kVecLanes);
      }
      LOCKSTEP_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const FloatVec xt = hn::LoadU(FloatTag(), x + t * 16 + i * kVecLanes);
        LOCKSTEP_UNROLL
        for (int r = 0; r < kTileRows; ++r) {
          FloatVec& sum = acc[t * kTileRows + r].v[i];
          sum = hn::MulAdd(xt, wr[r], sum);
        }
      }
    }
  }
  finish_tile<kTileRows, kTokens>(acc, factors, args, out, n_rows);
}

// Where a panel's rows are in the matrix.
struct Panel {
  const float* values;   // tiles of [k / 16][kTileRows][16]
  const float* factors;  // 16 a tile, as finish_tile takes them
  int64_t row;
  int64_t n_rows;
};

template <int kTokens>
HWY_INLINE void panel_group(const Panel& panel, const LinearArgs& args, const LinearPlan& plan,
                            const float* x, float* out) {
  for (int64_t r = 0; r < panel.n_rows; r += kTileRows) {
    panel_tile<kTokens>(panel.values + r * plan.n_cols, x, plan.n_cols,
                        panel.factors + r / kTileRows * 16, args, out + panel.row + r,
                        panel.n_rows - r);
  }
}

HWY_NOINLINE void panel_tokens(const Panel& panel, const LinearArgs& args, const LinearPlan& plan,
                               const float* packed, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; t += kTileTokens) {
    const float* x = packed + t * plan.n_cols;
    float* out = args.out + t * args.out_stride;
    switch (std::min<int64_t>(kTileTokens, last - t)) {
      case 1:
        panel_group<1>(panel, args, plan, x, out);
        break;
      case 2:
        panel_group<2>(panel, args, plan, x, out);
        break;
      case 3:
        panel_group<3>(panel, args, plan, x, out);
        break;
      default:
        panel_group<kTileTokens>(panel, args, plan, x, out);
    }
  }
}

template <Codec kCodec>
void paneled(const LinearArgs& args, const LinearPlan& plan, const float* packed, int64_t begin,
             int64_t end, float* values) {
  alignas(64) float factors[kMaxPanelRows / kTileRows * 16] = {};
  for (int64_t first = 0; first < args.n_tokens; first += plan.token_block) {
    const int64_t last = std::min(first + plan.token_block, args.n_tokens);
    for (int64_t row = begin; row < end; row += plan.panel_rows) {
      const int64_t n_rows = std::min(plan.panel_rows, end - row);
      for (int64_t r = 0; r < n_rows; ++r) {
        const int64_t tile = r / kTileRows;
        const int64_t place = r % kTileRows;
        decode_panel_row<kCodec>(args.weight, row + r,
                                 values + tile * kTileRows * plan.n_cols + place * 16);
        const float factor = row_factor<kCodec>(args.weight, row + r);
        for (int t = 0; t < kTileTokens; ++t) factors[tile * 16 + t * kTileRows + place] = factor;
      }
      panel_tokens({values, factors, row, n_rows}, args, plan, packed, first, last);
    }
  }
}

template <Codec kCodec>
void rows_of(const LinearArgs& args, const LinearPlan& plan, const float* packed, int64_t begin,
             int64_t end, float* panel) {
  if (is_streamed(args)) {
    streamed<kCodec>(args, packed, begin, end);
  } else {
    paneled<kCodec>(args, plan, packed, begin, end, panel);
  }
}

void linear_rows(const LinearArgs& args, const LinearPlan& plan, const float* packed, int64_t begin,
                 int64_t end, float* panel) {
  switch (args.weight.codec) {
    case Codec::f32:
      return rows_of<Codec::f32>(args, plan, packed, begin, end, panel);
    case Codec::bf16:
      return rows_of<Codec::bf16>(args, plan, packed, begin, end, panel);
    case Codec::f16:
      return rows_of<Codec::f16>(args, plan, packed, begin, end, panel);
    case Codec::fp8:
      return rows_of<Codec::fp8>(args, plan, packed, begin, end, panel);
    case Codec::fp8_block:
      return rows_of<Codec::fp8_block>(args, plan, packed, begin, end, panel);
    case Codec::nvfp4:
      return rows_of<Codec::nvfp4>(args, plan, packed, begin, end, panel);
    case Codec::int4:
      return rows_of<Codec::int4>(args, plan, packed, begin, end, panel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(group_tokens);
HWY_EXPORT(linear_rows);
HWY_EXPORT(pack_group);

// Memory of one thread that lasts until its next product, at the alignment of a cache line.
float* aligned_scratch(std::vector<float>& scratch, int64_t n_floats) {
  const auto size = static_cast<size_t>(n_floats) + 16;
  if (scratch.size() < size) scratch.resize(size);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  return scratch.data() + (64 - address % 64) % 64 / sizeof(float);
}

// One product of a group: what it computes, and where its row tiles lie among those of all.
struct Task {
  const LinearArgs& args;
  LinearPlan plan;
  const float* packed;  // activations as the kernel reads them
  int64_t first_tile;
  int64_t end_tile;
};

bool reads_as_given(const LinearArgs& args, const LinearPlan& plan) {
  return plan.group_tokens == 1 && plan.n_cols == args.weight.n_cols;
}

bool same_activations(const LinearArgs& a, const LinearArgs& b) {
  return a.x == b.x && a.x_stride == b.x_stride && a.n_tokens == b.n_tokens &&
         a.weight.n_cols == b.weight.n_cols;
}

// Floats of the packed activations of all tasks that need a copy of their own.
int64_t packed_floats(const std::vector<Task>& tasks) {
  int64_t n_floats = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const bool shared = i > 0 && same_activations(tasks[i - 1].args, task.args);
    if (reads_as_given(task.args, task.plan) || shared) continue;
    n_floats += (task.args.n_tokens * task.plan.n_cols + 15) / 16 * 16;
  }
  return n_floats;
}

void pack_activations(Task& task, float* packed, ThreadPool& pool) {
  const int64_t group = task.plan.group_tokens;
  pool.parallel_for(task.args.n_tokens, group, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t += group) {
      HWY_DYNAMIC_DISPATCH(pack_group)
      (task.args, t, std::min(t + group, end), packed + t * task.plan.n_cols);
    }
  });
  task.packed = packed;
}

void prepare_activations(std::vector<Task>& tasks, ThreadPool& pool) {
  thread_local std::vector<float> scratch;
  float* packed = aligned_scratch(scratch, packed_floats(tasks));
  for (size_t i = 0; i < tasks.size(); ++i) {
    Task& task = tasks[i];
    if (reads_as_given(task.args, task.plan)) {
      task.packed = task.args.x;
    } else if (i > 0 && same_activations(tasks[i - 1].args, task.args)) {
      task.packed = tasks[i - 1].packed;
    } else {
      pack_activations(task, packed, pool);
      packed += (task.args.n_tokens * task.plan.n_cols + 15) / 16 * 16;
    }
  }
}

void check_arguments(const LinearArgs& args) {
  const WeightMatrix& weight = args.weight;
  LOCKSTEP_CHECK(weight.n_cols > 0 && weight.n_cols % codec_column_granule(weight.codec) == 0);
  LOCKSTEP_CHECK(weight.row_bytes >= codec_row_bytes(weight.codec, weight.n_cols));
  LOCKSTEP_CHECK(weight.codec != Codec::int4 || (weight.group > 0 && weight.group % 16 == 0));
}

}  // namespace

void linear_group(std::span<const LinearArgs> group, ThreadPool& pool) {
  std::vector<Task> tasks;
  tasks.reserve(group.size());
  int64_t n_tiles = 0;
  int64_t panel_floats = 0;
  for (const LinearArgs& args : group) {
    check_arguments(args);
    if (args.n_tokens == 0) continue;
    const LinearPlan plan =
        plan_linear(args.weight.n_cols, HWY_DYNAMIC_DISPATCH(group_tokens)(args));
    const int64_t first = n_tiles;
    n_tiles += (args.weight.n_rows + kMaxTileRows - 1) / kMaxTileRows;
    panel_floats = std::max(panel_floats, plan.panel_rows * plan.n_cols);
    tasks.push_back({args, plan, nullptr, first, n_tiles});
  }
  prepare_activations(tasks, pool);
  pool.parallel_for(n_tiles, 1, [&](int64_t begin, int64_t end) {
    thread_local std::vector<float> scratch;
    float* panel = aligned_scratch(scratch, panel_floats);
    for (const Task& task : tasks) {
      const int64_t first = std::max(begin, task.first_tile) - task.first_tile;
      const int64_t last = std::min(end, task.end_tile) - task.first_tile;
      if (first >= last) continue;
      HWY_DYNAMIC_DISPATCH(linear_rows)
      (task.args, task.plan, task.packed, first * kMaxTileRows,
       std::min(last * kMaxTileRows, task.args.weight.n_rows), panel);
    }
  });
}

void linear(const LinearArgs& args, ThreadPool& pool) {
  linear_group({&args, 1}, pool);
}

}  // namespace lockstep
#endif  // HWY_ONCE

// Which kernel runs attention on a card. Pure host code: the table below is what tests and
// benchmarks go through.
//
//   decode   up to kAttentionTokens columns of one sequence against its cache, cut into segments
//            whose partial sums a second kernel merges
//   prefill  any number of columns; a block has some columns of one KV head and walks over all
//            positions that they see
//   simple   any number of columns, plain float32 arithmetic in plain loops: the cross-check of the
//            other two, and the way out when one of them is suspected
//
// A path is the caller's choice; inside one the bits of a column depend on its q, its position, the
// cache and the segments alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/ops/attention/cuda/attention_segments.h"
#include "engine/ops/attention/kv_view.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep {

enum class AttentionPath : uint8_t { decode, prefill, simple };

std::string_view attention_path_name(AttentionPath path);
std::string_view kv_type_name(KvType type);

inline constexpr int kAttentionTokens = 8;  // columns of one decode launch
inline constexpr int kAttentionGroup = 6;   // query heads that share a KV head, at most
inline constexpr int kAttentionStep = kPageTokens;
inline constexpr int kAttentionHeadDim = 256;

struct AttentionRoute {
  KernelFamily family;
  KvType type;
  AttentionPath path;
};

std::span<const AttentionRoute> attention_routes();

// The family whose kernel this card has: cards of 9.0 have one of their own for prefill and for
// decode from an INT8 cache.
KernelFamily attention_family(AttentionPath path, KvType type, const DeviceFacts& facts);

struct AttentionShape {
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::int8;
  int64_t max_positions = 0;  // what a decode launch is wide enough for
};

struct AttentionCudaPlan {
  const AttentionRoute* route = nullptr;
  AttentionShape shape;
  AttentionSegments segments;
  int n_segments = 0;         // decode: of a launch
  int64_t partial_bytes = 0;  // decode: workspace; 0 otherwise
  int most_block_rows = 0;    // prefill on sm80: query rows that a block has room for; moves no bit
};

inline constexpr int64_t kAnyBlockShared = int64_t{1} << 40;

// Throws Error that names what no kernel is registered for, or that a block of the card has less
// shared memory (DeviceFacts::block_shared_bytes) than a launch may ask for. `family` other than
// the card's own runs where its PTX does: sm70 on newer cards, for tests.
AttentionCudaPlan plan_attention_cuda(const AttentionShape& shape, AttentionPath path,
                                      KernelFamily family, const AttentionSegments& segments = {},
                                      int64_t block_shared_bytes = kAnyBlockShared);

}  // namespace lockstep

#include "engine/ops/attention/cuda/attention_plan_cuda.h"

#include <array>

#include "engine/base/error.h"
#include "engine/ops/attention/cuda/attention_shared.h"

namespace lockstep {
namespace {

using enum AttentionPath;

constexpr std::array kRoutes = {
    AttentionRoute{KernelFamily::sm70, KvType::int8, decode},
    AttentionRoute{KernelFamily::sm70, KvType::fp16, decode},
    AttentionRoute{KernelFamily::sm70, KvType::bf16, decode},
    AttentionRoute{KernelFamily::sm70, KvType::int8, prefill},
    AttentionRoute{KernelFamily::sm70, KvType::fp16, prefill},
    AttentionRoute{KernelFamily::sm70, KvType::bf16, prefill},
    AttentionRoute{KernelFamily::sm70, KvType::int8, simple},
    AttentionRoute{KernelFamily::sm70, KvType::fp16, simple},
    AttentionRoute{KernelFamily::sm70, KvType::bf16, simple},
    AttentionRoute{KernelFamily::sm70, KvType::fp32, simple},
    AttentionRoute{KernelFamily::sm80, KvType::int8, decode},
    AttentionRoute{KernelFamily::sm80, KvType::fp16, decode},
    AttentionRoute{KernelFamily::sm80, KvType::bf16, decode},
    AttentionRoute{KernelFamily::sm80, KvType::int8, prefill},
    AttentionRoute{KernelFamily::sm80, KvType::fp16, prefill},
    AttentionRoute{KernelFamily::sm80, KvType::bf16, prefill},
    AttentionRoute{KernelFamily::sm80, KvType::int8, simple},
    AttentionRoute{KernelFamily::sm80, KvType::fp16, simple},
    AttentionRoute{KernelFamily::sm80, KvType::bf16, simple},
    AttentionRoute{KernelFamily::sm80, KvType::fp32, simple},
    AttentionRoute{KernelFamily::sm90, KvType::int8, decode},
    AttentionRoute{KernelFamily::sm90, KvType::int8, prefill},
    AttentionRoute{KernelFamily::sm90, KvType::fp16, prefill},
    AttentionRoute{KernelFamily::sm90, KvType::bf16, prefill},
};

const AttentionRoute* find_route(KvType type, AttentionPath path, KernelFamily family) {
  for (const AttentionRoute& route : kRoutes) {
    if (route.type == type && route.path == path && route.family == family) return &route;
  }
  return nullptr;
}

// Query rows of the largest launch, or of the smallest block of prefill.
int least_rows(const AttentionShape& shape, AttentionPath path) {
  return path == decode ? kAttentionTokens * shape.n_heads / shape.n_kv_heads : 64;
}

int64_t shared_bytes_of(const AttentionRoute& route, int n_rows) {
  if (route.family != KernelFamily::sm80 || route.path == simple) return 0;
  return route.path == decode ? decode_sm80_shared_bytes(route.type, n_rows)
                              : prefill_sm80_shared_bytes(route.type, n_rows);
}

}  // namespace

std::string_view attention_path_name(AttentionPath path) {
  return path == decode ? "decode" : path == prefill ? "prefill" : "simple";
}

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::fp32:
      return "fp32";
    case KvType::bf16:
      return "bf16";
    case KvType::fp16:
      return "fp16";
    case KvType::int8:
      return "int8";
  }
  return "?";
}

std::span<const AttentionRoute> attention_routes() {
  return kRoutes;
}

KernelFamily attention_family(AttentionPath path, KvType type, const DeviceFacts& facts) {
  const bool own = path == prefill || (path == decode && type == KvType::int8);
  return own && facts.arch == 90 ? KernelFamily::sm90 : family_of_card(facts);
}

AttentionCudaPlan plan_attention_cuda(const AttentionShape& shape, AttentionPath path,
                                      KernelFamily family, const AttentionSegments& segments,
                                      int64_t block_shared_bytes) {
  if (shape.head_dim != kAttentionHeadDim || shape.n_kv_heads < 1 || shape.n_heads < 1 ||
      shape.n_heads % shape.n_kv_heads != 0 || shape.n_heads / shape.n_kv_heads > kAttentionGroup) {
    fail("attention: no CUDA kernel is registered for {} heads over {} of {} values", shape.n_heads,
         shape.n_kv_heads, shape.head_dim);
  }
  const AttentionRoute* route = find_route(shape.type, path, family);
  if (route == nullptr) {
    fail("attention: no CUDA kernel is registered for {} with a {} cache on {}: store another type",
         attention_path_name(path), kv_type_name(shape.type), family_name(family));
  }
  const int64_t least = shared_bytes_of(*route, least_rows(shape, path));
  if (least > block_shared_bytes) {
    fail(
        "attention: {} of a {} cache needs {} bytes of shared memory a block, this card has {}: "
        "use a card that has them (of 8.0 or 9.0, for example) or --device cpu",
        attention_path_name(path), kv_type_name(shape.type), least, block_shared_bytes);
  }
  AttentionCudaPlan plan{route, shape, segments, 0, 0, 0};
  plan.most_block_rows = shared_bytes_of(*route, 128) > block_shared_bytes ? 64 : 128;
  if (path != decode) return plan;
  LOCKSTEP_CHECK(segments.base > 0 && segments.base % kAttentionStep == 0 &&
                 segments.n_a_level > 0 && segments.n_levels > 0 && shape.max_positions > 0);
  plan.n_segments = segments.index_of(static_cast<int>(shape.max_positions) - 1) + 1;
  const int64_t rows = int64_t{shape.n_heads} * kAttentionTokens * plan.n_segments;
  plan.partial_bytes = rows * (kAttentionHeadDim + 2) * 4;
  return plan;
}

}  // namespace lockstep

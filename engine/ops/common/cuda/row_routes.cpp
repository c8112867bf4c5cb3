#include "engine/ops/common/cuda/row_routes.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr RowRoute kRoutes[] = {
    {RowOp::rmsnorm, "rmsnorm", 64, 16384, 8, false},
    {RowOp::layernorm, "layernorm", 8, 8192, 8, false},
    {RowOp::embedding, "embedding", 8, 1 << 20, 8, false},
    {RowOp::swiglu, "swiglu", 8, 1 << 20, 8, false},
    {RowOp::bias_add, "bias_add", 8, 1 << 20, 8, false},
    {RowOp::head, "head", 64, 256, 64, true},
    {RowOp::rotation, "rotation", 16, 128, 16, true},
    {RowOp::vision_head, "vision head", 64, 72, 8, false},
    {RowOp::vocabulary, "vocabulary", 1, 1 << 20, 1, false},
};

constexpr KvType kKvRoutes[] = {KvType::bf16, KvType::fp16, KvType::int8};

}  // namespace

std::span<const RowRoute> row_routes() {
  return kRoutes;
}

const RowRoute& row_route(RowOp op) {
  return kRoutes[static_cast<size_t>(op)];
}

bool has_row_route(RowOp op, int64_t width) {
  const RowRoute& route = row_route(op);
  if (width < route.smallest || width > route.largest || width % route.multiple_of != 0) {
    return false;
  }
  return !route.power_of_two || (width & (width - 1)) == 0;
}

void require_row_route(RowOp op, int64_t width) {
  if (has_row_route(op, width)) return;
  const RowRoute& route = row_route(op);
  fail("{}: no CUDA kernel is registered for {} values: {} to {}, a multiple of {}{}", route.name,
       width, route.smallest, route.largest, route.multiple_of,
       route.power_of_two ? ", a power of two" : "");
}

std::span<const KvType> kv_routes() {
  return kKvRoutes;
}

bool has_kv_route(KvType type, int head_dim) {
  return std::find(std::begin(kKvRoutes), std::end(kKvRoutes), type) != std::end(kKvRoutes) &&
         has_row_route(RowOp::head, head_dim);
}

void require_kv_route(KvType type, int head_dim) {
  require_row_route(RowOp::head, head_dim);
  if (!has_kv_route(type, head_dim)) {
    fail("kv_write: no CUDA kernel is registered for an fp32 cache: bf16, fp16 or int8");
  }
}

}  // namespace lockstep

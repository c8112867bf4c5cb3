// Which shapes of the row ops have a kernel: what plans, tests and benchmarks go through. All
// kernels of these ops are of one source for every card from sm_70 on, bfloat16 in and out.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/attention/kv_view.h"

namespace lockstep {

enum class RowOp : uint8_t {
  rmsnorm,      // width of a row
  layernorm,    // width of a row
  embedding,    // width of a row
  swiglu,       // width of a row
  bias_add,     // width of a row
  head,         // values of a head that is normalised, transformed or stored in the KV cache
  rotation,     // pairs of a head that prepare_heads turns
  vision_head,  // values of a head of the vision tower
  vocabulary,   // logits of a column
};

struct RowRoute {
  RowOp op;
  const char* name;
  int64_t smallest;
  int64_t largest;
  int64_t multiple_of;
  bool power_of_two;
};

std::span<const RowRoute> row_routes();
const RowRoute& row_route(RowOp op);

bool has_row_route(RowOp op, int64_t width);

// For plans: throws Error that names the op and the width unless a kernel is registered.
void require_row_route(RowOp op, int64_t width);

// Cache types that keys and values can be written to, in heads that has_row_route(head) allows.
std::span<const KvType> kv_routes();
bool has_kv_route(KvType type, int head_dim);
void require_kv_route(KvType type, int head_dim);

}  // namespace lockstep

// Op         Causal grouped-query attention over cache pages, with the output gate.
// Math       for query head h, kv head g = h / (n_heads / n_kv_heads), token t at position
//            p = first_position + t:
//            s_j = scale * sum_d q[t,h,d] k[g,j,d], j = 0..p;  out = sum_j softmax(s)_j v[g,j,:]
//            out *= sigmoid(gate[t,h,:]) when gate is not null.
//            Dot products run in the 16 lanes of ops/linear. Positions are cut into segments that
//            end at multiples of kAttentionSegment. In a segment: m = max s, p_j = exp(s_j - m),
//            l = sum p_j (16 lanes by j mod 16, tree), a[d] = sum_j p_j v_j[d] in order of j by
//            FMA. Segments are merged in ascending order by rescaling with exp(m_old - m_new). The
//            bits of a row depend on its q, its position and the cache alone: never on n_tokens or
//            threads. K and V are read as stored; int8 K holds Hadamard-rotated vectors, so q must
//            be rotated too.
// Shapes     q, out [n_tokens, n_heads, head_dim] with token strides; gate likewise.
// Dtypes     float32; out rounded as `rounding` says: once before the gate and once after it.
// Aliasing   out may not overlap q or gate. The cache must already hold positions 0..last.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/attention/kv_view.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

inline constexpr int64_t kAttentionSegment = 256;

struct AttentionArgs {
  const float* q;
  int64_t q_stride;
  const float* gate;  // may be null
  int64_t gate_stride;
  // Distance between heads inside a token of q and gate: head_dim when dense, 2*head_dim when q and
  // gate lie interleaved per head as q_proj writes them.
  int64_t q_head_stride;
  int64_t gate_head_stride;
  float* out;
  int64_t out_stride;
  KvView cache;
  int64_t first_position;
  int64_t n_tokens;
  int n_heads;
  float scale;
  Rounding rounding;
  // Positions below it are not seen; a multiple of kAttentionSegment, at most first_position. 0: all.
  int64_t first_visible = 0;
};

void attention(const AttentionArgs& args, ThreadPool& pool);
void attention_oracle(const AttentionArgs& args, double* value);  // [n_tokens, n_heads, head_dim]

}  // namespace lockstep

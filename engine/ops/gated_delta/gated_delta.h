// Op         Gated delta rule: the recurrent state update and read-out of Gated DeltaNet.
// Math       per value head h with key head h / (n_v_heads / n_k_heads), state S [dk, dv], float32:
//            qn = q / sqrt(sum q^2 + 1e-6) / sqrt(dk),  kn = k / sqrt(sum k^2 + 1e-6)
//            S = exp(g_t) S;  r = S^T kn;  u = beta_t (v - r);  S = S + kn u^T;  o = S^T qn (after
//            the update) recurrent: exactly this, token by token; sums over dk run in order of dk
//            by FMA. chunked:   the same function in chunks of kGdnChunk aligned to absolute
//            positions:
//              G_i = sum_{s<=i} g_s in the chunk, D_ij = exp(G_i - G_j) for i >= j,
//              A_ij = beta_i (kn_i . kn_j) D_ij (i > j), (I + A) U = diag(beta) V,
//              (I + A) W = diag(beta exp(G)) Kn, V' = U - W S,
//              O_i = exp(G_i) S^T qn_i + sum_{j<=i} (qn_i . kn_j) D_ij V'_j,
//              S = exp(G_last) S + sum_j exp(G_last - G_j) kn_j V'_j^T.
//            A span that starts or ends inside a chunk is a short chunk of its own rows; a prefill
//            that is cut at multiples of kGdnChunk therefore gives the same bits however it is cut.
// Shapes     q, k [n_tokens, n_k_heads, dk], v, out [n_tokens, n_v_heads, dv], all with token
// strides;
//            log_decay, beta [n_tokens, n_v_heads] dense; state [n_v_heads, dk, dv]. dk, dv
//            multiples of 16.
// Dtypes     float32; out rounded as `rounding` says; state never rounded.
// Effects    out and state. Aliasing: none allowed.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

inline constexpr int64_t kGdnChunk = 64;

struct GatedDeltaArgs {
  const float* q;
  const float* k;
  const float* v;
  int64_t qk_stride;
  int64_t v_stride;
  const float* log_decay;
  const float* beta;
  float* state;
  float* out;
  int64_t out_stride;
  int64_t first_position;  // of the span, for the chunk grid; the recurrent form ignores it
  int64_t n_tokens;
  int n_k_heads;
  int n_v_heads;
  int dk;
  int dv;
  Rounding rounding;
};

void gated_delta_recurrent(const GatedDeltaArgs& args, ThreadPool& pool);
void gated_delta_chunked(const GatedDeltaArgs& args, ThreadPool& pool);
// value [n_tokens, n_v_heads, dv], state [n_v_heads, dk, dv] after the last token; args.state is
// only read.
void gated_delta_oracle(const GatedDeltaArgs& args, double* value, double* state);

}  // namespace lockstep

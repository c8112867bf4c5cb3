#include "engine/ops/gated_delta/gated_delta.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/gated_delta/gated_delta_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/common/aligned_floats.h"
#include "engine/ops/common/lanes-inl.h"
#include "engine/ops/common/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {
namespace {

// Where one value head's rows lie.
struct Head {
  const GatedDeltaArgs& args;
  int64_t index;

  int64_t key_offset() const {
    return index / (args.n_v_heads / args.n_k_heads) * int64_t{args.dk};
  }
  const float* q(int64_t t) const { return args.q + t * args.qk_stride + key_offset(); }
  const float* k(int64_t t) const { return args.k + t * args.qk_stride + key_offset(); }
  const float* v(int64_t t) const { return args.v + t * args.v_stride + index * args.dv; }
  float* out(int64_t t) const { return args.out + t * args.out_stride + index * args.dv; }
  float log_decay(int64_t t) const { return args.log_decay[t * args.n_v_heads + index]; }
  float beta(int64_t t) const { return args.beta[t * args.n_v_heads + index]; }
  float* state() const { return args.state + index * args.dk * args.dv; }
};

HWY_INLINE float exp_one(float x) {
  return hn::GetLane(exp_vec(hn::Set(FloatTag(), x)));
}

// x / sqrt(sum x^2 + 1e-6) / divisor
void normalise(const float* x, int n, float divisor, float* out) {
  const FloatTag d;
  const FloatVec norm = hn::Set(d, std::sqrt(lanes_dot(x, x, n) + 1e-6f));
  const FloatVec by = hn::Set(d, divisor);
  for (int i = 0; i < n; i += kVecLanes) {
    hn::StoreU(hn::Div(hn::Div(hn::LoadU(d, x + i), norm), by), d, out + i);
  }
}

HWY_INLINE FloatVec round_output(FloatVec x, Rounding rounding) {
  return rounding == Rounding::bf16 ? round_bf16_vec(x) : x;
}

struct Scratch {
  AlignedFloats q, k, state_read, new_values, out, weights, solve, decay, decayed_keys;
};

Scratch& scratch() {
  static thread_local Scratch s;
  return s;
}

// ---- recurrent ----

// State columns that run side by side: enough independent sums to hide the latency of an FMA. With
// AVX-512 that is a whole row of 128, read in one stream.
constexpr int kPanelVecs = kVecLanes == 16 ? 8 : 4;

// One token on kNumVecs vectors of state columns. Columns do not depend on each other, so how many
// run side by side changes no bit. exp(g) S is formed twice with the same rounding instead of being
// stored in between.
template <int kNumVecs>
HWY_INLINE void step_columns(const Head& head, int64_t t, const float* q, const float* k,
                             float decay, int64_t column) {
  const FloatTag d;
  const int dk = head.args.dk;
  const int64_t dv = head.args.dv;
  const FloatVec alpha = hn::Set(d, decay);
  FloatVec read[kNumVecs];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kNumVecs; ++i) read[i] = hn::Zero(d);
  const float* from = head.state() + column;
  for (int r = 0; r < dk; ++r, from += dv) {
    const FloatVec kr = hn::Set(d, k[r]);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kNumVecs; ++i) {
      const FloatVec s = hn::Mul(alpha, hn::LoadU(d, from + i * kVecLanes));
      read[i] = hn::MulAdd(s, kr, read[i]);
    }
  }
  const FloatVec beta = hn::Set(d, head.beta(t));
  FloatVec update[kNumVecs];
  FloatVec out[kNumVecs];
  LOCKSTEP_UNROLL
  for (int i = 0; i < kNumVecs; ++i) {
    const FloatVec v = hn::LoadU(d, head.v(t) + column + i * kVecLanes);
    update[i] = hn::Mul(beta, hn::Sub(v, read[i]));
    out[i] = hn::Zero(d);
  }
  float* to = head.state() + column;
  for (int r = 0; r < dk; ++r, to += dv) {
    const FloatVec kr = hn::Set(d, k[r]);
    const FloatVec qr = hn::Set(d, q[r]);
    LOCKSTEP_UNROLL
    for (int i = 0; i < kNumVecs; ++i) {
      const FloatVec s =
          hn::MulAdd(kr, update[i], hn::Mul(alpha, hn::LoadU(d, to + i * kVecLanes)));
      hn::StoreU(s, d, to + i * kVecLanes);
      out[i] = hn::MulAdd(s, qr, out[i]);
    }
  }
  LOCKSTEP_UNROLL
  for (int i = 0; i < kNumVecs; ++i) {
    hn::StoreU(round_output(out[i], head.args.rounding), d, head.out(t) + column + i * kVecLanes);
  }
}

// Tokens are normalised in groups so that a panel of state columns stays in the first-level cache
// for the whole group.
void recur_tokens(const Head& head, int64_t first, int64_t n) {
  const int dk = head.args.dk;
  const int64_t dv = head.args.dv;
  const auto divisor = std::sqrt(static_cast<float>(dk));
  float* q = scratch().q.reserve(n * dk);
  float* k = scratch().k.reserve(n * dk);
  float* decay = scratch().decay.reserve(n);
  for (int64_t i = 0; i < n; ++i) {
    normalise(head.q(first + i), dk, divisor, q + i * dk);
    normalise(head.k(first + i), dk, 1.0f, k + i * dk);
    decay[i] = exp_one(head.log_decay(first + i));
  }
  int64_t column = 0;
  for (; column + kPanelVecs * kVecLanes <= dv; column += kPanelVecs * kVecLanes) {
    for (int64_t i = 0; i < n; ++i) {
      step_columns<kPanelVecs>(head, first + i, q + i * dk, k + i * dk, decay[i], column);
    }
  }
  for (; column < dv; column += kVecLanes) {
    for (int64_t i = 0; i < n; ++i) {
      step_columns<1>(head, first + i, q + i * dk, k + i * dk, decay[i], column);
    }
  }
}

// ---- chunked ----

// The rows of one chunk of one head, and the scratch that its steps fill.
struct Chunk {
  const Head& head;
  int64_t first;            // token
  int64_t n;                // rows, at most kGdnChunk
  float* q;                 // [64, dk] normalised; rows from n to the next multiple of 16 are zero
  float* k;                 // likewise
  float* q_read;            // [64, dv] S^T qn, then the outputs
  float* new_values;        // [64, dv] S^T kn, then the right side, then V'
  float* weights;           // [64, 64] (qn_i . kn_j) D_ij for j <= i
  float* solve;             // [64, 64] -A_ij for j < i
  float* decay_from_start;  // [64] exp(G_i)
  float* decay_to_end;      // [64] exp(G_last - G_i)
  float* decayed_keys;      // [64, dk] exp(G_last - G_j) kn_j
  double log_decay[kGdnChunk];  // G: float64, so that differences of large sums keep their digits
};

Chunk make_chunk(const Head& head, int64_t first, int64_t n) {
  Scratch& s = scratch();
  const int64_t dk = head.args.dk;
  const int64_t dv = head.args.dv;
  float* decay = s.decay.reserve(2 * kGdnChunk);
  return {head,
          first,
          n,
          s.q.reserve(kGdnChunk * dk),
          s.k.reserve(kGdnChunk * dk),
          s.out.reserve(kGdnChunk * dv),
          s.new_values.reserve(kGdnChunk * dv),
          s.weights.reserve(kGdnChunk * kGdnChunk),
          s.solve.reserve(kGdnChunk * kGdnChunk),
          decay,
          decay + kGdnChunk,
          s.decayed_keys.reserve(kGdnChunk * dk),
          {}};
}

int64_t padded_rows(const Chunk& chunk) {
  return (chunk.n + 15) / 16 * 16;
}

// exp of n float64 exponents, n a multiple of 16.
HWY_INLINE void exp_row(const double* exponents, double sign, double offset, int64_t n,
                        float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(sign * exponents[i] + offset);
  for (int64_t i = 0; i < n; i += 16) lanes_store(lanes_exp(lanes_load(out + i)), out + i);
}

void prepare_rows(Chunk& chunk) {
  const int dk = chunk.head.args.dk;
  const auto divisor = std::sqrt(static_cast<float>(dk));
  double sum = 0;
  for (int64_t i = 0; i < chunk.n; ++i) {
    normalise(chunk.head.q(chunk.first + i), dk, divisor, chunk.q + i * dk);
    normalise(chunk.head.k(chunk.first + i), dk, 1.0f, chunk.k + i * dk);
    sum += double{chunk.head.log_decay(chunk.first + i)};
    chunk.log_decay[i] = sum;
  }
  const int64_t padded = padded_rows(chunk);
  std::fill(chunk.log_decay + chunk.n, chunk.log_decay + padded, sum);
  std::fill(chunk.q + chunk.n * dk, chunk.q + padded * dk, 0.0f);
  std::fill(chunk.k + chunk.n * dk, chunk.k + padded * dk, 0.0f);
  exp_row(chunk.log_decay, 1.0, 0.0, padded, chunk.decay_from_start);
  exp_row(chunk.log_decay, -1.0, sum, padded, chunk.decay_to_end);
  const FloatTag d;
  for (int64_t i = 0; i < chunk.n; ++i) {
    const FloatVec decay = hn::Set(d, chunk.decay_to_end[i]);
    for (int64_t c = 0; c < dk; c += kVecLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, chunk.k + i * dk + c), decay), d,
                 chunk.decayed_keys + i * dk + c);
    }
  }
}

// kn_i . kn_j and qn_i . kn_j with their decays, lower triangle.
void pair_weights(const Chunk& chunk) {
  const int64_t dk = chunk.head.args.dk;
  const FloatSource keys{chunk.k, dk};
  for (int64_t row = 0; row < chunk.n; row += kMaxDotRows) {
    const int64_t n_rows = std::min<int64_t>(kMaxDotRows, chunk.n - row);
    for (int64_t key = 0; key < row + n_rows; key += 16) {
      const int64_t at = row * kGdnChunk + key;
      dot_rows(chunk.q + row * dk, dk, n_rows, keys, key, dk, 1.0f, chunk.weights + at, kGdnChunk);
      dot_rows(chunk.k + row * dk, dk, n_rows, keys, key, dk, 1.0f, chunk.solve + at, kGdnChunk);
    }
  }
  const FloatTag d;
  alignas(64) float decay[kGdnChunk];
  for (int64_t i = 0; i < chunk.n; ++i) {
    // Exponents above the diagonal are positive and may overflow: those products are never read.
    exp_row(chunk.log_decay, -1.0, chunk.log_decay[i], (i + 16) / 16 * 16, decay);
    const FloatVec minus_beta = hn::Set(d, -chunk.head.beta(chunk.first + i));
    for (int64_t j = 0; j <= i; j += kVecLanes) {
      const FloatVec factor = hn::Load(d, decay + j);
      float* weight = chunk.weights + i * kGdnChunk + j;
      float* solve = chunk.solve + i * kGdnChunk + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, weight), factor), d, weight);
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, solve), factor), minus_beta), d, solve);
    }
  }
}

// What the state at the start of the chunk gives: S^T kn and S^T qn.
void read_state(const Chunk& chunk) {
  const int64_t dk = chunk.head.args.dk;
  const int64_t dv = chunk.head.args.dv;
  const FloatSource state{chunk.head.state(), dv};
  std::fill(chunk.new_values, chunk.new_values + chunk.n * dv, 0.0f);
  std::fill(chunk.q_read, chunk.q_read + chunk.n * dv, 0.0f);
  fma_matrix(chunk.k, dk, 1, chunk.n, state, dk, dv, chunk.new_values, dv);
  fma_matrix(chunk.q, dk, 1, chunk.n, state, dk, dv, chunk.q_read, dv);
}

// new_values = beta (v - exp(G) S^T kn), q_read = exp(G) S^T qn.
void right_side(const Chunk& chunk) {
  const int64_t dv = chunk.head.args.dv;
  const FloatTag d;
  for (int64_t i = 0; i < chunk.n; ++i) {
    const float* v = chunk.head.v(chunk.first + i);
    const FloatVec beta = hn::Set(d, chunk.head.beta(chunk.first + i));
    const FloatVec decay = hn::Set(d, chunk.decay_from_start[i]);
    for (int64_t c = 0; c < dv; c += kVecLanes) {
      float* value = chunk.new_values + i * dv + c;
      float* read = chunk.q_read + i * dv + c;
      const FloatVec rest = hn::NegMulAdd(decay, hn::LoadU(d, value), hn::LoadU(d, v + c));
      hn::StoreU(hn::Mul(beta, rest), d, value);
      hn::StoreU(hn::Mul(decay, hn::LoadU(d, read)), d, read);
    }
  }
}

// Row i of C += sum over j < i + diagonal of L_ij B_j, ascending; C may be B, which makes it
// forward substitution. Whole tiles of rows share the columns that all of them have, then each row
// adds its own.
void lower_triangle(const Chunk& chunk, const float* lower, const float* b, int64_t diagonal,
                    float* c) {
  const int64_t dv = chunk.head.args.dv;
  for (int64_t row = 0; row < chunk.n; row += kTileRows) {
    const int64_t n_rows = std::min<int64_t>(kTileRows, chunk.n - row);
    fma_matrix(lower + row * kGdnChunk, kGdnChunk, 1, n_rows, FloatSource{b, dv}, row, dv,
               c + row * dv, dv);
    for (int64_t i = row; i < row + n_rows; ++i) {
      fma_matrix(lower + i * kGdnChunk + row, kGdnChunk, 1, 1, FloatSource{b + row * dv, dv},
                 i - row + diagonal, dv, c + i * dv, dv);
    }
  }
}

void store_outputs(const Chunk& chunk) {
  const int64_t dv = chunk.head.args.dv;
  const FloatTag d;
  for (int64_t i = 0; i < chunk.n; ++i) {
    float* out = chunk.head.out(chunk.first + i);
    for (int64_t c = 0; c < dv; c += kVecLanes) {
      const FloatVec o = hn::LoadU(d, chunk.q_read + i * dv + c);
      hn::StoreU(round_output(o, chunk.head.args.rounding), d, out + c);
    }
  }
}

// S = exp(G_last) S + sum_j exp(G_last - G_j) kn_j V'_j^T
void update_state(const Chunk& chunk) {
  const int64_t dk = chunk.head.args.dk;
  const int64_t dv = chunk.head.args.dv;
  const FloatTag d;
  const FloatVec decay = hn::Set(d, chunk.decay_from_start[chunk.n - 1]);
  float* state = chunk.head.state();
  for (int64_t i = 0; i < dk * dv; i += kVecLanes) {
    hn::StoreU(hn::Mul(decay, hn::LoadU(d, state + i)), d, state + i);
  }
  fma_matrix(chunk.decayed_keys, 1, dk, dk, FloatSource{chunk.new_values, dv}, chunk.n, dv, state,
             dv);
}

// U and W of the contract only ever appear as V' = U - W S, which solves the same triangular system
// with right side diag(beta) (V - diag(exp(G)) Kn S): one substitution instead of two.
void run_chunk(const Head& head, int64_t first, int64_t n) {
  Chunk chunk = make_chunk(head, first, n);
  prepare_rows(chunk);
  pair_weights(chunk);
  read_state(chunk);
  right_side(chunk);
  lower_triangle(chunk, chunk.solve, chunk.new_values, 0, chunk.new_values);
  lower_triangle(chunk, chunk.weights, chunk.new_values, 1, chunk.q_read);
  store_outputs(chunk);
  update_state(chunk);
}

}  // namespace

void gated_delta_recurrent_target(const GatedDeltaArgs& args, ThreadPool& pool) {
  pool.parallel_for(args.n_v_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      const Head head{args, h};
      for (int64_t t = 0; t < args.n_tokens; t += kGdnChunk) {
        recur_tokens(head, t, std::min(kGdnChunk, args.n_tokens - t));
      }
    }
  });
}

void gated_delta_chunked_target(const GatedDeltaArgs& args, ThreadPool& pool) {
  pool.parallel_for(args.n_v_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      const Head head{args, h};
      for (int64_t t = 0; t < args.n_tokens;) {
        const int64_t to_grid = kGdnChunk - (args.first_position + t) % kGdnChunk;
        const int64_t n = std::min(to_grid, args.n_tokens - t);
        run_chunk(head, t, n);
        t += n;
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

void check_shapes(const GatedDeltaArgs& args) {
  LOCKSTEP_CHECK(args.dk > 0 && args.dk % 16 == 0 && args.dv > 0 && args.dv % 16 == 0);
  LOCKSTEP_CHECK(args.n_k_heads > 0 && args.n_v_heads % args.n_k_heads == 0);
}

}  // namespace

HWY_EXPORT(gated_delta_recurrent_target);
HWY_EXPORT(gated_delta_chunked_target);

void gated_delta_recurrent(const GatedDeltaArgs& args, ThreadPool& pool) {
  check_shapes(args);
  HWY_DYNAMIC_DISPATCH(gated_delta_recurrent_target)(args, pool);
}

void gated_delta_chunked(const GatedDeltaArgs& args, ThreadPool& pool) {
  check_shapes(args);
  HWY_DYNAMIC_DISPATCH(gated_delta_chunked_target)(args, pool);
}

}  // namespace lockstep
#endif  // HWY_ONCE

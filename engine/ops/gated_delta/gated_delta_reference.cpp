#include "engine/ops/gated_delta/gated_delta_reference.h"

#include <algorithm>
#include <cmath>

#include "engine/base/math.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace tolerance;

// Everything is done column by column of the state: columns do not meet. Errors are 2-norms of a
// column of length dk. The exact step maps an error e of the state to (I - beta kn kn^T) exp(g) e,
// whose norm is at most exp(g) |e| because |kn| <= 1 and 0 <= beta <= 1: what is inherited decays,
// and only what a step or a chunk adds by itself needs counting.

constexpr double u = kFloatUnit;

// Columns of one head: s[c * dk + r].
struct Columns {
  int dk, dv;
  std::vector<double> s;
  std::vector<double> error;  // [dv]

  double* column(int c) { return s.data() + int64_t{c} * dk; }
  const double* column(int c) const { return s.data() + int64_t{c} * dk; }
};

double dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double norm(const double* a, int n) {
  return std::sqrt(dot(a, a, n));
}

struct Row {
  std::vector<double> q, k;
  std::vector<double> v;
  double log_decay, beta;
};

std::vector<double> normalised(const float* x, int n, double divisor, double epsilon) {
  double sum = epsilon;
  for (int i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(x[i] / std::sqrt(sum) / divisor);
  return out;
}

Row load_row(const GatedDeltaArgs& args, int head, int64_t t, GdnMutant mutant) {
  int key_head = head / (args.n_v_heads / args.n_k_heads);
  if (mutant == GdnMutant::wrong_key_head) key_head = head % args.n_k_heads;
  const int64_t at = t * args.qk_stride + int64_t{key_head} * args.dk;
  const double scale = mutant == GdnMutant::query_scale_forgotten ? 1 : std::sqrt(args.dk);
  const double epsilon = mutant == GdnMutant::epsilon_on_the_mean ? 1e-6 * args.dk : 1e-6;
  Row row{normalised(args.q + at, args.dk, scale, epsilon),
          normalised(args.k + at, args.dk, 1, epsilon),
          {},
          args.log_decay[t * args.n_v_heads + head],
          args.beta[t * args.n_v_heads + head]};
  if (mutant == GdnMutant::keys_not_normalised) row.k.assign(args.k + at, args.k + at + args.dk);
  if (mutant == GdnMutant::beta_forgotten) row.beta = 1;
  const float* v = args.v + t * args.v_stride + int64_t{head} * args.dv;
  row.v.assign(v, v + args.dv);
  return row;
}

Columns load_state(const GatedDeltaArgs& args, int head) {
  Columns state{args.dk, args.dv, std::vector<double>(static_cast<size_t>(args.dk) * args.dv),
                std::vector<double>(static_cast<size_t>(args.dv))};
  const float* from = args.state + int64_t{head} * args.dk * args.dv;
  for (int r = 0; r < args.dk; ++r) {
    for (int c = 0; c < args.dv; ++c) state.column(c)[r] = from[r * args.dv + c];
  }
  return state;
}

void store_state(const Columns& state, int head, GdnReference* out) {
  for (int r = 0; r < state.dk; ++r) {
    for (int c = 0; c < state.dv; ++c) {
      const int64_t at = (int64_t{head} * state.dk + r) * state.dv + c;
      out->state[at] = state.column(c)[r];
      out->state_bound[at] = kSecondOrder * state.error[c] + 1e-37;
    }
  }
}

GdnReference make_reference(const GatedDeltaArgs& args) {
  const auto n_values = static_cast<size_t>(args.n_tokens * args.n_v_heads * args.dv);
  const auto n_state = static_cast<size_t>(args.n_v_heads) * args.dk * args.dv;
  return {std::vector<double>(n_values), std::vector<double>(n_values),
          std::vector<double>(n_state), std::vector<double>(n_state)};
}

// One exact step of column c; returns the output.
double step(Columns& state, int c, const Row& row, GdnMutant mutant) {
  double* s = state.column(c);
  const int dk = state.dk;
  const double before = dot(s, row.k.data(), dk);
  const double before_out = dot(s, row.q.data(), dk);
  const double decay = exp_f64(row.log_decay);
  const bool late = mutant == GdnMutant::decay_after_update;
  if (!late) {
    for (int r = 0; r < dk; ++r) s[r] *= decay;
  }
  double read = dot(s, row.k.data(), dk);
  if (mutant == GdnMutant::read_before_decay) read = before;
  const double update = row.beta * (row.v[c] - read);
  for (int r = 0; r < dk; ++r) s[r] += row.k[r] * update;
  if (late) {
    for (int r = 0; r < dk; ++r) s[r] *= decay;
  }
  return mutant == GdnMutant::stale_state ? before_out : dot(s, row.q.data(), dk);
}

// What one step of the recurrent kernel adds to the error of a column, in units of u: exp(g) S (the
// exponential and a product), r (dk FMAs and the key's own error), u (two roundings), S (key,
// update and one rounding).
double recurrent_error(const Row& row, double decayed, double update, double after, int dk) {
  const double key = gdn_normalise_roundings(dk);
  return u * ((kExpRoundings + 1) * decayed + row.beta * (dk + key) * decayed +
              (2 + key) * std::fabs(update) + after);
}

// Roundings of the sums of a form.
struct FormRoundings {
  double pair;      // kn_i . kn_j, beside what gdn_pair_roundings counts
  double read;      // S^T kn
  double triangle;  // a lower triangular matrix with V' or rhs
  double update;    // keys with V'
  bool inverse;
};

FormRoundings roundings_of(GdnForm form, int dk, int n) {
  switch (form) {
    case GdnForm::substitution:
      return {0, double(dk), double(n), double(n), false};
    case GdnForm::inverse:
      return {dk - lane_dot_roundings(dk), double(dk), double(n), double(n), true};
    default:
      return {gdn_matrix_roundings(dk, 1), gdn_matrix_roundings(dk, 3),
              gdn_matrix_roundings(kGdnChunk, 6), gdn_matrix_roundings(kGdnChunk, 3), true};
  }
}

// The rows of a chunk in float64, and how the kernel's errors spread through its triangular system.
struct ChunkReference {
  int n = 0;
  FormRoundings roundings;
  std::vector<Row> rows;
  std::vector<double> sum;      // G
  std::vector<double> a;        // [n, n] A, lower
  std::vector<double> a_error;  // bound of its error
  std::vector<double> p;        // [n, n] (qn_i . kn_j) D_ij, lower with diagonal
  std::vector<double> p_error;
  std::vector<double> inverse;  // [n, n] |(I + A)^-1|

  double decay(int i, int j) const { return exp_f64(sum[i] - sum[j]); }
  // An exponent is rounded once to float32, so exp() of it is off by that share of the exponent.
  double spread(int i, int j) const { return std::fabs(sum[i] - sum[j]); }
};

void invert(ChunkReference* chunk) {
  const int n = chunk->n;
  std::vector<double> x(static_cast<size_t>(n) * n);
  for (int column = 0; column < n; ++column) {
    for (int i = column; i < n; ++i) {
      double value = i == column ? 1 : 0;
      for (int j = column; j < i; ++j) value -= chunk->a[i * n + j] * x[j * n + column];
      x[i * n + column] = value;
    }
  }
  for (double& value : x) value = std::fabs(value);
  chunk->inverse = x;
}

ChunkReference load_chunk(const GatedDeltaArgs& args, int head, int64_t first, int64_t n,
                          GdnForm form) {
  ChunkReference chunk;
  chunk.n = static_cast<int>(n);
  chunk.roundings = roundings_of(form, args.dk, chunk.n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    chunk.rows.push_back(load_row(args, head, first + i, GdnMutant::none));
    sum += chunk.rows.back().log_decay;
    chunk.sum.push_back(sum);
  }
  const auto n_pairs = static_cast<size_t>(n * n);
  for (auto* matrix : {&chunk.a, &chunk.a_error, &chunk.p, &chunk.p_error}) matrix->resize(n_pairs);
  const double roundings = gdn_pair_roundings(args.dk) + chunk.roundings.pair;
  for (int i = 0; i < chunk.n; ++i) {
    const Row& row = chunk.rows[i];
    const double q_norm = norm(row.q.data(), args.dk);
    for (int j = 0; j <= i; ++j) {
      const int64_t at = int64_t{i} * n + j;
      const double decay = chunk.decay(i, j);
      const double error = u * decay * (roundings + chunk.spread(i, j));
      chunk.p[at] = dot(row.q.data(), chunk.rows[j].k.data(), args.dk) * decay;
      chunk.p_error[at] = error * q_norm;
      if (j == i) continue;
      chunk.a[at] = row.beta * dot(row.k.data(), chunk.rows[j].k.data(), args.dk) * decay;
      chunk.a_error[at] = error * row.beta;
    }
  }
  invert(&chunk);
  return chunk;
}

// Error of V' in column c that the chunk itself makes, and V' itself. Forward substitution solves
// (I + A + E) x = b + f with |E| and |f| of at most n roundings each (Higham, Accuracy and
// Stability, theorem 8.5), so |error| <= |(I + A)^-1| (|E| |x| + |f|). A column of the computed
// inverse X solves (I + A + E) X_j = e_j, so it is off by at most n u |X| |I + A| |X|; the product
// X rhs
// adds what its sums do to |X| |rhs|.
void solve_column(const ChunkReference& chunk, const Columns& state, int c, std::vector<double>* x,
                  std::vector<double>* x_error) {
  const int n = chunk.n;
  const int dk = state.dk;
  const double* s = state.column(c);
  const double s_norm = norm(s, dk);
  std::vector<double> wrong(static_cast<size_t>(n));
  std::vector<double> rights;
  x->assign(static_cast<size_t>(n), 0);
  x_error->assign(static_cast<size_t>(n), 0);
  for (int i = 0; i < n; ++i) {
    const Row& row = chunk.rows[i];
    const double decay = exp_f64(chunk.sum[i]);
    const double right = row.beta * (row.v[c] - decay * dot(s, row.k.data(), dk));
    const double read_error =
        chunk.roundings.read + gdn_normalise_roundings(dk) + kExpRoundings - chunk.sum[i];
    double value = right;
    double error = row.beta * (decay * read_error * u * s_norm) + 2 * u * std::fabs(right);
    rights.push_back(std::fabs(right));
    for (int j = 0; j < i; ++j) {
      value -= chunk.a[i * n + j] * (*x)[j];
      error += chunk.a_error[i * n + j] * std::fabs((*x)[j]);
    }
    (*x)[i] = value;
    wrong[i] = error;
  }
  // |x|, or the larger |X| |rhs|.
  std::vector<double> magnitude(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    if (!chunk.roundings.inverse) {
      magnitude[i] = std::fabs((*x)[i]);
      continue;
    }
    for (int j = 0; j <= i; ++j) magnitude[i] += chunk.inverse[i * n + j] * rights[j];
    wrong[i] += n * u * magnitude[i];
  }
  for (int i = 0; i < n; ++i) {
    wrong[i] += chunk.roundings.triangle * u * rights[i];
    for (int j = 0; j < i; ++j) wrong[i] += n * u * std::fabs(chunk.a[i * n + j]) * magnitude[j];
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) (*x_error)[i] += chunk.inverse[i * n + j] * wrong[j];
  }
}

// Bound of the outputs of column c: the state's part, the pairs' part, n FMAs on top of both, and
// what the state at the start of the chunk was already off by.
double output_error(const ChunkReference& chunk, const Columns& state, int c, int i,
                    const std::vector<double>& x, const std::vector<double>& x_error) {
  const int dk = state.dk;
  const int n = chunk.n;
  const double sums = chunk.roundings.triangle;
  const double q_norm = norm(chunk.rows[i].q.data(), dk);
  const double decay = exp_f64(chunk.sum[i]);
  const double read =
      chunk.roundings.read + gdn_normalise_roundings(dk) + kExpRoundings + 1 - chunk.sum[i] + sums;
  double error = q_norm * decay * (read * u * norm(state.column(c), dk) + state.error[c]);
  for (int j = 0; j <= i; ++j) {
    const double p = std::fabs(chunk.p[i * n + j]);
    error += p * x_error[j] + (chunk.p_error[i * n + j] + sums * u * p) * std::fabs(x[j]);
  }
  return error;
}

// Error of column c after the chunk.
double state_error(const ChunkReference& chunk, const Columns& state, int c,
                   const std::vector<double>& x, const std::vector<double>& x_error) {
  const int dk = state.dk;
  const int last = chunk.n - 1;
  const double decay = exp_f64(chunk.sum[last]);
  const double own = kExpRoundings + 1 - chunk.sum[last] + chunk.n;
  double error = decay * (state.error[c] + own * u * norm(state.column(c), dk));
  for (int j = 0; j < chunk.n; ++j) {
    const double key = chunk.decay(last, j) * norm(chunk.rows[j].k.data(), dk);
    const double roundings =
        gdn_normalise_roundings(dk) + kExpRoundings + 1 + chunk.spread(last, j);
    error += key * (x_error[j] + (roundings + chunk.roundings.update) * u * std::fabs(x[j]));
  }
  return error;
}

}  // namespace

GdnReference gdn_recurrent_reference(const GatedDeltaArgs& args, GdnMutant mutant) {
  GdnReference out = make_reference(args);
  const int dk = args.dk;
  for (int head = 0; head < args.n_v_heads; ++head) {
    Columns state = load_state(args, head);
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      const Row row = load_row(args, head, t, mutant);
      const double decay = exp_f64(row.log_decay);
      const double q_norm = norm(row.q.data(), dk);
      for (int c = 0; c < args.dv; ++c) {
        const double decayed = decay * norm(state.column(c), dk);
        const double update =
            row.beta * (row.v[c] - decay * dot(state.column(c), row.k.data(), dk));
        const int64_t at = (t * args.n_v_heads + head) * args.dv + c;
        out.value[at] = step(state, c, row, mutant);
        const double after = norm(state.column(c), dk);
        state.error[c] = decay * state.error[c] + recurrent_error(row, decayed, update, after, dk);
        const double read = (dk + gdn_normalise_roundings(dk)) * u * after;
        out.value_bound[at] = kSecondOrder * q_norm * (state.error[c] + read) + 1e-37;
      }
    }
    store_state(state, head, &out);
  }
  return out;
}

GdnReference gdn_chunked_reference(const GatedDeltaArgs& args, GdnForm form) {
  GdnReference out = make_reference(args);
  std::vector<double> x, x_error;
  for (int head = 0; head < args.n_v_heads; ++head) {
    Columns state = load_state(args, head);
    for (int64_t t = 0; t < args.n_tokens;) {
      const int64_t n =
          std::min(kGdnChunk - (args.first_position + t) % kGdnChunk, args.n_tokens - t);
      const ChunkReference chunk = load_chunk(args, head, t, n, form);
      for (int c = 0; c < args.dv; ++c) {
        solve_column(chunk, state, c, &x, &x_error);
        const double error_after = state_error(chunk, state, c, x, x_error);
        for (int i = 0; i < chunk.n; ++i) {
          const int64_t at = ((t + i) * args.n_v_heads + head) * args.dv + c;
          const double bound = output_error(chunk, state, c, i, x, x_error);
          out.value_bound[at] = kSecondOrder * bound + 1e-37;
        }
        for (int i = 0; i < chunk.n; ++i) {
          const int64_t at = ((t + i) * args.n_v_heads + head) * args.dv + c;
          out.value[at] = step(state, c, chunk.rows[i], GdnMutant::none);
        }
        state.error[c] = error_after;
      }
      t += n;
    }
    store_state(state, head, &out);
  }
  return out;
}

}  // namespace lockstep

// What a rank computes with: the passes through the model, and the recurrent states and KV bytes
// that they change. The scheduler and the drafter see rows and logits on the host, whatever
// computes them. One implementation runs on the CPU, one on a CUDA card.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/rank/batch.h"
#include "engine/rank/engine_options.h"
#include "engine/rank/layers.h"
#include "engine/rank/request.h"
#include "engine/rank/weights.h"

namespace lockstep {

// What chooses the token after a column.
struct ColumnAsk {
  const SamplingParams* params;
  const TokenHistory* history;     // up to the first column of the slot's round
  std::span<const int32_t> after;  // tokens between that and this column
  int64_t position;                // of the token
  int32_t forced = -1;             // fed instead of the chosen one; -1: none
  int n_top = 0;                   // largest logits to report
};

struct ColumnChoice {
  int32_t token = -1;  // -1: the logits hold a NaN
  StepLogits logits;   // of that token; without ids when there are too many to report
};

// What an op took of all decode rounds together.
struct OpTime {
  std::string op;
  double seconds = 0.0;
  int64_t n = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Makes `sequence` one at position 0 that runs in `slot`: all states zero. A slot holds one
  // sequence at a time.
  virtual void begin(Sequence& sequence, int slot) = 0;

  // Fills K and V of the first `n` positions of a fresh sequence, whole pages of them, with a
  // pattern of finite numbers, in all layers: a context to measure with.
  virtual void assume(const Sequence& sequence, int64_t n) = 0;

  // Runs the batch through all layers and the final norm: KV pages and GDN states of each span's
  // sequence advance by its tokens. Returns float32 rows [n_columns, hidden] that stay until the
  // next call.
  virtual const float* forward(const Batch& batch) = 0;

  // Logits [n_columns, vocab] of columns of the last forward(), gathered over ranks; they stay
  // until the next call. To be asked for before another pass.
  virtual const float* logits(int64_t first_column, int64_t n_columns) = 0;

  // Chooses the token after each column from `first_column` on of the last forward(), where the
  // backend samples by itself.
  virtual void choose(const Batch& batch, const std::vector<ColumnAsk>& asks,
                      int64_t first_column) = 0;
  // A decode round: forward(), choose() for all columns and, with n_drafts > 0, that many drafts
  // after the columns of each span that stay. Returns rows as forward() does.
  virtual const float* decode(const Batch& batch, const std::vector<ColumnAsk>& asks,
                              int n_drafts) = 0;
  // The choice after a column of the last choose() or decode(); nothing where the host samples.
  virtual std::optional<ColumnChoice> choice(int64_t column) const = 0;
  // Drafts of the last decode() after `n_taken` columns of a span; empty where it made none, and
  // the drafter asks for one after another.
  virtual std::vector<int32_t> drafts(size_t span, int64_t n_taken) const = 0;

  // The MTP layer, as in mtp.h.
  virtual void mtp_forward(const Batch& batch, const float* hidden, std::vector<float>* out) = 0;

  // Rows that score drafts, which outlive the backend, and the token of each (-1: no candidate).
  // `dense`: on every rank candidates come before all other rows. Called once, first.
  virtual void set_draft_head(const MatrixPieces& head, const std::vector<int32_t>& row_ids,
                              bool dense) = 0;
  // Logits [n_rows, rows of the head] of MTP outputs [n_rows, hidden]; they stay until the next
  // call.
  virtual const float* draft_logits(const float* rows, int64_t n_rows) = 0;

  // Brings every GDN layer of a sequence to the state after the first `n_keep` columns of its last
  // verification round.
  virtual void rewind(Sequence& sequence, int64_t n_keep) = 0;

  // Copies of a sequence's recurrent states, one per GDN layer, and their way back.
  virtual std::vector<GdnState> states(const Sequence& sequence) = 0;
  virtual void set_states(Sequence& sequence, const std::vector<GdnState>& states) = 0;

  // All layers' contents of one KV page.
  virtual void copy_page(uint32_t from, uint32_t to) = 0;
  // Stored K or V vectors of positions [first, first + n) as float32 [kv heads, n, head_dim].
  virtual std::vector<float> kv_rows(int kv_layer, const Sequence& sequence, bool value,
                                     int64_t first, int64_t n) = 0;

  // Rounds that ran as graphs.
  virtual int64_t n_recorded_rounds() const { return 0; }
  // With options.time_ops, on a card; otherwise empty.
  virtual std::vector<OpTime> op_times() const { return {}; }

  // Bytes of activations and logits that the largest pass so far has needed.
  virtual int64_t workspace_bytes() const = 0;
};

std::unique_ptr<Backend> make_cpu_backend(const Model& model);

// On options.device where there is one, otherwise on the CPU. `model` must outlive the backend; its
// KV cache holds bytes of its own only for the CPU.
std::unique_ptr<Backend> make_backend(const Model& model, const EngineOptions& options);

}  // namespace lockstep

// The forward pass: one page, ops in the order of the model.
#pragma once

#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/comm/communicator.h"
#include "engine/model/config.h"
#include "engine/rank/batch.h"
#include "engine/rank/kv_cache.h"
#include "engine/rank/weights.h"

namespace lockstep {

// Activations of one pass, float32 (bf16-representable in precision bf16). Grows to the largest
// pass.
struct Workspace {
  std::vector<float> hidden;   // [n_columns, hidden] residual stream
  std::vector<float> normed;   // [n_columns, hidden]
  std::vector<float> branch;   // [n_columns, hidden] mixer or MLP output before the residual
  std::vector<float> partial;  // [n_columns, hidden] second half-K partial sum
  std::vector<float> wide[6];  // projections; widths differ by layer kind

  int64_t n_floats() const {
    size_t n = hidden.size() + normed.size() + branch.size() + partial.size();
    for (const std::vector<float>& buffer : wide) n += buffer.size();
    return static_cast<int64_t>(n);
  }
};

// Everything that a pass needs and does not change.
struct Model {
  const ModelConfig& config;
  const RankWeights& weights;
  bool rotate_keys;   // Hadamard rotation of q and k
  Rounding rounding;  // of activations and of the exchange type
  std::vector<float> inv_freq;
  KvCache& kv;
  Communicator& comm;
  ThreadPool& pool;
};

// Runs the batch through all layers and the final norm; workspace.normed holds the result
// [n_columns, hidden]. KV pages and GDN states of each span's sequence advance by its tokens.
void forward(const Model& model, const Batch& batch, Workspace& workspace);

// out [n_columns, hidden]: the embedding of every column, a picture's rows in place of its pads.
void embed_columns(const Model& model, const Batch& batch, float* out);

struct LogitBuffers {
  std::vector<float> logits;   // [n_columns, vocab]
  std::vector<float> mine;     // [n_columns, local vocab]; unused on one rank
  std::vector<float> by_rank;  // [n_ranks, n_columns, local vocab]; unused on one rank

  int64_t n_floats() const {
    return static_cast<int64_t>(logits.size() + mine.size() + by_rank.size());
  }
};

// buffers.logits [n_columns, vocab] float32 of the given rows of workspace.normed; gathered over
// ranks.
void compute_logits(const Model& model, const float* normed, int64_t n_columns,
                    LogitBuffers& buffers);

}  // namespace lockstep

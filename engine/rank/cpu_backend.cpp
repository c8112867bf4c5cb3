// The backend of the CPU ops: states lie in the sequences, pages in the KV cache.
#include <cstring>

#include "engine/ops/kv_write/kv_write.h"
#include "engine/rank/backend.h"
#include "engine/rank/branches.h"
#include "engine/rank/mtp.h"

namespace lockstep {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const Model& model) : model_(model) {}

  void begin(Sequence& sequence, int) override {
    sequence.gdn = zero_states(model_.config, model_.weights.dims);
    sequence.records.assign(sequence.gdn.size(), {});
  }

  void assume(const Sequence& sequence, int64_t n) override {
    const KvCacheShape& shape = model_.kv.shape();
    const int64_t page_bytes = kv_page_bytes(shape.type, shape.n_kv_heads, shape.head_dim);
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      const KvView pages = model_.kv.view(layer, sequence.page_table);
      for (int64_t i = 0; i < KvCache::pages_for(n); ++i) {
        const int64_t page = sequence.page_table[static_cast<size_t>(i)];
        std::memset(pages.pool + page * page_bytes, kAssumedKvByte,
                    static_cast<size_t>(page_bytes));
      }
    }
  }

  const float* forward(const Batch& batch) override {
    lockstep::forward(model_, batch, workspace_);
    return workspace_.normed.data();
  }

  const float* logits(int64_t first_column, int64_t n_columns) override {
    const float* rows = workspace_.normed.data() + first_column * model_.config.hidden_size;
    compute_logits(model_, rows, n_columns, logits_);
    return logits_.logits.data();
  }

  void choose(const Batch&, const std::vector<ColumnAsk>&, int64_t) override {}

  const float* decode(const Batch& batch, const std::vector<ColumnAsk>&, int) override {
    return forward(batch);
  }

  std::optional<ColumnChoice> choice(int64_t) const override { return std::nullopt; }

  std::vector<int32_t> drafts(size_t, int64_t) const override { return {}; }

  void mtp_forward(const Batch& batch, const float* hidden, std::vector<float>* out) override {
    lockstep::mtp_forward(model_, batch, hidden, mtp_workspace_, out);
  }

  void set_draft_head(const MatrixPieces& head, const std::vector<int32_t>&, bool) override {
    draft_head_ = head;
    n_draft_rows_ = 0;
    for (const WeightMatrix& piece : head) n_draft_rows_ += piece.n_rows;
  }

  const float* draft_logits(const float* rows, int64_t n_rows) override {
    grow(draft_logits_, n_rows * n_draft_rows_);
    linear_rows(model_, draft_head_, rows, n_rows, draft_logits_.data(), n_draft_rows_,
                Rounding::none);
    return draft_logits_.data();
  }

  void rewind(Sequence& sequence, int64_t n_keep) override {
    rewind_gdn(model_, sequence, n_keep, workspace_);
  }

  std::vector<GdnState> states(const Sequence& sequence) override { return sequence.gdn; }

  void set_states(Sequence& sequence, const std::vector<GdnState>& states) override {
    sequence.gdn = states;
  }

  void copy_page(uint32_t from, uint32_t to) override { model_.kv.copy_page(from, to); }

  std::vector<float> kv_rows(int kv_layer, const Sequence& sequence, bool value, int64_t first,
                             int64_t n) override {
    return read_kv_rows(model_.kv.view(kv_layer, sequence.page_table), value, first, n);
  }

  int64_t workspace_bytes() const override {
    const int64_t n_floats = workspace_.n_floats() + logits_.n_floats() +
                             mtp_workspace_.n_floats() + static_cast<int64_t>(draft_logits_.size());
    return n_floats * static_cast<int64_t>(sizeof(float));
  }

 private:
  const Model& model_;
  Workspace workspace_;
  MtpWorkspace mtp_workspace_;
  LogitBuffers logits_;
  MatrixPieces draft_head_;
  int64_t n_draft_rows_ = 0;
  std::vector<float> draft_logits_;  // [n_rows, rows of draft_head_]
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const Model& model) {
  return std::make_unique<CpuBackend>(model);
}

}  // namespace lockstep

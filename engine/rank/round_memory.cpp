#include "engine/rank/round_memory.h"

#include "engine/device/arena.h"
#include "engine/ops/argmax/cuda/slice_summary.h"
#include "engine/ops/sample/cuda/sample_cuda.h"
#include "engine/ops/verify/cuda/verify_cuda.h"
#include "engine/rank/limits.h"
#include "engine/rank/memory_plan.h"

namespace lockstep {
namespace {

// Arrays in one block, each at a multiple of 16 bytes.
class Layout {
 public:
  template <typename T>
  int64_t add(int64_t n) {
    const int64_t at = end_;
    end_ += (n * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return at;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

int64_t draft_bytes(const ModelConfig& config, const RankDims& dims, const EngineOptions& options) {
  const bool own = !options.draft_vocab.empty();
  const int64_t n_rows = own ? std::ssize(options.draft_vocab) : int64_t{dims.vocab_rows};
  const DraftRowBytes rows = draft_row_bytes(n_rows, options.n_slots);
  // Rows of the head as bfloat16: no codec takes more.
  const int64_t head = own ? n_rows * config.hidden_size * 2 : 0;
  return arena_block_bytes(rows.logits) + arena_block_bytes(rows.ids) + arena_block_bytes(head);
}

}  // namespace

RoundShape round_shape(const ModelConfig& config, int n_ranks, const EngineOptions& options) {
  RoundShape shape;
  shape.n_columns = decode_columns(options);
  shape.n_spans = options.n_slots;
  shape.n_vocab = config.vocab_size;
  shape.n_live = live_tokens(config, options);
  shape.hidden = config.hidden_size;
  shape.n_ranks = n_ranks;
  return shape;
}

TokenPlaces token_places(const RoundShape& shape) {
  const int64_t n = shape.n_columns;
  const int64_t spans = shape.n_spans;
  const int64_t n_adjustments = n * shape.n_live;
  TokenPlaces p;
  Layout sent;
  p.columns = sent.add<SampleColumn>(n);
  p.forced = sent.add<int32_t>(n);
  p.last_positions = sent.add<int32_t>(spans);
  p.adjustments = sent.add<LogitAdjustment>(n_adjustments);
  p.sent_bytes = sent.end();
  Layout fetched;
  p.results = fetched.add<SampleResult>(n);
  p.n_taken = fetched.add<int32_t>(spans);
  p.drafts = fetched.add<int32_t>(kMaxDrafts * spans);
  p.fetched_bytes = fetched.end();
  Layout between;
  p.ids = between.add<int32_t>(n);
  p.draft_ids = between.add<int32_t>(spans);
  p.draft_positions = between.add<RopePosition>(spans);
  p.draft_first_positions = between.add<int32_t>(spans);
  p.best = between.add<int32_t>(spans);
  p.offers = between.add<DraftOffer>(spans);
  p.gathered = between.add<DraftOffer>(shape.n_ranks * spans);
  p.last_rows = between.add<uint16_t>(spans * shape.hidden);
  p.between_bytes = between.end();
  p.argmax_bytes = argmax_workspace_bytes(shape.n_vocab, shape.n_spans);
  p.sample_bytes = sample_workspace_bytes(shape.n_vocab, static_cast<int>(n), n_adjustments);
  return p;
}

DraftRowBytes draft_row_bytes(int64_t n_rows, int n_slots) {
  DraftRowBytes bytes;
  bytes.stride = (n_rows + 3) / 4 * 4;
  bytes.logits = n_slots * bytes.stride * static_cast<int64_t>(sizeof(float));
  bytes.ids = n_rows * static_cast<int64_t>(sizeof(int32_t));
  return bytes;
}

int64_t round_bytes(const ModelConfig& config, const RankDims& dims, bool has_mtp,
                    const EngineOptions& options) {
  const TokenPlaces p = token_places(round_shape(config, dims.n_ranks, options));
  const int64_t tokens = arena_block_bytes(p.sent_bytes) + arena_block_bytes(p.fetched_bytes) +
                         arena_block_bytes(p.between_bytes) + arena_block_bytes(p.argmax_bytes) +
                         arena_block_bytes(p.sample_bytes);
  const bool drafts = has_mtp && options.n_drafts > 0;
  return tokens + (drafts ? draft_bytes(config, dims, options) : 0);
}

}  // namespace lockstep

#include "engine/rank/cuda/draft_rows.h"

namespace lockstep {
namespace {

bool same_rows(const MatrixPieces& a, const MatrixPieces& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].codes != b[i].codes || a[i].n_rows != b[i].n_rows) return false;
  }
  return true;
}

}  // namespace

DraftRows::DraftRows(CardModel& card, const MatrixPieces& head)
    : card_(card), pieces_(&card.weights.lm_head) {
  for (const WeightMatrix& piece : head) width_ += piece.n_rows;
  if (width_ == 0) return;
  ArenaPlan plan;
  CardUpload upload(card.device.facts(), plan);
  if (!same_rows(head, card.model.weights.lm_head)) {
    upload.add("draft head", head, own_);
    pieces_ = &own_;
  }
  const int logits = plan.add("draft logits", card.limits.n_slots * width_ * 4);
  arena_ = std::make_unique<Arena>(card.device, std::move(plan));
  upload.upload(*arena_, *card.stream, card.model.pool);
  logits_ = reinterpret_cast<float*>(arena_->at(logits));
}

const float* DraftRows::logits(int64_t n_rows) {
  host_.resize(static_cast<size_t>(n_rows * width_));
  if (width_ == 0) return host_.data();
  const int64_t hidden = card_.model.config.hidden_size;
  multiply(card_, LinearPass::decode, card_.buffers.normed, hidden, n_rows,
           {{*pieces_, logits_, width_, CudaOutput::fp32}});
  card_.clock.mark("product draft head");
  card_.stream->copy_out(host_.data(), logits_, n_rows * width_ * 4);
  card_.stream->synchronize();
  return host_.data();
}

}  // namespace lockstep

#include "engine/rank/cuda/draft_rows.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/argmax/cuda/argmax_cuda.h"
#include "engine/rank/round_memory.h"

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

DraftRows::DraftRows(CardModel& card, const MatrixPieces& head, const std::vector<int32_t>& row_ids)
    : card_(card), pieces_(&card.weights.lm_head) {
  for (const WeightMatrix& piece : head) width_ += piece.n_rows;
  LOCKSTEP_CHECK(width_ == std::ssize(row_ids));
  n_candidates_ = std::count_if(row_ids.begin(), row_ids.end(), [](int32_t id) { return id >= 0; });
  if (width_ == 0) return;
  const DraftRowBytes bytes = draft_row_bytes(width_, card.limits.n_slots);
  stride_ = bytes.stride;
  ArenaPlan plan;
  CardUpload upload(card.device.facts(), plan);
  if (!same_rows(head, card.model.weights.lm_head)) {
    upload.add("draft head", head, own_);
    pieces_ = &own_;
  }
  const int logits = plan.add("draft logits", bytes.logits);
  const int ids = plan.add("tokens of draft rows", bytes.ids);
  n_bytes_ = plan.total_bytes();
  arena_ = std::make_unique<Arena>(card.device, std::move(plan));
  upload.upload(*arena_, card.device, *card.stream, card.model.pool);
  logits_ = reinterpret_cast<float*>(arena_->at(logits));
  row_ids_ = reinterpret_cast<int32_t*>(arena_->at(ids));
  card.stream->copy_in(row_ids_, row_ids.data(), width_ * 4);
  card.stream->synchronize();
}

void DraftRows::multiply_rows(int64_t n_rows) {
  const int64_t hidden = card_.model.config.hidden_size;
  multiply(card_, LinearPass::decode, card_.buffers.normed, hidden, n_rows,
           {{*pieces_, logits_, stride_, CudaOutput::fp32}});
  card_.clock.mark("product draft head");
}

const float* DraftRows::logits(int64_t n_rows) {
  host_.resize(static_cast<size_t>(n_rows * width_));
  if (width_ == 0) return host_.data();
  multiply_rows(n_rows);
  for (int64_t row = 0; row < n_rows; ++row) {
    card_.stream->copy_out(host_.data() + row * width_, logits_ + row * stride_, width_ * 4);
  }
  card_.stream->synchronize();
  return host_.data();
}

void DraftRows::choose(int n_spans, int step, const CardTokens& tokens) {
  const TokenBuffers& buffers = tokens.buffers();
  Stream& stream = *card_.stream;
  if (n_candidates_ > 0) {
    multiply_rows(n_spans);
    ArgmaxCudaArgs argmax;
    argmax.logits = logits_;
    argmax.stride = stride_;
    argmax.n = n_candidates_;
    argmax.n_columns = n_spans;
    argmax.workspace = buffers.argmax;
    argmax.best = buffers.best;
    argmax_cuda(argmax, stream);
  } else {
    stream.fill(buffers.best, 0xff, n_spans * 4);  // -1: this rank offers none
  }
  OfferDraftsCudaArgs offer;
  offer.n_spans = n_spans;
  offer.best = buffers.best;
  offer.logits = logits_;
  offer.stride = stride_;
  offer.row_ids = row_ids_;
  offer.offers = buffers.offers;
  offer_drafts_cuda(offer, stream);
  NextDraftCudaArgs next;
  next.n_spans = n_spans;
  next.n_ranks = card_.model.comm.n_ranks();
  next.offers = buffers.offers;
  if (card_.transport != nullptr) {
    const auto n_bytes = static_cast<int64_t>(sizeof(DraftOffer)) * n_spans;
    card_.transport->all_gather(buffers.offers, n_bytes, buffers.gathered, stream);
    next.offers = buffers.gathered;
  }
  next.last_positions = buffers.last_positions;
  next.drafts = buffers.drafts + step * tokens.n_spans_at_most();
  next.places = buffers.places;
  next_draft_cuda(next, stream);
  card_.clock.mark("choice of drafts");
}

}  // namespace lockstep

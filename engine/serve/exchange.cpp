#include "engine/serve/exchange.h"

#include <fmt/core.h>

namespace lockstep::serve {

Exchange::Exchange(asio::io_context& io, ClientRequest request_in, int n_ranks)
    : request(std::move(request_in)),
      arrived(Clock::now()),
      changed(io),
      n_ranks_(n_ranks),
      agreed_(n_ranks) {}

bool Exchange::take_head(int rank, AnswerHead head) {
  if (!first_head_) {
    first_head_ = std::move(head);
  } else if (*first_head_ != head) {
    difference = fmt::format("rank {} answered {} {} and the other rank {} {}", rank, head.status,
                             head.header("content-type"), first_head_->status,
                             first_head_->header("content-type"));
    return false;
  }
  if (++n_heads_ == n_ranks_) {
    agreed_head_ = first_head_;
    changed.notify();
  }
  return true;
}

bool Exchange::take_body(int rank, std::string_view bytes) {
  const std::optional<std::string> agreed = agreed_.add(rank, bytes);
  if (!agreed) {
    difference = fmt::format("the ranks' answers differ at byte {}", agreed_.first_difference());
    return false;
  }
  if (agreed->empty()) return true;
  if (first_byte == Clock::time_point()) first_byte = Clock::now();
  phase = Phase::decode;
  if (outcome_ != Outcome::running) return true;  // nobody waits for it any more
  if (first_head_->is_event_stream()) {
    unfinished_event_ += *agreed;
    pending_ += take_whole_events(unfinished_event_);
  } else {
    pending_ += *agreed;
  }
  const bool sent = send_at_once && send_at_once();
  if (!sent) changed.notify();
  return true;
}

bool Exchange::take_end(int) {
  if (++n_ended_ < n_ranks_) return true;
  if (!agreed_.level()) {
    difference = fmt::format("one rank's answer is {} bytes longer", agreed_.n_ahead());
    return false;
  }
  pending_ += std::exchange(unfinished_event_, {});
  end(Outcome::finished);
  return true;
}

void Exchange::end(Outcome outcome, std::optional<Refusal> refusal) {
  if (outcome_ != Outcome::running) return;
  outcome_ = outcome;
  refusal_ = std::move(refusal);
  if (outcome != Outcome::finished) pending_.clear();
  if (outcome == Outcome::slow_reader && cut_off) cut_off();
  changed.notify();
}

std::string Exchange::take_pending() {
  return std::exchange(pending_, {});
}

}  // namespace lockstep::serve

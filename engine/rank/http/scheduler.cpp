#include "engine/rank/http/scheduler.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "engine/base/error.h"
#include "engine/base/seconds_since.h"
#include "engine/rank/api/api_error.h"
#include "engine/rank/picture_work.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

CacheStatus cache_status(const RankEngine& engine) {
  std::set<uint32_t> held;
  for (const auto& slot : engine.slots()) {
    if (slot != nullptr) {
      held.insert(slot->sequence.page_table.begin(), slot->sequence.page_table.end());
    }
  }
  CacheStatus status;
  status.capacity_pages = engine.kv_cache().shape().n_pages;
  status.free_pages = engine.kv_cache().n_free_pages();
  status.held_pages = static_cast<int64_t>(held.size());
  status.cached_pages = status.capacity_pages - status.free_pages - status.held_pages;
  status.snapshots = static_cast<int64_t>(engine.prefix_cache().snapshots().size());
  return status;
}

}  // namespace

Scheduler::Scheduler(RankEngine& engine, Communicator& comm, HaltHandler on_halt,
                     const std::filesystem::path& round_log)
    : engine_(engine), comm_(comm), on_halt_(std::move(on_halt)), last_round_(Clock::now()) {
  if (!round_log.empty()) {
    round_log_ = std::fopen(round_log.c_str(), "we");
    if (round_log_ == nullptr) {
      fail("--round-log {}: {}", round_log.string(), std::strerror(errno));
    }
  }
  engine_.set_events({
      [this](uint64_t id, const std::vector<int32_t>& tokens) { on_tokens(id, tokens); },
      [this](uint64_t id, const RequestResult& result) { on_finish(id, result); },
      [this](const RoundRecord& record) { log_round(record); },
      [this](const std::vector<RoundRecord>& records) { on_exchange(records); },
  });
  publish_status();
}

Scheduler::~Scheduler() {
  engine_.set_events({});
  if (round_log_ != nullptr) std::fclose(round_log_);
}

std::shared_ptr<Ticket> Scheduler::submit(std::optional<uint64_t> sequence, Request request) {
  std::shared_ptr<Ticket> ticket;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t number = sequence.value_or(arrivals_.unused_number());
    ticket = std::make_shared<Ticket>(number);
    const auto outcome = arrivals_.add({number, std::move(request), ticket});
    if (outcome != Arrivals::Outcome::taken) {
      const bool duplicate = outcome == Arrivals::Outcome::duplicate;
      throw ApiError(409, "invalid_request_error", "", "sequence_conflict",
                     fmt::format("Lockstep-Sequence {}: {}", number,
                                 duplicate ? "was used before" : "is too far ahead"));
    }
  }
  comm_.wake();
  return ticket;
}

void Scheduler::make_void(uint64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    const auto outcome = arrivals_.add({sequence, std::nullopt, nullptr});
    // The other rank may not have it: there it is void, here it ends before it begins.
    if (outcome == Arrivals::Outcome::duplicate && !arrivals_.cancel(sequence)) {
      cancels_.push_back(sequence);
    }
  }
  comm_.wake();
}

void Scheduler::cancel(uint64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    if (!arrivals_.cancel(sequence)) cancels_.push_back(sequence);
  }
  comm_.wake();
}

Scheduler::Preparation::Preparation(Scheduler& scheduler, std::optional<uint64_t> sequence)
    : scheduler_(scheduler), sequence_(sequence) {
  if (!sequence_) return;
  const std::lock_guard lock(scheduler_.mutex_);
  scheduler_.preparing_.insert(*sequence_);
}

void Scheduler::Preparation::end() {
  if (!sequence_) return;
  const std::lock_guard lock(scheduler_.mutex_);
  scheduler_.preparing_.erase(*sequence_);
  sequence_.reset();
}

SchedulerStatus Scheduler::status() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatus status = status_;
  status.preparing.assign(preparing_.begin(), preparing_.end());
  status.encoding = PictureWork::under_way();
  status.waiting += static_cast<int64_t>(arrivals_.n_early());
  status.seconds_since_round = seconds_since(status_round_);
  status.seconds_since_token = status_token_ ? seconds_since(*status_token_) : -1.0;
  return status;
}

std::deque<RecordedRound> Scheduler::last_rounds() const {
  const std::lock_guard lock(mutex_);
  return rounds_;
}

void Scheduler::run() {
  constexpr std::chrono::milliseconds kIdle{1000};
  try {
    while (!stopping_) {
      take_inbox();
      const bool peers_step = engine_.has_agreed_work() || comm_.peer_has_begun();
      if (peers_step || engine_.has_news()) {
        run_round();
      } else {
        comm_.wait_for_work(kIdle);
      }
    }
  } catch (const Error& error) {
    on_halt_(error, last_rounds());
  } catch (const std::exception& error) {
    on_halt_(Error(error.what(), ExitCode::fail), last_rounds());
  }
}

void Scheduler::stop() {
  stopping_ = true;
  comm_.wake();
}

void Scheduler::take_inbox() {
  std::vector<Arrival> due;
  std::vector<uint64_t> cancels;
  {
    const std::lock_guard lock(mutex_);
    due = arrivals_.take_due();
    cancels.swap(cancels_);
  }
  for (Arrival& arrival : due) {
    const bool is_void = !arrival.request;
    const uint64_t id =
        is_void ? engine_.submit_void() : engine_.submit(std::move(*arrival.request));
    LOCKSTEP_CHECK(id + 1 == arrival.sequence);
    if (!is_void) tickets_[id] = arrival.ticket;
    if (arrival.cancelled) engine_.cancel(id);
  }
  for (const uint64_t sequence : cancels) {
    if (sequence > 0) engine_.cancel(sequence - 1);
  }
}

void Scheduler::run_round() {
  engine_.step();
  for (const uint64_t id : to_forget_) engine_.forget(id);
  to_forget_.clear();
  for (const uint64_t id : to_cancel_) engine_.cancel(id);
  to_cancel_.clear();
  last_round_ = Clock::now();
  publish_status();
}

void Scheduler::on_tokens(uint64_t id, const std::vector<int32_t>& tokens) {
  last_token_ = Clock::now();
  const auto at = tickets_.find(id);
  const Slot* slot = engine_.slot_of(id);
  if (at == tickets_.end() || slot == nullptr) return;
  const RequestResult& result = *slot->result;
  RoundOutput output{tokens, {}, result.cache_hit_tokens};
  if (!result.logits.empty()) {
    output.logits.assign(result.logits.end() - static_cast<std::ptrdiff_t>(tokens.size()),
                         result.logits.end());
  }
  if (!at->second->put(std::move(output))) to_cancel_.push_back(id);
}

void Scheduler::on_finish(uint64_t id, const RequestResult& result) {
  to_forget_.push_back(id);
  const auto at = tickets_.find(id);
  if (at == tickets_.end()) return;
  ++totals_.requests_finished;
  if (result.finish_reason == FinishReason::cancelled) ++totals_.requests_cancelled;
  totals_.prompt_tokens += result.cache_hit_tokens + result.computed_tokens;
  totals_.cached_tokens += result.cache_hit_tokens;
  totals_.generated_tokens += static_cast<int64_t>(result.ids.size());
  totals_.drafted += result.mtp.drafted;
  totals_.accepted += result.mtp.accepted;
  at->second->finish({result.finish_reason, false, result.cache_hit_tokens, result.mtp.drafted,
                      result.mtp.accepted, result.prefill_s, result.decode_s});
  tickets_.erase(at);
}

void Scheduler::on_exchange(const std::vector<RoundRecord>& records) {
  const std::lock_guard lock(mutex_);
  rounds_.push_back({records});
  if (rounds_.size() > kKeptRounds) rounds_.pop_front();
}

void Scheduler::log_round(const RoundRecord& record) {
  totals_.rounds = static_cast<int64_t>(record.round) + 1;
  if (round_log_ == nullptr) return;
  fmt::print(round_log_, "{}\n", to_text(record));
  std::fflush(round_log_);
}

void Scheduler::publish_status() {
  SchedulerStatus status = totals_;
  for (const auto& slot : engine_.slots()) {
    if (slot == nullptr) continue;
    const int64_t prefilled = std::min(slot->sequence.n_positions, slot->prompt_tokens());
    status.slots.push_back({slot->id + 1, slot->decoding, slot->prompt_tokens(), prefilled,
                            static_cast<int64_t>(slot->result->ids.size())});
  }
  status.waiting = static_cast<int64_t>(engine_.n_waiting());
  status.cache = cache_status(engine_);
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  status_round_ = last_round_;
  status_token_ = last_token_;
}

}  // namespace lockstep

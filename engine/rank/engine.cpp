#include "engine/rank/engine.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/lockstep/round_record.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t context_limit(const ModelConfig& config, const EngineOptions& options) {
  return options.max_context > 0 ? options.max_context : config.max_positions;
}

KvCacheShape kv_shape(const ModelConfig& config, const RankWeights& weights,
                      const EngineOptions& options) {
  const int64_t pages = KvCache::pages_for(context_limit(config, options)) * options.n_slots;
  const int n_layers = config.n_kv_layers() + (weights.mtp != nullptr ? 1 : 0);
  return {options.kv_type, n_layers, weights.dims.n_kv_heads, config.head_dim, pages};
}

StepLogits largest_logits(const float* logits, int64_t n, int count) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const auto top = order.begin() + std::min<int64_t>(count, n);
  std::partial_sort(order.begin(), top, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  StepLogits step;
  step.ids.assign(order.begin(), top);
  for (const int32_t id : step.ids) step.values.push_back(logits[id]);
  step.log_sum_exp = log_sum_exp(logits, n);
  return step;
}

}  // namespace

struct RankEngine::Slot {
  const Request* request = nullptr;
  RequestResult* result = nullptr;
  TapRecorder* taps = nullptr;
  Sequence sequence;
  int32_t next_token = 0;  // chosen or forced, not yet fed
  bool decoding = false;

  int64_t prompt_tokens() const { return static_cast<int64_t>(request->prompt.size()); }
};

RankEngine::RankEngine(const ModelConfig& config, const RankWeights& weights,
                       const EngineOptions& options, Communicator& comm, ThreadPool& pool)
    : options_(options),
      kv_(kv_shape(config, weights, options)),
      model_{config,
             weights,
             options.precision == Precision::bf16 ? Rounding::bf16 : Rounding::none,
             rope_inverse_frequencies(config.rope_theta, config.rotary_dim),
             kv_,
             comm,
             pool} {
  if (options.prefill_grid <= 0 || options.prefill_grid % kGdnChunk != 0) {
    fail_with(ExitCode::usage, "--prefill-grid {}: must be a positive multiple of {}",
              options.prefill_grid, kGdnChunk);
  }
  slots_.resize(static_cast<size_t>(options.n_slots));
}

RankEngine::~RankEngine() = default;

void RankEngine::check_request(const Request& request) const {
  if (request.prompt.empty()) fail("request {}: the prompt is empty", request.name);
  if (request.max_tokens < 1) fail("request {}: max_tokens must be at least 1", request.name);
  const int64_t limit = context_limit(model_.config, options_);
  const int64_t needed = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (needed > limit) {
    fail("request {}: {} prompt tokens and max_tokens {} need {} positions, the context has {}",
         request.name, request.prompt.size(), request.max_tokens, needed, limit);
  }
  for (const auto* ids : {&request.prompt, &request.force_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= model_.config.vocab_size) {
        fail("request {}: token {} is outside the vocabulary of {}", request.name, id,
             model_.config.vocab_size);
      }
    }
  }
}

std::vector<RequestResult> RankEngine::run(const std::vector<Request>& requests) {
  for (const Request& request : requests) check_request(request);
  results_.assign(requests.size(), {});
  taps_.clear();
  taps_.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) waiting_.push_back(i);
  const auto busy = [](const auto& slot) { return slot != nullptr; };
  while (!waiting_.empty() || std::any_of(slots_.begin(), slots_.end(), busy)) {
    admit(requests);
    for (auto& slot : slots_) {
      if (slot != nullptr && !slot->decoding) {
        prefill_chunk(*slot);
        break;
      }
    }
    decode_round();
  }
  return std::move(results_);
}

const TapRecorder* RankEngine::taps(size_t request_index) const {
  return taps_.at(request_index).get();
}

void RankEngine::admit(const std::vector<Request>& requests) {
  for (auto& slot : slots_) {
    if (slot != nullptr || waiting_.empty()) continue;
    const size_t index = waiting_.front();
    const Request& request = requests[index];
    const int64_t positions = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
    const int64_t n_pages = KvCache::pages_for(positions);
    if (n_pages > kv_.n_free_pages()) return;
    waiting_.pop_front();
    slot = std::make_unique<Slot>();
    slot->request = &request;
    slot->result = &results_[index];
    if (request.taps) {
      taps_[index] = std::make_unique<TapRecorder>(*request.taps);
      slot->taps = taps_[index].get();
    }
    slot->sequence = make_sequence(model_.config, model_.weights.dims);
    slot->sequence.page_table = kv_.take_pages(n_pages);
  }
}

void RankEngine::prefill_chunk(Slot& slot) {
  const auto start = Clock::now();
  const int64_t begin = slot.sequence.n_positions;
  const int64_t grid_end = (begin / options_.prefill_grid + 1) * options_.prefill_grid;
  const int64_t end = std::min(slot.prompt_tokens(), grid_end);
  Batch batch;
  batch.round = round_;
  batch.add({&slot.sequence, Phase::prefill, begin, end - begin, 0, slot.prompt_tokens(), slot.taps},
            slot.request->prompt.data() + begin);
  forward(model_, batch, workspace_);
  slot.sequence.n_positions = end;
  if (end < slot.prompt_tokens()) {
    verify_round({}, nullptr, 0);
    slot.result->prefill_s += seconds_since(start);
    return;
  }
  record_states(slot);
  const int64_t hidden = model_.config.hidden_size;
  const float* last_row = workspace_.normed.data() + (batch.n_columns() - 1) * hidden;
  compute_logits(model_, last_row, 1, logits_);
  slot.decoding = true;
  slot.result->prefill_s += seconds_since(start);
  accept_logits(slot, logits_.data());
  verify_round({&slot}, last_row, 1);
  finish(slot);
}

void RankEngine::decode_round() {
  const auto start = Clock::now();
  Batch batch;
  batch.round = round_;
  std::vector<Slot*> running;
  for (auto& slot : slots_) {
    if (slot == nullptr || !slot->decoding) continue;
    batch.add({&slot->sequence, Phase::decode, slot->sequence.n_positions, 1, 0,
               slot->prompt_tokens(), slot->taps},
              &slot->next_token);
    running.push_back(slot.get());
  }
  if (running.empty()) return;
  forward(model_, batch, workspace_);
  compute_logits(model_, workspace_.normed.data(), batch.n_columns(), logits_);
  const double elapsed_s = seconds_since(start);
  for (size_t i = 0; i < running.size(); ++i) {
    ++running[i]->sequence.n_positions;
    running[i]->result->decode_s += elapsed_s;
    accept_logits(*running[i], logits_.data() + i * static_cast<size_t>(model_.config.vocab_size));
  }
  verify_round(running, workspace_.normed.data(), batch.n_columns());
  for (Slot* slot : running) finish(*slot);
}

void RankEngine::accept_logits(Slot& slot, const float* logits) {
  const int64_t vocab = model_.config.vocab_size;
  const int64_t chosen = argmax(logits, vocab);
  if (chosen < 0) {
    fail_with(ExitCode::device_error, "request {}: logits of position {} hold NaN",
              slot.request->name, slot.sequence.n_positions);
  }
  const size_t step = slot.result->ids.size();
  const std::vector<int32_t>& forced = slot.request->force_ids;
  slot.next_token = step < forced.size() ? forced[step] : static_cast<int32_t>(chosen);
  slot.result->ids.push_back(static_cast<int32_t>(chosen));
  if (slot.request->n_logits > 0) {
    slot.result->logits.push_back(largest_logits(logits, vocab, slot.request->n_logits));
  }
}

void RankEngine::finish(Slot& slot) {
  const std::vector<int32_t>& eos = model_.config.eos_token_ids;
  const bool at_eos = !slot.request->ignore_eos &&
                      std::find(eos.begin(), eos.end(), slot.next_token) != eos.end();
  const bool at_length =
      static_cast<int64_t>(slot.result->ids.size()) >= slot.request->max_tokens;
  if (!at_eos && !at_length) return;
  slot.result->finish_reason = at_eos ? FinishReason::stop : FinishReason::length;
  kv_.give_back(slot.sequence.page_table);
  for (auto& owner : slots_) {
    if (owner.get() == &slot) owner.reset();
  }
}

void RankEngine::record_states(Slot& slot) {
  const RankDims& dims = model_.weights.dims;
  for (size_t layer = 0, gdn = 0, kv = 0; layer < model_.config.layers.size(); ++layer) {
    const std::string prefix = "state/layers." + std::to_string(layer);
    if (model_.config.layers[layer] == LayerKind::gated_delta_net) {
      GdnState& state = slot.sequence.gdn[gdn++];
      const int64_t head_size = int64_t{dims.gdn.k_head_dim} * dims.gdn.v_head_dim;
      if (slot.taps != nullptr && slot.taps->wants(prefix + ".gdn_state")) {
        const int64_t first = int64_t{dims.rank} * dims.gdn.n_v_heads;
        slot.taps->put_sharded(prefix + ".gdn_state",
                               {dims.gdn.n_v_heads, dims.gdn.k_head_dim, dims.gdn.v_head_dim},
                               state.state, model_.config.gdn.n_v_heads,
                               {{first, first + dims.gdn.n_v_heads}});
      }
      if (slot.taps != nullptr && slot.taps->wants(prefix + ".conv_state")) {
        const LogicalSplit split = logical_split(
            model_.config, "model.language_model.layers.0.linear_attn.conv1d", dims.n_ranks);
        slot.taps->put_sharded(prefix + ".conv_state", {dims.gdn.conv_channels(), kConvWidth - 1},
                               state.conv, model_.config.gdn.conv_channels(),
                               split.ranges[static_cast<size_t>(dims.rank)]);
      }
      const FaultSite site{static_cast<int>(layer), dims.rank, round_};
      if (fault_fires("gdn.state-lost-at-prompt-end", site)) {
        std::fill(state.state.begin(), state.state.end(), 0.0f);
      }
      if (dims.rank == 0 && fault_fires("gdn.head-state-lost-at-prompt-end", site)) {
        std::fill_n(state.state.begin(), head_size, 0.0f);
      }
      continue;
    }
    const auto kv_layer = static_cast<int>(kv++);
    if (slot.taps == nullptr) continue;
    const KvView view = kv_.view(kv_layer, slot.sequence.page_table);
    const int64_t n = std::min(slot.taps->last(), slot.prompt_tokens());
    const int64_t first_head = int64_t{dims.rank} * dims.n_kv_heads;
    for (const bool value : {false, true}) {
      const std::string name = prefix + (value ? ".v" : ".k");
      if (!slot.taps->wants(name)) continue;
      std::vector<float> rows(static_cast<size_t>(dims.n_kv_heads * n * view.head_dim));
      for (int head = 0; head < dims.n_kv_heads; ++head) {
        for (int64_t i = 0; i < n; ++i) {
          kv_read(view, value, head, slot.prompt_tokens() - n + i,
                  rows.data() + (head * n + i) * view.head_dim);
        }
      }
      slot.taps->put_sharded(name, {dims.n_kv_heads, n, view.head_dim}, rows,
                             model_.config.n_kv_heads, {{first_head, first_head + dims.n_kv_heads}});
    }
  }
}

void RankEngine::verify_round(const std::vector<Slot*>& slots, const float* normed, int64_t n_rows) {
  RoundRecord mine;
  mine.round = static_cast<uint64_t>(round_++);
  mine.n_tokens = slots.size();
  for (const Slot* slot : slots) {
    const uint64_t pair[2] = {mine.token_hash, static_cast<uint64_t>(slot->next_token)};
    mine.token_hash = digest64(std::as_bytes(std::span(pair)));
    mine.positions += static_cast<uint64_t>(slot->sequence.n_positions);
  }
  if (n_rows > 0) {
    const auto n_floats = static_cast<size_t>(n_rows * model_.config.hidden_size);
    mine.rows_digest = digest64(std::as_bytes(std::span(normed, n_floats)));
  }
  if (model_.comm.n_ranks() == 1) return;
  std::vector<RoundRecord> all(static_cast<size_t>(model_.comm.n_ranks()));
  model_.comm.all_gather_bytes(std::as_bytes(std::span(&mine, 1)),
                               std::as_writable_bytes(std::span(all)));
  for (const RoundRecord& other : all) {
    const std::string field = differing_field(all[0], other);
    if (field.empty()) continue;
    fail_with(ExitCode::lockstep_failure,
              "TP2 LOCKSTEP FAILURE round {} field {}: rank 0 [{}] rank 1 [{}]", mine.round, field,
              to_text(all[0]), to_text(other));
  }
}

}  // namespace lockstep

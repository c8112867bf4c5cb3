#include "engine/rank/loaded_rank.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/base/mapped_file.h"
#include "engine/base/ungated_ops.h"
#include "engine/comm/mailbox.h"
#include "engine/device/cards.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/ops/common/cpu_target.h"
#include "engine/ops/self_check/self_check.h"
#include "engine/rank/draft_vocab.h"

#if defined(LOCKSTEP_CUDA)
#include "engine/comm/cuda/transports.h"
#endif

namespace lockstep {
namespace {

KvType parse_kv(const RunFlags& flags) {
  if (flags.precision == "fp32") {
    if (!flags.kv.empty() && flags.kv != "fp32") {
      fail_with(ExitCode::usage, "--kv {}: precision fp32 keeps its KV cache in fp32", flags.kv);
    }
    return KvType::fp32;
  }
  if (flags.kv.empty() || flags.kv == "bf16") return KvType::bf16;
  if (flags.kv == "fp16") return KvType::fp16;
  if (flags.kv == "int8") return KvType::int8;
  fail_with(ExitCode::usage, "--kv {}: precision bf16 takes bf16, fp16 or int8", flags.kv);
}

int thread_count(const RunFlags& flags) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return flags.n_threads > 0 ? flags.n_threads : std::max(1, cores / flags.n_ranks);
}

// A wait spins only while every thread of every rank has a core.
bool threads_may_spin(const RunFlags& flags) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return thread_count(flags) * flags.n_ranks <= cores;
}

// Kernels that nobody has seen to be right on a card: whoever starts them is told.
void announce_ungated_ops() {
  for (const std::string& line : ungated_ops()) fmt::print(stderr, "{}\n", line);
}

// What must stand before anything is loaded.
const RunFlags& prepared(const RunFlags& flags) {
  if (flags.backend == "cuda") announce_ungated_ops();
#if defined(LOCKSTEP_FAULTS)
  select_fault(flags.fault);
#else
  if (!flags.fault.empty()) {
    fail_with(ExitCode::usage, "--fault {}: only lockstep-rank-faulty can plant faults",
              flags.fault);
  }
#endif
  select_cpu_target(flags.cpu_target);
  const bool names_card = !flags.devices.empty() || flags.share_device || flags.kernels != "auto";
  if (flags.backend == "cpu" && names_card) {
    fail_with(ExitCode::usage,
              "--devices, --share-device and --kernels are about cards: --backend cpu uses none; "
              "leave them out");
  }
  if (flags.transport != "auto" && (flags.backend == "cpu" || flags.n_ranks == 1)) {
    fail_with(ExitCode::usage,
              "--transport {} joins two cards: give --backend cuda --tp 2, or leave it out",
              flags.transport);
  }
  return flags;
}

std::vector<int> cards_of_ranks(const RunFlags& flags) {
  return choose_cards(flags.devices, flags.n_ranks, flags.share_device, cuda_cards());
}

std::unique_ptr<Device> open_card(const RunFlags& flags, [[maybe_unused]] int rank) {
  if (flags.backend != "cuda") return nullptr;
#if defined(LOCKSTEP_CUDA)
  if (flags.precision != "bf16") {
    fail_with(ExitCode::usage,
              "--precision {}: the CUDA backend computes in bf16; use --backend cpu",
              flags.precision);
  }
  if (flags.draft_window != 0) {
    fail_with(ExitCode::usage,
              "--draft-window {}: the CUDA backend drafts from all positions; leave it out",
              flags.draft_window);
  }
  if (n_cuda_devices() == 0) {
    fail_with(ExitCode::device_error,
              "--backend cuda: this machine shows no card (see nvidia-smi); use --backend cpu");
  }
  return open_device(fmt::format("cuda:{}{}", cards_of_ranks(flags)[static_cast<size_t>(rank)],
                                 flags.kernels == "sm70" ? "@sm70" : ""));
#else
  fail("--backend cuda: this program has no CUDA backend; use --backend cpu");
#endif
}

// Bytes that a rank may plan with: the flag, or what is free on its card, less what the driver
// takes for kernels and NCCL for its buffers.
int64_t memory_limit(const RunFlags& flags, int rank, const Device* card) {
  constexpr int64_t kDriverBytes = int64_t{512} << 20;
  constexpr int64_t kNcclBytes = int64_t{512} << 20;  // of a communicator, and some
  if (card == nullptr || flags.device_memory > 0) return flags.device_memory;
  const std::vector<int> cards = cards_of_ranks(flags);
  const int64_t n_sharers =
      std::count(cards.begin(), cards.end(), cards[static_cast<size_t>(rank)]);
  const bool may_use_nccl = flags.n_ranks > 1 && n_sharers == 1;
  const int64_t n_taken = kDriverBytes + (may_use_nccl ? kNcclBytes : 0);
  return std::max<int64_t>(card->facts().memory_bytes / n_sharers - n_taken, 1);
}

EngineOptions options_of(const RunFlags& flags, const ModelConfig& config, const ModelText& text,
                         Device* card) {
  EngineOptions options;
  options.precision = flags.precision == "fp32" ? Precision::fp32 : Precision::bf16;
  options.kv_type = parse_kv(flags);
  options.prefill_grid = flags.prefill_grid;
  if (flags.max_context > config.max_positions) {
    fail_with(ExitCode::usage,
              "--max-context {}: the model has {} positions; give at most these, or auto",
              flags.max_context, config.max_positions);
  }
  options.max_context = flags.max_context;
  options.n_slots = flags.n_slots;
  options.n_drafts = flags.n_drafts;
  options.draft_window = flags.draft_window;
  options.n_live_tokens = text.n_live_tokens();
  options.draft_vocab = read_draft_vocab(flags.draft_vocab, live_tokens(config, options));
  options.prefix_cache_bytes = flags.prefix_cache_bytes;
  options.cuda_graphs = flags.cuda_graphs == "on";
  options.time_ops = flags.time_ops;
  options.device = card;
  return options;
}

MemoryPlan announced_plan(const RunFlags& flags, int rank, const ModelSource& source,
                          const EngineOptions& options) {
  const MemoryPlan plan = plan_memory(source.config, rank_dims(source.config, flags.n_ranks, rank),
                                      weight_facts(source, flags.n_ranks, rank), options,
                                      memory_limit(flags, rank, options.device));
  fmt::print(stderr, "{}\n", to_text(plan, rank));
  return plan;
}

std::unique_ptr<Communicator> join_peers(const RunFlags& flags, int rank,
                                         const std::string& mailbox, bool may_spin) {
  if (flags.n_ranks == 1) return make_single_rank_communicator();
  if (mailbox.empty()) {
    fail_with(ExitCode::usage,
              "--tp 2 needs --mailbox FILE; 'lockstep generate' and 'lockstep serve' start both "
              "ranks");
  }
  MailboxOptions options;
  options.spin = may_spin;
  return join_mailbox(mailbox, rank, options);
}

// The way between the ranks' cards; null where there are none.
std::unique_ptr<DeviceCommunicator> join_cards([[maybe_unused]] const RunFlags& flags,
                                               [[maybe_unused]] Communicator& comm, Device* card) {
  if (card == nullptr || comm.n_ranks() == 1) return nullptr;
#if defined(LOCKSTEP_CUDA)
  ChosenTransport chosen = choose_transport(flags.transport, comm, *card);
  if (comm.rank() == 0) fmt::print(stderr, "{}\n", chosen.report);
  return std::move(chosen.transport);
#else
  return nullptr;
#endif
}

}  // namespace

LoadedRank::LoadedRank(const RunFlags& run_flags, int rank_index, const std::string& mailbox,
                       std::vector<std::pair<std::string, std::string>> more_facts)
    : flags(prepared(run_flags)),
      rank(rank_index),
      may_spin(threads_may_spin(flags)),
      pool(thread_count(flags), may_spin),
      source(open_model_source(flags.model_dir, flags.shards_dir, flags.n_ranks, rank)),
      text(flags.model_dir),
      card(open_card(flags, rank)),
      options(options_of(flags, source.config, text, card.get())),
      plan(announced_plan(flags, rank, source, options)),
      build_digest(digest128_hex(MappedFile("/proc/self/exe").bytes())),
      checkpoint_digest(source.source_digest.empty() ? checkpoint_fingerprint(*source.checkpoint)
                                                     : source.source_digest),
      comm(join_peers(flags, rank, mailbox, may_spin)),
      agreed(agree_on_facts(facts(std::move(more_facts)), *comm)),
      transport(join_cards(flags, *comm, card.get())),
      weights(load_rank_weights(source.config, {source.checkpoint.get(), source.sharded},
                                flags.n_ranks, rank)),
      images(flags.model_dir, source.config) {
  run_ops_self_check(pool);
}

RankFacts LoadedRank::facts(std::vector<std::pair<std::string, std::string>> more) const {
  RankFacts facts;
  facts.equal = {{"build", build_digest},
                 {"checkpoint", checkpoint_digest},
                 {"--tp", std::to_string(flags.n_ranks)},
                 {"--precision", flags.precision},
                 {"--backend", flags.backend},
                 {"--transport", flags.transport},
                 {"--kernels", flags.kernels},
                 {"--kv", flags.kv},
                 {"--slots", std::to_string(flags.n_slots)},
                 {"--mtp", std::to_string(flags.n_drafts)},
                 {"--draft-window", std::to_string(flags.draft_window)},
                 {"--draft-vocab", digest128_hex(std::as_bytes(std::span(options.draft_vocab)))},
                 {"--prefill-grid", std::to_string(flags.prefill_grid)},
                 {"--prefix-cache", std::to_string(flags.prefix_cache_bytes)}};
  facts.equal.insert(facts.equal.end(), more.begin(), more.end());
  facts.max_context = plan.max_context;
  facts.shard_digest = checkpoint_fingerprint(*source.checkpoint);
  return facts;
}

EngineOptions LoadedRank::engine_options() const {
  EngineOptions agreed_options = options;
  agreed_options.max_context = agreed.max_context;
  agreed_options.transport = transport.get();
  return agreed_options;
}

}  // namespace lockstep

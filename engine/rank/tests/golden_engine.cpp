#include "engine/rank/tests/golden_engine.h"

#include <unistd.h>

#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/philox.h"
#include "engine/comm/mailbox.h"
#include "engine/ops/common/cpu_target.h"

namespace lockstep::testing {
namespace {

const std::string kGolden = LOCKSTEP_GOLDEN_DIR;

const nlohmann::json& oracle_entry(const std::string& name) {
  static const auto json = nlohmann::json::parse(read_text_file(kGolden + "/oracle/public.json"));
  for (const auto& prompt : json["prompts"]) {
    if (prompt["name"] == name) return prompt;
  }
  fail("the oracle has no prompt {}", name);
}

// LOCKSTEP_TEST_DEVICE runs the same tests on a card (ci/lanes/rank_cuda.sh).
Device* test_device() {
  static const std::unique_ptr<Device> device = [] {
    const char* name = std::getenv("LOCKSTEP_TEST_DEVICE");
    return name == nullptr ? nullptr : open_device(name);
  }();
  return device.get();
}

EngineOptions on_test_device(EngineOptions options) {
  options.device = test_device();
  return options;
}

}  // namespace

bool tests_run_on_card() {
  return test_device() != nullptr;
}

const GoldenModel& golden_model() {
  static const GoldenModel* model = [] {
    select_cpu_target("auto");
    const std::string dir = kGolden + "/tiny-qwen3_5";
    auto* loaded = new GoldenModel{load_model_config(dir), Checkpoint(dir), {}, {}};
    const WeightSource source{&loaded->checkpoint, false};
    loaded->whole = load_rank_weights(loaded->config, source, 1, 0);
    for (int rank : {0, 1}) {
      loaded->halves[rank] = load_rank_weights(loaded->config, source, 2, rank);
    }
    return loaded;
  }();
  return *model;
}

std::vector<int32_t> oracle_prompt(const std::string& name) {
  return oracle_entry(name)["ids"].get<std::vector<int32_t>>();
}

std::vector<int32_t> oracle_greedy(const std::string& name) {
  return oracle_entry(name)["greedy"].get<std::vector<int32_t>>();
}

SoloEngine::SoloEngine(const EngineOptions& options, int n_threads)
    : pool_(n_threads), comm_(make_single_rank_communicator()) {
  const GoldenModel& model = golden_model();
  engine_ = std::make_unique<RankEngine>(model.config, model.whole, on_test_device(options), *comm_,
                                         pool_);
}

PairResults run_pair(const EngineOptions& options, const std::vector<Request>& requests) {
  const GoldenModel& model = golden_model();
  const int mailbox = create_mailbox_file();
  const std::string path = "/proc/self/fd/" + std::to_string(mailbox);
  PairResults results;
  const auto run_rank = [&](int rank) {
    ThreadPool pool(1);
    const auto comm = join_mailbox(path, rank, {});
    RankEngine engine(model.config, model.halves[rank], on_test_device(options), *comm, pool);
    results.ranks[rank] = engine.run(requests);
  };
  // What comes out is what a rank died of, not what its peer says of its absence.
  auto peer = std::async(std::launch::async, run_rank, 1);
  try {
    run_rank(0);
  } catch (const Error& error) {
    if (error.code() == ExitCode::peer_lost) peer.get();
    throw;
  }
  peer.get();
  ::close(mailbox);
  return results;
}

Request greedy_request(const std::string& name, std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.name = name;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

Request sampled_request(int index, std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request =
      greedy_request("sampled-" + std::to_string(index), std::move(prompt), max_tokens);
  PhiloxStream random(static_cast<uint64_t>(index), 77);
  request.sampling.seed = (uint64_t{random.next_u32()} << 32) | random.next_u32();
  request.sampling.temperature = 0.2f + 1.3f * random.next_uniform();
  if (index % 2 == 0) request.sampling.top_k = static_cast<int32_t>(1 + random.next_below(60));
  if (index % 3 == 0) request.sampling.top_p = 0.5f + 0.5f * random.next_uniform();
  if (index % 5 == 0) request.sampling.min_p = 0.1f * random.next_uniform();
  if (index % 4 == 1) request.sampling.presence_penalty = random.next_uniform();
  if (index % 4 == 2) request.sampling.frequency_penalty = random.next_uniform();
  if (index % 4 == 3) request.sampling.repetition_penalty = 1.0f + random.next_uniform();
  return request;
}

std::vector<float> committed_state(const RankEngine& engine, uint64_t id) {
  const Slot* slot = engine.slot_of(id);
  LOCKSTEP_CHECK(slot != nullptr);
  const Sequence& sequence = slot->sequence;
  Backend& backend = engine.backend();
  std::vector<float> state;
  const auto append = [&](const std::vector<float>& values) {
    state.insert(state.end(), values.begin(), values.end());
  };
  for (const GdnState& gdn : backend.states(sequence)) {
    append(gdn.state);
    append(gdn.conv);
  }
  for (int layer = 0; layer < engine.kv_cache().shape().n_layers; ++layer) {
    // The MTP layer (the last) is filled for the slots whose next token is known.
    const bool mtp = layer == golden_model().config.n_kv_layers();
    const int64_t n = mtp ? slot->n_mtp_slots : sequence.n_positions;
    for (const bool value : {false, true}) append(backend.kv_rows(layer, sequence, value, 0, n));
  }
  return state;
}

std::vector<std::vector<int32_t>> ids_of(const std::vector<RequestResult>& results) {
  std::vector<std::vector<int32_t>> ids;
  for (const RequestResult& result : results) ids.push_back(result.ids);
  return ids;
}

}  // namespace lockstep::testing

// What a rank refuses before it loads anything for a card.
#include "engine/rank/backend.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "engine/rank/loaded_rank.h"
#include "engine/rank/tests/golden_engine.h"

namespace lockstep::testing {
namespace {

RunFlags cuda_flags() {
  RunFlags flags;
  flags.model_dir = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";
  flags.backend = "cuda";
  flags.n_ranks = 1;
  flags.n_threads = 1;
  flags.max_context = 1024;
  return flags;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_of(const RunFlags& flags) {
  return refusal([&] { const LoadedRank rank(flags, 0, ""); });
}

TEST(CudaFlags, ABuildWithoutTheBackendSaysSo) {
#if defined(LOCKSTEP_CUDA)
  GTEST_SKIP() << "this build has the backend";
#else
  EXPECT_EQ(refusal_of(cuda_flags()),
            "--backend cuda: this program has no CUDA backend; use --backend cpu");
#endif
}

TEST(CudaFlags, AnswersOfTheBackendNameTheFlag) {
#if !defined(LOCKSTEP_CUDA)
  GTEST_SKIP() << "this build has no CUDA backend";
#endif
  RunFlags flags = cuda_flags();
  flags.precision = "fp32";
  EXPECT_EQ(refusal_of(flags),
            "--precision fp32: the CUDA backend computes in bf16; use --backend cpu");
  flags = cuda_flags();
  flags.draft_window = 256;
  EXPECT_EQ(refusal_of(flags),
            "--draft-window 256: the CUDA backend drafts from all positions; leave it out");
  if (n_cuda_devices() > 0) return;
  EXPECT_EQ(refusal_of(cuda_flags()),
            "--backend cuda: this machine shows no card (see nvidia-smi); use --backend cpu");
}

TEST(CudaFlags, ACardThatIsTooSmallIsAPlanThatDoesNotFit) {
  if (n_cuda_devices() == 0) GTEST_SKIP() << "needs a card";
  RunFlags flags = cuda_flags();
  flags.device_memory = 30'000'000;
  EXPECT_EQ(refusal_of(flags).find("--device-memory 30000000: "), 0u) << refusal_of(flags);
}

// A device that is no card has no backend of its own.
TEST(CudaFlags, OptionsWithAnotherDeviceAreRefused) {
  const auto cpu = open_device("cpu");
  const auto comm = make_single_rank_communicator();
  ThreadPool pool(1);
  EngineOptions options;
  options.device = cpu.get();
  options.max_context = 256;
  const std::string words = refusal([&] {
    const RankEngine engine(golden_model().config, golden_model().whole, options, *comm, pool);
  });
  EXPECT_EQ(words, "device cpu: no backend runs passes on it");
}

}  // namespace
}  // namespace lockstep::testing

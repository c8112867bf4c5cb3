#include "engine/model/unused_layers.h"

#include <gtest/gtest.h>

#include "engine/model/model_source.h"
#include "engine/model/shard_plan.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(LOCKSTEP_GOLDEN_DIR) / "tiny-qwen3_5";

// The golden checkpoint beside a config with `from` replaced by `to`.
void link_model(const fs::path& dir, const std::string& from, const std::string& to) {
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.path().filename() == "config.json") continue;
    fs::create_symlink(entry.path(), dir / entry.path().filename());
  }
  std::string config = read_text_file(kGolden / "config.json");
  const size_t at = config.find(from);
  ASSERT_NE(at, std::string::npos);
  config.replace(at, from.size(), to);
  write_file_atomically(dir / "config.json", config);
}

TEST(UnusedLayers, TheGoldenModelHasNone) {
  const Checkpoint checkpoint(kGolden);
  ModelConfig config = load_model_config(kGolden);
  EXPECT_NO_THROW(refuse_unused_layers(config, checkpoint));
  // What a config may leave out: the text is the same without it.
  config.n_mtp_layers = 0;
  config.vision.reset();
  EXPECT_NO_THROW(refuse_unused_layers(config, checkpoint));
}

TEST(UnusedLayers, OfTheLanguageModelAreRefusedByName) {
  const TestDir dir;
  link_model(dir.path(), "\"num_hidden_layers\": 8", "\"num_hidden_layers\": 5");
  const std::vector<std::string> words = {"layers 5 to 7", "model.language_model.layers.5.",
                                          "num_hidden_layers 5", "set it to 8"};
  for (const int n_ranks : {1, 2}) {
    expect_error([&] { open_model_source(dir.path().string(), "", n_ranks, 0); }, words);
  }
  const Checkpoint checkpoint(dir.path());
  const ModelConfig config = load_model_config(dir.path());
  expect_error([&] { make_shard_plan(config, checkpoint, 2); }, words);
}

TEST(UnusedLayers, OfTheVisionTowerAreRefusedByName) {
  const TestDir dir;
  link_model(dir.path(), "\"depth\": 2", "\"depth\": 1");
  expect_error([&] { open_model_source(dir.path().string(), "", 1, 0); },
               {"layers 1 to 1", "model.visual.blocks.1.", "vision_config.depth 1", "set it to 2"});
}

}  // namespace
}  // namespace lockstep

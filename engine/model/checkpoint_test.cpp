#include "engine/model/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void write_tensors(const fs::path& path, const std::vector<std::string>& names, uint16_t value) {
  const uint16_t bits[4] = {value, value, value, value};
  SafetensorsWriter writer;
  for (const std::string& name : names) {
    writer.add(name, DType::BF16, {2, 2}, std::as_bytes(std::span(bits)));
  }
  writer.write(path);
}

void write_index(const fs::path& dir, const nlohmann::json& map) {
  write_file_atomically(dir / "model.safetensors.index.json",
                        nlohmann::json{{"weight_map", map}}.dump());
}

TEST(Checkpoint, NormalisesThePrefixesOfPublishedCheckpoints) {
  const std::pair<const char*, const char*> rows[] = {
      {"model.language_model.layers.0.mlp.up_proj.weight",
       "model.language_model.layers.0.mlp.up_proj.weight"},
      {"model.layers.0.mlp.up_proj.weight", "model.language_model.layers.0.mlp.up_proj.weight"},
      {"language_model.model.norm.weight", "model.language_model.norm.weight"},
      {"language_model.lm_head.weight", "lm_head.weight"},
      {"lm_head.weight", "lm_head.weight"},
      {"mtp.fc.weight", "mtp.fc.weight"},
      {"model.mtp.fc.weight", "mtp.fc.weight"},
      {"visual.pos_embed.weight", "model.visual.pos_embed.weight"},
      {"model.visual.pos_embed.weight", "model.visual.pos_embed.weight"},
  };
  for (const auto& [name, canonical] : rows) EXPECT_EQ(canonical_tensor_name(name), canonical);
}

TEST(Checkpoint, ReadsOneFileOrAnIndex) {
  const TestDir dir;
  write_tensors(dir / "a.safetensors", {"model.norm.weight"}, 1);
  write_tensors(dir / "b.safetensors", {"lm_head.weight"}, 2);
  EXPECT_EQ(Checkpoint(dir.path()).tensors().size(), 2u);
  // With an index, only the files that it lists count; it may spell the prefixes otherwise.
  write_index(dir.path(), {{"language_model.lm_head.weight", "b.safetensors"}});
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.tensors().size(), 1u);
  EXPECT_EQ(checkpoint.n_bytes(), 8);
  EXPECT_NE(checkpoint.find("lm_head.weight"), nullptr);
}

TEST(Checkpoint, RefusesBrokenFoldersByName) {
  const TestDir dir;
  expect_error([&] { Checkpoint(dir / "none"); }, {"none", "folder"});
  expect_error([&] { Checkpoint{dir.path()}; }, {"no .safetensors"});
  write_tensors(dir / "a.safetensors", {"lm_head.weight"}, 1);
  const std::pair<nlohmann::json, std::string> rows[] = {
      {{{"lm_head.weight", "missing.safetensors"}}, "missing.safetensors"},
      {{{"lm_head.weight", "../a.safetensors"}}, "leaves the folder"},
      {{{"lm_head.weight", 7}}, "file name"},
      {{{"mtp.fc.weight", "a.safetensors"}}, "mtp.fc.weight"},
      {nlohmann::json::object(), "weight_map"},
      {nlohmann::json::array(), "weight_map"},
  };
  for (const auto& [map, word] : rows) {
    write_index(dir.path(), map);
    expect_error([&] { Checkpoint{dir.path()}; }, {word});
  }
  write_file_atomically(dir / "model.safetensors.index.json", "{");
  expect_error([&] { Checkpoint{dir.path()}; }, {"index.json"});
}

TEST(Checkpoint, RefusesAnIndexThatItsFilesContradict) {
  const TestDir dir;
  write_tensors(dir / "a.safetensors", {"model.norm.weight", "mtp.fc.weight"}, 1);
  write_tensors(dir / "b.safetensors", {"lm_head.weight"}, 2);
  nlohmann::json honest = {{"model.norm.weight", "a.safetensors"},
                           {"mtp.fc.weight", "a.safetensors"},
                           {"lm_head.weight", "b.safetensors"}};
  write_index(dir.path(), honest);
  EXPECT_EQ(Checkpoint(dir.path()).tensors().size(), 3u);
  const auto refuse = [&](const nlohmann::json& map, const std::vector<std::string>& words) {
    write_index(dir.path(), map);
    expect_error([&] { Checkpoint{dir.path()}; }, words);
  };
  nlohmann::json misplaced = honest;
  misplaced["lm_head.weight"] = "a.safetensors";
  misplaced["mtp.fc.weight"] = "b.safetensors";
  refuse(misplaced, {"lm_head.weight in a.safetensors", "b.safetensors holds it"});
  nlohmann::json unlisted = honest;
  unlisted.erase("mtp.fc.weight");
  refuse(unlisted, {"does not list tensor mtp.fc.weight", "a.safetensors"});
  nlohmann::json invented = honest;
  invented["mtp.norm.weight"] = "a.safetensors";
  refuse(invented, {"lists tensor mtp.norm.weight", "a.safetensors does not hold"});
  nlohmann::json twice = honest;
  twice["model.language_model.norm.weight"] = "a.safetensors";
  refuse(twice, {"norm.weight", "twice"});
}

TEST(Checkpoint, RefusesATensorThatIsThereTwice) {
  const TestDir dir;
  write_tensors(dir / "a.safetensors", {"model.norm.weight"}, 1);
  write_tensors(dir / "b.safetensors", {"model.language_model.norm.weight"}, 2);
  expect_error([&] { Checkpoint{dir.path()}; }, {"norm.weight", "twice"});
}

TEST(Checkpoint, RefusesMissingMisshapenAndMistypedTensors) {
  const TestDir dir;
  write_tensors(dir / "a.safetensors", {"x.weight"}, 1);
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.floats("x.weight", {2, 2}).size(), 4u);
  expect_error([&] { checkpoint.floats("y.weight", {2, 2}); }, {"y.weight", "[2, 2]", "missing"});
  expect_error([&] { checkpoint.floats("x.weight", {4}); }, {"x.weight", "[2, 2]", "[4]"});
  expect_error([&] { checkpoint.matrix("y", 2, 2); }, {"matrix y", "missing"});
  expect_error([&] { checkpoint.matrix("x", 2, 3); }, {"matrix x", "[2, 2]", "[2, 3]"});
}

TEST(Checkpoint, DigestDependsOnEveryByteAndNotOnFiles) {
  const TestDir one;
  write_tensors(one / "a.safetensors", {"a.weight", "b.weight"}, 5);
  const TestDir two;
  write_tensors(two / "1.safetensors", {"b.weight"}, 5);
  write_tensors(two / "2.safetensors", {"a.weight"}, 5);
  EXPECT_EQ(Checkpoint(one.path()).digest(), Checkpoint(two.path()).digest());
  EXPECT_EQ(checkpoint_fingerprint(Checkpoint(one.path())),
            checkpoint_fingerprint(Checkpoint(two.path())));
  write_tensors(two / "2.safetensors", {"a.weight"}, 6);
  EXPECT_NE(Checkpoint(one.path()).digest(), Checkpoint(two.path()).digest());
  EXPECT_NE(checkpoint_fingerprint(Checkpoint(one.path())),
            checkpoint_fingerprint(Checkpoint(two.path())));
}

}  // namespace
}  // namespace lockstep

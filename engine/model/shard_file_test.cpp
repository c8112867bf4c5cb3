#include "engine/model/shard_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/mapped_file.h"
#include "engine/model/digest_file.h"
#include "engine/model/model_source.h"
#include "engine/model/shard_set.h"
#include "engine/model/shard_writer.h"
#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5";

ShardReport shard_golden(const fs::path& out, int n_ranks = 2) {
  return write_shards(load_model_config(kGolden), Checkpoint(kGolden),
                      read_companion_files(kGolden), n_ranks, out);
}

std::string bytes_of(const fs::path& path) {
  return read_text_file(path);
}

void flip_bit(const fs::path& path, size_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const char value = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(value);
}

// One sharded golden model for the tests that only read it.
const fs::path& shared_shards() {
  static const TestDir dir;
  static const bool done = (shard_golden(dir.path()), true);
  LOCKSTEP_CHECK(done);
  return dir.path();
}

void copy_shards(const TestDir& dir) {
  fs::copy(shared_shards(), dir.path(), fs::copy_options::overwrite_existing);
}

TEST(ShardFile, EveryBlockIsTheSourcesBitForBit) {
  const VerifyReport report =
      verify_shards(load_model_config(kGolden), Checkpoint(kGolden), ShardSet(shared_shards()));
  EXPECT_EQ(report.n_tensors, 241);
  EXPECT_GT(report.n_blocks, 2 * report.n_tensors);
}

TEST(ShardFile, JoinGivesTheSourceBack) {
  const TestDir out;
  const JoinReport report = join_shards(shared_shards(), out.path());
  EXPECT_EQ(report.digest, Checkpoint(kGolden).digest());
  EXPECT_EQ(report.digest, Checkpoint(out.path()).digest());
  EXPECT_EQ(bytes_of(out / "config.json"), bytes_of(kGolden / "config.json"));
}

TEST(ShardFile, TensorsStartAtMultiplesOfTheirElements) {
  const auto shard = open_shard(shared_shards(), 1, 2);
  for (const auto& [name, tensor] : shard->checkpoint().tensors()) {
    const auto address = reinterpret_cast<uintptr_t>(tensor->bytes.data());
    EXPECT_EQ(address % static_cast<uintptr_t>(dtype_bytes(tensor->dtype)), 0u) << name;
  }
}

TEST(ShardFile, AFlippedBitAnywhereIsFoundAtLoad) {
  const TestDir dir;
  copy_shards(dir);
  const fs::path path = dir / shard_file_name(0, 2);
  const size_t n_bytes = fs::file_size(path);
  const size_t n_header = 8 + SafetensorsFile(path).header_text().size();
  PhiloxStream random(3);
  std::vector<size_t> places = {0, 3, 7, 8, n_header - 1, n_header, n_bytes - 1};
  for (int i = 0; i < 40; ++i) places.push_back(random.next_below(static_cast<uint32_t>(n_header)));
  for (int i = 0; i < 25; ++i) places.push_back(random.next_below(static_cast<uint32_t>(n_bytes)));
  for (const size_t place : places) {
    const int bit = static_cast<int>(random.next_below(8));
    flip_bit(path, place, bit);
    std::string damaged;  // the tensor that the byte belongs to
    if (place >= n_header) {
      const SafetensorsFile file(path);
      const auto* base = file.tensors().front().bytes.data();
      for (const TensorInfo& tensor : file.tensors()) {
        const auto begin = static_cast<size_t>(tensor.bytes.data() - base) + n_header;
        if (begin <= place && place < begin + tensor.bytes.size()) damaged = tensor.name;
      }
    }
    expect_error([&] { open_shard(dir.path(), 0, 2); }, {shard_file_name(0, 2), damaged});
    flip_bit(path, place, bit);
  }
  EXPECT_NO_THROW(open_shard(dir.path(), 0, 2));
}

TEST(ShardFile, RefusesOtherLengths) {
  const TestDir dir;
  copy_shards(dir);
  const fs::path path = dir / shard_file_name(0, 2);
  const auto n_bytes = fs::file_size(path);
  fs::resize_file(path, n_bytes + 1);
  expect_error([&] { open_shard(dir.path(), 0, 2); }, {"data bytes", "damaged"});
  fs::resize_file(path, n_bytes - 1);
  expect_error([&] { open_shard(dir.path(), 0, 2); }, {"truncated"});
}

TEST(ShardFile, RefusesANewerVersionByName) {
  const TestDir dir;
  copy_shards(dir);
  const fs::path path = dir / shard_file_name(0, 2);
  std::string text = bytes_of(path);
  const std::string mark = "\"lockstep.shard_version\":\"";
  text[text.find(mark) + mark.size()] = '2';
  write_file_atomically(path, text);
  expect_error([&] { open_shard(dir.path(), 0, 2); }, {"format 2", "newer"});
}

TEST(ShardFile, RefusesTheWrongRankAndNumberOfRanks) {
  const TestDir dir;
  copy_shards(dir);
  expect_error([&] { open_shard(dir.path(), 0, 1); }, {shard_file_name(0, 1), "does not exist"});
  fs::rename(dir / shard_file_name(0, 2), dir / "kept");
  fs::copy(dir / shard_file_name(1, 2), dir / shard_file_name(0, 2));
  expect_error([&] { open_shard(dir.path(), 0, 2); }, {"rank 1 of 2", "rank 0 of 2"});
  fs::copy(dir / "kept", dir / shard_file_name(0, 1));
  expect_error([&] { open_shard(dir.path(), 0, 1); }, {"rank 0 of 2", "rank 0 of 1"});
}

TEST(ShardFile, RefusesAnotherConfig) {
  const TestDir dir;
  copy_shards(dir);
  write_file_atomically(dir / "config.json", bytes_of(kGolden / "config.json") + " ");
  expect_error([&] { open_shard(dir.path(), 0, 2); }, {"config.json"});
}

TEST(ShardFile, RefusesALayoutThatThePathDoesNotKnow) {
  const TestDir dir;
  copy_shards(dir);
  const ShardFile shard(dir / shard_file_name(0, 2));
  ShardIdentity identity = shard.identity();
  identity.layout = "tiles-9x9";
  const std::vector<TensorInfo>& tensors = shard.checkpoint().files()[0]->tensors();
  std::string text = shard_header(identity, tensors, shard.digests());
  for (const TensorInfo& tensor : tensors) {
    text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  write_file_atomically(dir / shard_file_name(0, 2), text);
  expect_error([&] { open_shard(dir.path(), 0, 2); },
               {shard_file_name(0, 2), "tiles-9x9", "row-major"});
}

TEST(ShardFile, RefusesAPlainCheckpointFile) {
  const TestDir dir;
  fs::copy(kGolden / "model-00001-of-00002.safetensors", dir / shard_file_name(0, 2));
  expect_error([&] { open_shard(dir.path(), 0, 2); }, {"not a shard file"});
}

TEST(ShardFile, RefusesShardsOfAnotherCheckpoint) {
  const TestDir model;
  fs::copy(kGolden, model.path());
  const std::string name = "model-00001-of-00002.safetensors";
  EXPECT_NO_THROW(open_model_source(model.path(), shared_shards(), 2, 0));
  const SafetensorsFile file(model / name);
  const TensorInfo& tensor = *file.find("model.language_model.layers.3.self_attn.o_proj.weight");
  const size_t start = 8 + file.header_text().size();
  const auto at = static_cast<size_t>(tensor.bytes.data() - file.tensors().front().bytes.data());
  for (size_t i = 0; i < tensor.bytes.size(); i += 1024) flip_bit(model / name, start + at + i, 2);
  expect_error([&] { open_model_source(model.path(), shared_shards(), 2, 0); },
               {"--shards", "another checkpoint"});
}

TEST(ShardFile, ARankStartsFromShardsAlone) {
  const ModelSource source = open_model_source(shared_shards(), shared_shards(), 2, 1);
  EXPECT_TRUE(source.sharded);
  EXPECT_EQ(source.source_digest, Checkpoint(kGolden).digest());
  EXPECT_EQ(source.checkpoint->tensors().size(), 241u);
  EXPECT_FALSE(open_model_source(kGolden, "", 2, 0).sharded);
}

TEST(ShardFile, MixedShardsAreNotOneSet) {
  const TestDir other_model;
  fs::copy(kGolden, other_model.path());
  flip_bit(other_model / "model-00002-of-00002.safetensors", 7000000, 1);
  const TestDir other;
  write_shards(load_model_config(other_model.path()), Checkpoint(other_model.path()),
               read_companion_files(other_model.path()), 2, other.path());
  const TestDir mixed;
  copy_shards(mixed);
  fs::copy(other / shard_file_name(1, 2), mixed / shard_file_name(1, 2),
           fs::copy_options::overwrite_existing);
  expect_error([&] { ShardSet{mixed.path()}; }, {"different checkpoints"});
  // And against the wrong source the first differing byte is named.
  expect_error(
      [&] {
        verify_shards(load_model_config(kGolden), Checkpoint(kGolden), ShardSet(other.path()));
      },
      {"byte", "rank"});
}

TEST(ShardWriter, WritingAgainKeepsWhatIsWholeAndMendsWhatIsNot) {
  const TestDir dir;
  copy_shards(dir);
  EXPECT_EQ(shard_golden(dir.path()).n_resumed, 241);
  const std::string good = bytes_of(dir / shard_file_name(1, 2));
  flip_bit(dir / shard_file_name(1, 2), 5000000, 0);
  EXPECT_EQ(shard_golden(dir.path()).n_resumed, 0);
  EXPECT_EQ(bytes_of(dir / shard_file_name(1, 2)), good);
}

// Stops a run by a folder in the place of a final file, as a full disk would stop it: at the
// rename.
TEST(ShardWriter, AnInterruptedRunIsTakenUpAgain) {
  const TestDir dir;
  const fs::path second = dir / shard_file_name(1, 2);
  fs::create_directory(second);
  fs::create_directory(second / "in the way");
  EXPECT_THROW(shard_golden(dir.path()), Error);
  EXPECT_TRUE(fs::exists(dir / "shard-of-2.journal"));
  fs::remove_all(second);
  // Two damaged tensors in the partial file must be written again, the others not.
  const fs::path partial = second.string() + ".partial";
  flip_bit(partial, 3000000, 5);
  flip_bit(partial, 9000000, 5);
  const ShardReport report = shard_golden(dir.path());
  EXPECT_EQ(report.n_resumed, 239);
  EXPECT_FALSE(fs::exists(dir / "shard-of-2.journal"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(bytes_of(dir / shard_file_name(rank, 2)),
              bytes_of(shared_shards() / shard_file_name(rank, 2)));
  }
}

TEST(ShardWriter, AJournalOfAnotherSourceIsNotBelieved) {
  const TestDir dir;
  write_file_atomically(dir / "shard-of-2.journal",
                        std::string("lockstep-shard-journal 1 2 00 1 1\nlm_head.weight 0 0 0\n"));
  EXPECT_EQ(shard_golden(dir.path()).n_resumed, 0);
}

TEST(DigestFile, FindsTheTensorThatDiffers) {
  const TestDir dir;
  const Checkpoint golden(kGolden);
  write_digest_file(compute_digests(golden), dir / "digests.json");
  const DigestFile digests = read_digest_file(dir / "digests.json");
  EXPECT_NO_THROW(check_digests(golden, digests));
  DigestFile wrong = digests;
  wrong.tensors["mtp.fc.weight"][5] ^= 1;
  expect_error([&] { check_digests(golden, wrong); }, {"mtp.fc.weight", "differs"});
  wrong = digests;
  wrong.tensors.erase("mtp.fc.weight");
  expect_error([&] { check_digests(golden, wrong); }, {"mtp.fc.weight", "not in"});
  wrong = digests;
  wrong.tensors["extra"] = wrong.checkpoint;
  expect_error([&] { check_digests(golden, wrong); }, {"extra", "missing"});
  wrong = digests;
  wrong.checkpoint[0] ^= 1;
  expect_error([&] { check_digests(golden, wrong); }, {"dtypes or shapes"});
  for (const char* text : {"", "[]", "{\"lockstep_digests\":2}", "{\"lockstep_digests\":1}",
                           "{\"lockstep_digests\":1,\"checkpoint\":\"a\",\"tensors\":{\"x\":7}}"}) {
    write_file_atomically(dir / "bad.json", std::string(text) + " ");
    expect_error([&] { read_digest_file(dir / "bad.json"); }, {"bad.json"});
  }
}

}  // namespace
}  // namespace lockstep

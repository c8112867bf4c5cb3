#include "validation/tap_file.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using testing::random_tensor;

class TapFile : public ::testing::Test {
 protected:
  // Writes one rank's file with one tap of `rows` rows and, when not empty, its shard description.
  void write(int rank, int64_t rows, const std::string& shard, uint64_t seed) {
    const FloatTensor tensor = random_tensor({rows, 2}, seed);
    SafetensorsWriter writer;
    writer.add("state/x", DType::F32, tensor.shape, std::as_bytes(std::span(tensor.values)));
    if (!shard.empty()) writer.set_metadata("shard:state/x", shard);
    writer.write(path(rank));
  }
  std::filesystem::path path(int rank) const {
    return dir_.path() / (std::to_string(rank) + ".safetensors");
  }
  std::string error_of_both() const {
    try {
      read_tap_dump({path(0), path(1)});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::could_not_judge);
      return error.what();
    }
    return "no error";
  }

  TempDir dir_;
};

TEST_F(TapFile, PutsRangesBackInTheirPlaces) {
  write(0, 3, "5;0:1,3:5", 1);
  write(1, 2, "5;1:3", 2);
  const TapDump dump = read_tap_dump({path(0), path(1)});
  const std::vector<float> a = random_tensor({3, 2}, 1).values;
  const std::vector<float> b = random_tensor({2, 2}, 2).values;
  const FloatTensor& whole = dump.taps.at("state/x");
  EXPECT_EQ(whole.shape, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(whole.values,
            (std::vector<float>{a[0], a[1], b[0], b[1], b[2], b[3], a[2], a[3], a[4], a[5]}));
  EXPECT_TRUE(dump.rank_differences.empty());
}

TEST_F(TapFile, ReplicatedTapsMustHaveTheSameBits) {
  write(0, 3, "", 1);
  write(1, 3, "", 1);
  EXPECT_TRUE(read_tap_dump({path(0), path(1)}).rank_differences.empty());
  write(1, 3, "", 2);
  EXPECT_EQ(read_tap_dump({path(0), path(1)}).rank_differences,
            (std::vector<std::string>{"state/x"}));
  write(1, 4, "", 1);
  EXPECT_EQ(read_tap_dump({path(0), path(1)}).rank_differences.size(), 1u);
}

TEST_F(TapFile, BadShardsAreRefusedByName) {
  const auto broken = [&](const std::string& shard0, const std::string& shard1) {
    write(0, 2, shard0, 1);
    write(1, 2, shard1, 2);
    return error_of_both();
  };
  EXPECT_EQ(broken("4;0:2", "4;2:4"), "no error");
  EXPECT_NE(broken("4;0:2", "4;0:2").find("row 0 is held twice"), std::string::npos);
  EXPECT_NE(broken("5;0:2", "5;2:4").find("do not hold the whole tap"), std::string::npos);
  EXPECT_NE(broken("4;0:2", "4;2:5").find("lies outside"), std::string::npos);
  EXPECT_NE(broken("4;0:2", "4;2:3").find("does not fit its 1"), std::string::npos);
  EXPECT_NE(broken("4;0:2", "").find("whole here"), std::string::npos);
  EXPECT_NE(broken("", "4;2:4").find("split here"), std::string::npos);
  EXPECT_NE(broken("4;0:x", "4;2:4").find("damaged"), std::string::npos);
  EXPECT_NE(broken("4", "4;2:4").find("no ranges"), std::string::npos);
  EXPECT_NE(broken("4;0", "4;2:4").find("damaged"), std::string::npos);
  EXPECT_NE(broken("4;2:0", "4;2:4").find("lies outside"), std::string::npos);
  EXPECT_NE(broken("9000000000000000000;0:2", "4;2:4").find("claims"), std::string::npos);
  EXPECT_NE(broken("99999999999999999999;0:2", "4;2:4").find("damaged"), std::string::npos);
}

TEST_F(TapFile, MissingAndDamagedFilesAreRefusedByName) {
  write(0, 2, "", 1);
  EXPECT_NE(error_of_both().find("1.safetensors"), std::string::npos);
  write_file_atomically(path(1), std::string("garbage"));
  EXPECT_NE(error_of_both().find("1.safetensors"), std::string::npos);
  SafetensorsWriter().write(path(1));
  EXPECT_NE(error_of_both().find("tap state/x is missing"), std::string::npos);
}

TEST(TapOrder, FollowsTheNetwork) {
  const std::vector<std::string> expected = {"embed",
                                             "layers.0.mixer",
                                             "layers.0.mlp",
                                             "layers.0.out",
                                             "layers.2.mixer",
                                             "layers.10.mixer",
                                             "final_norm",
                                             "state/layers.0.gdn_state_rowsum",
                                             "state/layers.0.gdn_state_colsum",
                                             "state/layers.0.gdn_state_norm",
                                             "state/layers.0.conv_state",
                                             "state/layers.3.k",
                                             "state/layers.3.v",
                                             "decode/layers.0.out",
                                             "decode/layers.1.out",
                                             "decode/final_norm"};
  TapMap taps;
  for (auto it = expected.rbegin(); it != expected.rend(); ++it) taps[*it];
  std::vector<std::string> order;
  for (const auto& [tap, unused] : taps) order.push_back(tap);
  EXPECT_EQ(order, expected);
}

TEST(TapLayer, ReadsTheNumber) {
  EXPECT_EQ(tap_layer("layers.12.mixer"), 12);
  EXPECT_EQ(tap_layer("decode/layers.3.out"), 3);
  EXPECT_EQ(tap_layer("final_norm"), -1);
  EXPECT_EQ(tap_layer("layers.x.out"), -1);
  EXPECT_EQ(tap_layer("layers.7"), -1);
  EXPECT_EQ(tap_layer("layers.99999999999.out"), -1);
}

}  // namespace
}  // namespace lockstep

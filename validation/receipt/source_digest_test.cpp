#include "validation/receipt/source_digest.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "validation/testing/source_tree.h"

namespace lockstep {
namespace {

TEST(WithoutComments, KeepsCodeAndLiterals) {
  EXPECT_EQ(without_comments("int a;  // one\n\n/* two\nlines */ int b;\n"), "int a;\n  int b;\n");
  EXPECT_EQ(without_comments("auto s = \"// no /* comment\";\n"),
            "auto s = \"// no /* comment\";\n");
  EXPECT_EQ(without_comments("char q = '\"'; // x\n"), "char q = '\"';\n");
  EXPECT_EQ(without_comments("int n = 1'000; // x\n"), "int n = 1'000;\n");
  EXPECT_EQ(without_comments("auto r = R\"x(// stays\n)\" )x\"; // goes\n"),
            "auto r = R\"x(// stays\n)\" )x\";\n");
  EXPECT_EQ(without_comments("/* never closed"), "");
}

class SourceDigest : public ::testing::Test {
 protected:
  std::string digest_of_linear() const {
    return unit_digest(source_units(tree_.root(), SourceScope::cuda_ops).at("linear"));
  }
  testing::SourceTree tree_;
};

TEST_F(SourceDigest, AnOpIsItsKernelsItsPlanAndTheirHeaders) {
  const SourceUnits units = source_units(tree_.root(), SourceScope::cuda_ops);
  ASSERT_EQ(units.size(), 1u) << "an op without CUDA sources has no unit";
  const FileDigests& files = units.at("linear");
  EXPECT_EQ(files.size(), 4u);
  for (const char* path : {"engine/ops/linear/cuda/gemv.cu", "engine/ops/linear/linear_plan.h",
                           "engine/ops/linear/linear.h", "engine/ops/common/rounding.h"}) {
    EXPECT_TRUE(files.contains(path)) << path;
  }
}

TEST_F(SourceDigest, CodeCountsAndCommentsDoNot) {
  const std::string before = digest_of_linear();
  tree_.write("engine/ops/linear/cuda/gemv.cu",
              "// another comment\n#include \"engine/ops/linear/linear.h\"\nint kernel = 1;\n");
  EXPECT_EQ(digest_of_linear(), before);
  tree_.write("engine/ops/common/rounding.h", "enum class Rounding { none, bf16, fp16 };\n");
  EXPECT_NE(digest_of_linear(), before) << "an included header counts";
}

TEST_F(SourceDigest, TestsDoNotCount) {
  const std::string before = digest_of_linear();
  tree_.write("engine/ops/linear/cuda/gemv_test.cu", "int test = 1;\n");
  EXPECT_EQ(digest_of_linear(), before);
}

TEST_F(SourceDigest, TheEngineIsOneUnitAFolder) {
  const SourceUnits units = source_units(tree_.root(), SourceScope::engine);
  EXPECT_TRUE(units.contains("engine/ops/linear"));
  EXPECT_TRUE(units.contains("engine/ops/argmax"));
}

TEST(SourceScopes, HaveNames) {
  EXPECT_EQ(parse_scope(scope_name(SourceScope::engine), "x"), SourceScope::engine);
  EXPECT_EQ(parse_scope("cuda-ops", "x"), SourceScope::cuda_ops);
  EXPECT_THROW(parse_scope("all", "x"), Error);
  EXPECT_THROW(source_units("/nonexistent", SourceScope::engine), Error);
}

}  // namespace
}  // namespace lockstep

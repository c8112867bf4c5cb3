// A source tree with one CUDA op and one without, for tests of receipts.
#pragma once

#include <string>

#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"

namespace lockstep::testing {

class SourceTree {
 public:
  SourceTree() {
    write("engine/ops/linear/cuda/gemv.cu",
          "#include \"engine/ops/linear/linear.h\"\nint kernel = 1;  // a comment\n");
    write("engine/ops/linear/linear.h",
          "#include \"engine/ops/common/rounding.h\"\nint linear();\n");
    write("engine/ops/linear/linear_plan.h", "int plan();\n");
    write("engine/ops/common/rounding.h", "enum class Rounding { none, bf16 };\n");
    write("engine/ops/argmax/argmax.cpp", "int argmax() { return 0; }\n");
    write("ci/policy.json",
          R"({"format": "lockstep-receipt-policy", "format_version": 1, "required": ["gpu"]})");
  }

  const std::filesystem::path& root() const { return folder_.path(); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root() / path).parent_path());
    write_file_atomically(root() / path, text);
  }

 private:
  TempDir folder_;
};

}  // namespace lockstep::testing

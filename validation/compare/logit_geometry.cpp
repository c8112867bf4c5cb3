#include "validation/compare/logit_geometry.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "engine/model/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// In order of preference; the last is lm_head when the checkpoint ties it to the embedding.
constexpr std::array<const char*, 4> kNames = {"lm_head.weight", "model.lm_head.weight",
                                               "model.language_model.embed_tokens.weight",
                                               "model.embed_tokens.weight"};

constexpr std::array<const char*, 2> kFinalNorms = {"model.language_model.norm.weight",
                                                    "model.norm.weight"};

std::vector<fs::path> checkpoint_files(const fs::path& model) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(model, ignored)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_plain_float(const TensorInfo& tensor) {
  const bool plain =
      tensor.dtype == DType::BF16 || tensor.dtype == DType::F32 || tensor.dtype == DType::F16;
  return plain && tensor.shape.size() == 2;
}

double norm_length(const std::vector<SafetensorsFile>& files) {
  for (const char* name : kFinalNorms) {
    for (const SafetensorsFile& file : files) {
      const TensorInfo* found = file.find(name);
      if (found == nullptr || found->shape.size() != 1) continue;
      double sum = 0;
      for (const float w : to_float_vector(*found)) sum += (1 + double{w}) * (1 + double{w});
      return std::sqrt(sum);
    }
  }
  return 0;
}

}  // namespace

struct LogitGeometry::Matrix {
  SafetensorsFile file;
  TensorInfo tensor;

  std::vector<float> row(int64_t index) const {
    const size_t n_bytes = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
    TensorInfo one = tensor;
    one.shape = {tensor.shape[1]};
    one.bytes = tensor.bytes.subspan(static_cast<size_t>(index) * n_bytes, n_bytes);
    return to_float_vector(one);
  }
};

LogitGeometry::LogitGeometry(const fs::path& model) {
  std::vector<SafetensorsFile> files;
  for (const fs::path& path : checkpoint_files(model)) files.emplace_back(path);
  final_norm_length_ = norm_length(files);
  unavailable_ = "the checkpoint has no lm_head.weight";
  for (const char* name : kNames) {
    for (SafetensorsFile& file : files) {
      const TensorInfo* found = file.find(name);
      if (found == nullptr) continue;
      if (!is_plain_float(*found)) {
        unavailable_ = std::string(name) + " is stored as " + std::string(dtype_name(found->dtype));
        return;
      }
      unavailable_.clear();
      TensorInfo tensor = *found;
      matrix_ = std::make_unique<Matrix>(Matrix{std::move(file), std::move(tensor)});
      return;
    }
  }
}

LogitGeometry::~LogitGeometry() = default;

int64_t LogitGeometry::hidden_size() const {
  return matrix_ ? matrix_->tensor.shape[1] : 0;
}

std::optional<double> LogitGeometry::row_distance(int32_t a, int32_t b) const {
  if (!matrix_) return std::nullopt;
  const int64_t n_rows = matrix_->tensor.shape[0];
  if (a < 0 || b < 0 || a >= n_rows || b >= n_rows) return std::nullopt;
  const std::vector<float> row_a = matrix_->row(a);
  const std::vector<float> row_b = matrix_->row(b);
  double sum = 0;
  for (size_t i = 0; i < row_a.size(); ++i) {
    const double difference = double{row_a[i]} - double{row_b[i]};
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

}  // namespace lockstep

// Distances between rows of lm_head, read from the checkpoint: how far an error of the final norm
// can move the difference of two logits. Taken from the data that both sides were given, never from
// the run that is judged, so that a faulty engine cannot widen its own allowance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class LogitGeometry {
 public:
  // Finds lm_head.weight (or the tied embedding) in the *.safetensors files of `model`. A
  // checkpoint that stores it quantised, or lacks it, leaves `unavailable` non-empty.
  explicit LogitGeometry(const std::filesystem::path& model);
  ~LogitGeometry();
  LogitGeometry(const LogitGeometry&) = delete;
  LogitGeometry& operator=(const LogitGeometry&) = delete;

  const std::string& unavailable() const { return unavailable_; }
  int64_t hidden_size() const;
  // Length of the final norm's weight (1 + w): that of a normed vector whose elements are alike. 0
  // when the checkpoint has none that is plain.
  double final_norm_length() const { return final_norm_length_; }
  // |w_a - w_b|; nothing when a row does not exist or there is no lm_head.
  std::optional<double> row_distance(int32_t a, int32_t b) const;

 private:
  struct Matrix;
  std::unique_ptr<Matrix> matrix_;
  std::string unavailable_;
  double final_norm_length_ = 0;
};

}  // namespace lockstep

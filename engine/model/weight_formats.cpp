#include "engine/model/weight_formats.h"

#include "engine/base/error.h"
#include "engine/model/formats/formats.h"

namespace lockstep {

const std::vector<WeightFormat>& weight_formats() {
  static const std::vector<WeightFormat> table = {
      formats::plain(),     formats::fp8_tensor(),     formats::fp8_channel(),
      formats::fp8_block(), formats::nvfp4_modelopt(), formats::nvfp4_ct(),
      formats::int4_ct(),   formats::gptq(),           formats::awq(),
  };
  return table;
}

const WeightFormat& find_weight_format(const std::string& base, const MatrixParts& parts) {
  for (const WeightFormat& format : weight_formats()) {
    if (format.matches(parts)) return format;
  }
  std::string found;
  for (const auto& [suffix, part] : parts) {
    found += fmt::format("{}{} {} {}", found.empty() ? "" : ", ", suffix, dtype_name(part->dtype),
                         part->shape_text());
  }
  fail("matrix {}: no known weight format has {}", base, found);
}

const std::vector<std::string>& matrix_suffixes() {
  static const std::vector<std::string> suffixes = {"weight",
                                                    "weight_scale",
                                                    "weight_scale_2",
                                                    "weight_scale_inv",
                                                    "weight_packed",
                                                    "weight_global_scale",
                                                    "weight_shape",
                                                    "weight_zero_point",
                                                    "weight_g_idx",
                                                    "input_scale",
                                                    "input_global_scale",
                                                    "qweight",
                                                    "qzeros",
                                                    "scales",
                                                    "g_idx"};
  return suffixes;
}

}  // namespace lockstep

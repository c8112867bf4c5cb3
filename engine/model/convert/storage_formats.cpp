#include "engine/model/convert/storage_formats.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/model/convert/encode_fp.h"
#include "engine/model/convert/encode_int4.h"

namespace lockstep {

const std::vector<StorageFormat>& storage_formats() {
  static const std::vector<StorageFormat> table = {
      {"bf16", "plain", 1, 1, bf16_parts, encode_bf16},
      {"fp8-tensor", "fp8-tensor", 1, 1, fp8_tensor_parts, encode_fp8_tensor},
      {"fp8-channel", "fp8-channel", 1, 1, fp8_channel_parts, encode_fp8_channel},
      {"fp8-block", "fp8-block", 1, 1, fp8_block_parts, encode_fp8_block},
      {"nvfp4-modelopt", "nvfp4-modelopt", 1, 16, nvfp4_modelopt_parts, encode_nvfp4_modelopt},
      {"nvfp4-ct", "nvfp4-ct", 1, 16, nvfp4_ct_parts, encode_nvfp4_ct},
      {"int4-g64", "int4-ct", 1, 64, int4_ct_parts, encode_int4_ct},
      {"int4-g128", "int4-ct", 1, 128, int4_ct_parts, encode_int4_ct},
      {"gptq", "gptq", 8, 128, gptq_parts, encode_gptq},
      {"awq", "awq", 8, 128, awq_parts, encode_awq},
  };
  return table;
}

const StorageFormat& storage_format(std::string_view name) {
  const auto& table = storage_formats();
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const StorageFormat& row) { return row.name == name; });
  LOCKSTEP_CHECK(at != table.end());
  return *at;
}

void check_storage_shape(const StorageFormat& format, const std::string& base, int64_t n_rows,
                         int64_t n_cols) {
  if (n_rows % format.row_granule == 0 && n_cols % format.column_granule == 0) return;
  fail("matrix {}: [{}, {}] cannot be stored as {}: rows must be a multiple of {}, columns of {}",
       base, n_rows, n_cols, format.name, format.row_granule, format.column_granule);
}

PartBuffers encode_matrix(const StorageFormat& format, const std::string& base,
                          const MatrixSource& source) {
  check_storage_shape(format, base, source.n_rows, source.n_cols);
  PartBuffers buffers;
  for (const PartSpec& part : format.parts(format, source.n_rows, source.n_cols)) {
    const TensorInfo info{part.suffix, part.dtype, part.shape, {}};
    buffers[part.suffix].resize(static_cast<size_t>(info.n_bytes()));
  }
  format.encode(format, source, buffers);
  return buffers;
}

}  // namespace lockstep

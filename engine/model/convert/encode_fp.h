// Encoders to BF16, FP8 and NVFP4. Scales follow the tools that publish such checkpoints: the
// largest magnitude that a scale covers becomes the largest code (448 for E4M3, 6 for E2M1).
#pragma once

#include "engine/model/convert/storage_formats.h"

namespace lockstep {

std::vector<PartSpec> bf16_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);
std::vector<PartSpec> fp8_tensor_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);
std::vector<PartSpec> fp8_channel_parts(const StorageFormat& format, int64_t n_rows,
                                        int64_t n_cols);
std::vector<PartSpec> fp8_block_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);
std::vector<PartSpec> nvfp4_modelopt_parts(const StorageFormat& format, int64_t n_rows,
                                           int64_t n_cols);
std::vector<PartSpec> nvfp4_ct_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);

void encode_bf16(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
void encode_fp8_tensor(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
void encode_fp8_channel(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
void encode_fp8_block(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
void encode_nvfp4_modelopt(const StorageFormat& format, const MatrixSource& source,
                           PartBuffers& out);
void encode_nvfp4_ct(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);

}  // namespace lockstep

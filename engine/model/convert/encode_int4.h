// Encoders to group-wise int4. Symmetric (compressed-tensors, GPTQ): codes -8..7 with scale amax
// / 7.5; asymmetric (AWQ): codes 0..15 from the group's smallest to its largest value, zero
// included.
#pragma once

#include "engine/model/convert/storage_formats.h"

namespace lockstep {

std::vector<PartSpec> int4_ct_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);
std::vector<PartSpec> gptq_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);
std::vector<PartSpec> awq_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols);

void encode_int4_ct(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
void encode_gptq(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
void encode_awq(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);

}  // namespace lockstep

// The rows of the table of weight formats.
#pragma once

#include "engine/model/weight_formats.h"

namespace lockstep::formats {

WeightFormat plain();           // BF16, F16 or F32
WeightFormat fp8_tensor();      // E4M3, one scale
WeightFormat fp8_channel();     // E4M3, one scale a row
WeightFormat fp8_block();       // E4M3, one scale for 128 x 128
WeightFormat nvfp4_modelopt();  // E2M1, E4M3 scale for 16 columns, one multiplier
WeightFormat nvfp4_ct();        // the same numbers with a divisor (compressed-tensors)
WeightFormat int4_ct();         // int4 by groups, compressed-tensors "pack-quantized"
WeightFormat gptq();            // int4 by groups, K-major, zero points stored minus 1
WeightFormat awq();             // int4 by groups, interleaved columns

}  // namespace lockstep::formats

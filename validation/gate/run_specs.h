// The engine runs that several checks of the gate share.
#pragma once

#include "validation/gate/gate_runs.h"

namespace lockstep {

// Longer than any prompt of the oracle: prefill in one piece. A multiple of the GDN chunk of 64.
inline constexpr int kOnePiece = 8192;
inline constexpr int kSmallGrid = 64;
// TP=1 runs the requests one by one, TP=2 several together: comparing both also shows that a
// request does not depend on its neighbours (I6), and decode reads the weights once for all of
// them.
inline constexpr int kSharedSlots = 4;
// All recorded decode positions and as many again.
inline constexpr int kTokensAfterPrefill = 16;

inline const RunSpec kTp1Fp32{.label = "tp1-fp32", .tp = 1, .precision = Precision::fp32};
inline const RunSpec kTp2Fp32{.label = "tp2-fp32",
                              .tp = 2,
                              .precision = Precision::fp32,
                              .slots = kSharedSlots,
                              .use_shards = true};
inline const RunSpec kTp1Bf16{
    .label = "tp1-bf16", .tp = 1, .precision = Precision::bf16, .prefill_grid = kOnePiece};
inline const RunSpec kTp2Bf16{.label = "tp2-bf16",
                              .tp = 2,
                              .precision = Precision::bf16,
                              .prefill_grid = kOnePiece,
                              .slots = kSharedSlots,
                              .use_shards = true};
// The prefill under test, and as many tokens as show what it left behind.
inline const RunSpec kTp2Bf16Grid{.label = "tp2-bf16-grid64",
                                  .tp = 2,
                                  .precision = Precision::bf16,
                                  .prefill_grid = kSmallGrid,
                                  .slots = kSharedSlots,
                                  .max_tokens = kTokensAfterPrefill,
                                  .use_shards = true};
inline const RunSpec kTp2Bf16Again{.label = "tp2-bf16-grid64-again",
                                   .tp = 2,
                                   .precision = Precision::bf16,
                                   .prefill_grid = kSmallGrid,
                                   .slots = kSharedSlots,
                                   .max_tokens = kTokensAfterPrefill,
                                   .use_shards = true};

inline const RunSpec kSampledPlain{
    .label = "sampled-k0", .tp = 1, .precision = Precision::bf16, .prefill_grid = kSmallGrid};

}  // namespace lockstep

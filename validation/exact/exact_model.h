// An integer-exact transformer: a checkpoint of the qwen3_5 family whose weights and activations
// are small integers and powers of two, so that every legal order of every sum gives the same bits,
// and whose next token is a formula of all tokens before it (exact_formula.h).
//
// How each mechanism is made exact:
//   RMSNorm       channel 0 holds 2^22. Its square absorbs all others and eps, so the norm is the
//                 factor 2^-18; weights 2^18 - 1 undo it and hide channel 0.
//   softmax       one-hot by margins of a hundred and more, or uniform over equal scores.
//   sigmoid, SiLU saturated: arguments 0, at least 32, or at most -100.
//   delta rule    keys and queries one-hot, beta 0 or 1, decay 0 or 1: registers that tokens write.
//   MLP           ReLU by saturated SiLU: sums modulo 64.
//   INT8 KV       a constant 127 in every group of 64 makes its scale 1.
// What it does not reach: fractional decay and beta, soft attention, unsaturated gates, the MTP
// layer's attention and hidden input, pictures. The float model and its oracle judge those.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

namespace lockstep::exact {

inline constexpr int kTokens = 64;        // tokens that are ever generated
inline constexpr int kVocabulary = 96;    // further rows of lm_head show single channels
inline constexpr int kGateToken = 32;     // tokens from here on look at the past
inline constexpr int kStep = 11;          // what a token below kGateToken adds to itself
inline constexpr int kProtectedRest = 7;  // tokens of this rest modulo 8 write no register
inline constexpr int kResetToken = 63;    // clears every register
inline constexpr int kRotaryPairs = 8;
inline constexpr double kRopeTheta = 10000.0;

// How far back the one-hot heads of the two attention layers look.
struct LookBack {
  int first;   // KV head 0, part of the next token
  int second;  // KV head 0, shown in its own logit
  int third;   // KV head 1, part of the next token
};
inline constexpr LookBack kFirstAttention{3, 29, 5};
inline constexpr LookBack kSecondAttention{2, 64, 17};

// Channels whose negative, less kShownOffset, is the logit of row kTokens + i.
enum class Shown { mean1, mean3, a0, a1, a2, b0, b1, b2, r0, r1, r2, r3, u0, u1, u2, count };
inline constexpr int kShownOffset = 4096;
inline constexpr int kUnusedOffset = 8192;  // logit of the rows that show nothing

// Writes config.json and one safetensors file into `folder`.
void write_exact_model(const std::filesystem::path& folder);

}  // namespace lockstep::exact

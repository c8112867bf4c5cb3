// Every tolerance of the project's judgement, in one place, each with where its number comes from.
// tolerance_test.cpp holds the same list: loosening one takes a change in both files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep::tolerance {

// fp32, relative L2 of a whole recorded tensor. Two independent float32 implementations of the
// golden model (the oracle's and one written from its formulas) differ by at most 2.3e-6 at taps
// and 7e-6 at states: different summation orders of the same sums. Three times the larger of them;
// the weakest planted precision fault (a state rounded to bf16) is 3e-4, fifteen times above.
inline constexpr double kFp32RelL2 = 2e-5;

// fp32, relative L2 of the vision tower's rows. Two independent implementations differ by 2e-7; the
// weakest planted fault (tanh for exact GELU in the merger) is 4e-6.
inline constexpr double kFp32VisionRelL2 = 1e-6;

// bf16, relative L2 of the tower's rows, of which the oracle records no noise. Summed up from the
// rounding points, each alone in a float64 tower (golden/recipe/vision_rounding.py; worst of 12
// pictures). Storing the rows is 1.7e-3: a value rounds by 2^-8 / sqrt(3) in its mantissa, which
// is spread over [1, 2). The merger's other three points make 4e-4, patches and positions 7e-4, the
// golden tower's two blocks 1.4e-3; all together 2.1e-3, as independent errors add: in squares. So
// 27 blocks make 1.4e-3 * sqrt(27 / 2) = 5.2e-3, with the rest 5.5e-3. An engine with other
// rounding points has independent errors of the same size, a ratio below 2 (see kBf16NoiseFactor):
// 1e-2. A wrong patch order or another picture is of size 1.
inline constexpr double kBf16VisionRelL2 = 1e-2;

// fp32, prompts whose pictures were resampled: where other codes are allowed, they carry through
// the tower and all layers. One neighbouring code in 0.2 % of the values makes 2e-5; five times
// that.
inline constexpr double kFp32ResizedRelL2 = 1e-4;

// Share of the pixels that may have a neighbouring code after a resize: Pillow's and torchvision's
// bicubic filters differ in 0.2 % of the values.
inline constexpr double kResizedCodeShare = 0.005;

// fp32, logits: absolute error of a margin or a log-probability. The same two implementations
// differ by 4.2e-5 (margins) and 1.5e-5 (log-probabilities); by kFp32RelL2 at the final norm and
// logit differences below 20 one gets 4e-4 in the worst direction. The weakest fault is 4e-3.
inline constexpr double kFp32Margin = 1e-3;
inline constexpr double kFp32Logprob = 1e-3;

// bf16, relative L2: a multiple of `bf16_noise`, the distance that the reference framework's own
// bf16 run has from its float32 run at the same tap. An engine with other rounding points has
// independent errors of the same size; over 8 positions their ratio stays below 2, and 3 leaves
// room for the extra rounding of the exchanged partial sums. Wrong formulas are 10 to 5,000 times
// the noise.
inline constexpr double kBf16NoiseFactor = 3.0;

// bf16, 1 - cosine of the worst position. For small errors 1 - cos = r^2 / 2 with r the relative
// error across the vector, so a factor f in r is a factor f^2 here.
inline constexpr double kBf16CosFactor = kBf16NoiseFactor * kBf16NoiseFactor;

// Taps that the reference computes without any error (the embedding) have noise 0. The floor is ten
// float32 half-ulps: representation only, no arithmetic.
inline constexpr double kBf16Floor = 1e-6;

// bf16, how far the difference of two logits may be off before another argmax is a defect, in
// standard deviations. The final norm's error is at most kBf16NoiseFactor * noise relative; spread
// over H directions it moves the difference of rows a and c of lm_head by |w_a - w_c| * |h| * r /
// sqrt(H) (one standard deviation). A normal error exceeds 4 of them at some of the 1,152 generated
// positions of an oracle with probability 7 %, and that only if every prompt used its whole
// allowance.
inline constexpr double kBf16LogitSigmas = 4.0;

// bf16, root mean square of a prompt's margin errors in those standard deviations. The noise is
// recorded at the prompt's end; text that runs on behind the end of a turn is more sensitive,
// single steps reach 3.9 in an honest run. So margins are judged together: the golden model's
// prompts measure 0.2 to 0.74 with this engine, a lost state 4 and more.
inline constexpr double kBf16MarginRms = 2.0;

// A run that looked at less than this proves nothing (MISTRUSTED): the 8 + 8 recorded positions of
// one ordinary prompt, and a third of its 96 generated tokens.
inline constexpr int64_t kMinPositions = 16;
inline constexpr int64_t kMinGreedySteps = 32;

// Share of the mutants that can be seen at all which the full gate must kill.
inline constexpr double kMinMutationScore = 0.95;

// Standard deviation allowed to the logit difference between rows a and c of lm_head.
// row_distance = |w_a - w_c|, hidden_norm = |h| (final norm), final_norm_noise = recorded relative
// noise there, hidden_size = H.
inline double bf16_logit_sigma(double row_distance, double hidden_norm, double final_norm_noise,
                               int64_t hidden_size) {
  const double r = std::max(kBf16NoiseFactor * final_norm_noise, kBf16Floor);
  return row_distance * hidden_norm * r / std::sqrt(static_cast<double>(hidden_size));
}

}  // namespace lockstep::tolerance

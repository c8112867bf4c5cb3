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
// recorded at the prompt's end, and generated text may be more sensitive: single steps reach 6.6 in
// honest runs, so margins are judged together. Over 60 runs of honest engines that round at other
// places (golden/recipe/bf16_variants.py, numpy, six engines on ten prompts) the largest is 0.86;
// their logarithms have mean -0.73 and standard deviation 0.30. exp(-0.73 + 4.75 * 0.30) = 2: one
// honest prompt in a million, were they normal. The weakest lost state measures 4.
inline constexpr double kBf16MarginRms = 2.0;

// Noise of one honest engine by its coarsest arithmetic: of the last hidden state, and of one
// branch on exact input, relative L2. fp32: kFp32RelL2 is three times what was measured.
inline constexpr double kFp32Noise = kFp32RelL2 / 3;
// bf16: the reference framework's own bf16 run against its float32 run, worst prompt (zh-2k at the
// final norm; one-token in the first layer, whose input is exact).
inline constexpr double kBf16FinalNormNoise = 0.0175;
inline constexpr double kBf16LocalNoise = 0.0099;
// float16 has three more bits than bfloat16: the same roundings, each an eighth.
inline constexpr double kF16NoiseShare = 1.0 / 8;
// 8 bits. One bf16 rounding is 2^-8 / sqrt(3) of a mantissa, 0.17 % of a value. Integers in blocks
// of 32 have 127 steps up to the largest of 32, 2.4 standard deviations: 2.4 / 127 / sqrt(12), 0.55
// % a factor. E4M3, the coarsest of the kind, rounds by 2^-4 / sqrt(3) of a mantissa: 2.4 % of one
// factor, 3.4 % of both, where kBf16LocalNoise is 1 %: three times bf16. llama.cpp's Q8_0 (blocks
// of 32, weights and activations) measures 0.7 of bf16 at most, E4M3 has more.
inline constexpr double kW8NoiseFactor = 3.0;
// 4 bits: 7.5 steps up to the largest of 32, 2.4 / 7.5 / sqrt(12), 9 % a factor, 13 % of both; two
// products in a row, as every branch has them, 18 %. Ten times w8 is 30 %.
inline constexpr double kW4NoiseFactor = 10 * kW8NoiseFactor;

// Largest local error over the typical one of its kind that a coarser arithmetic explains: it is
// the same everywhere. bf16's local noise spreads by 9.9e-3 / 3.5e-3 = 2.8 over the golden model's
// prompts; squared, for a coarser one may meet both ends, it is 8.
inline constexpr double kEvenSpread = 8.0;

// Nats by which the difference of two logits moves when the final norm errs by its own length, for
// engines whose checkpoint is not at hand: |w_a - w_b| |h| / sqrt(H). Logits of this family have a
// standard deviation of about 2.5 over the vocabulary, a difference sqrt(2) times that.
inline constexpr double kTypicalLogitScale = 3.5;

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

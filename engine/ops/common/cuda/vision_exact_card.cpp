#include "engine/base/error.h"
#include "engine/ops/common/cuda/card_array.h"
#include "engine/ops/common/cuda/vision_exact.h"
#include "engine/ops/common/exact_values.h"
#include "engine/ops/layernorm/cuda/layernorm_cuda.h"
#include "engine/ops/vision_attention/cuda/vision_attention_cuda.h"
#include "engine/ops/weighted_embedding/cuda/weighted_embedding_cuda.h"

namespace lockstep {
namespace {

std::vector<float> layernorm_card(int64_t width, uint64_t seed, Device& device, Stream& stream) {
  const LayerNormExactProblem p(seed, width);
  const CardArray x(bf16_of_floats(p.x), device, stream);
  const CardArray weight(p.weight, device, stream);
  const CardArray bias(p.bias, device, stream);
  layernorm_cuda({x.data(), weight.data(), bias.data(), x.data(), p.n_rows, static_cast<int>(width),
                  kSquaresEps},
                 stream);
  return floats_of_bf16(x.values());
}

std::vector<float> attention_card(KernelFamily family, uint64_t seed, Device& device,
                                  Stream& stream) {
  const VisionAttentionExactProblem p(seed);
  const CardArray q(bf16_of_floats(p.q), device, stream);
  const CardArray k(bf16_of_floats(p.k), device, stream);
  const CardArray v(bf16_of_floats(p.v), device, stream);
  const CardArray out(std::vector<uint16_t>(p.q.size()), device, stream);
  VisionAttentionCudaArgs args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.token_stride = int64_t{p.n_heads} * p.head_dim;
  args.out = out.data();
  args.n_tokens = p.n_tokens;
  args.n_heads = p.n_heads;
  args.head_dim = p.head_dim;
  args.scale = p.scale;
  args.family = family;
  vision_attention_cuda(args, stream);
  return with_plain_zeros(floats_of_bf16(out.values()));
}

std::vector<float> weighted_card(uint64_t seed, Device& device, Stream& stream) {
  const WeightedExactProblem p(seed);
  const size_t n_values = p.sources.size() * static_cast<size_t>(p.width);
  const CardArray table(p.table, device, stream);
  const CardArray sources(p.sources, device, stream);
  const CardArray out(std::vector<uint16_t>(n_values), device, stream);
  weighted_embedding_cuda(
      {table.data(), p.width, sources.data(), out.data(), static_cast<int64_t>(p.sources.size())},
      stream);
  return floats_of_bf16(out.values());
}

}  // namespace

std::vector<float> vision_exact_card(VisionExact op, size_t index, uint64_t seed, Device& device,
                                     Stream& stream) {
  LOCKSTEP_CHECK(index < vision_exact_cases(op).size());
  switch (op) {
    case VisionExact::layernorm:
      return layernorm_card(kLayerNormExactWidths[index], seed, device, stream);
    case VisionExact::vision_attention:
      return attention_card(index == 0 ? KernelFamily::sm70 : KernelFamily::sm80, seed, device,
                            stream);
    case VisionExact::weighted_embedding:
      break;
  }
  return weighted_card(seed, device, stream);
}

}  // namespace lockstep

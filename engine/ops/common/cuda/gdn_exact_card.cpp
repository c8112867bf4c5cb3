#include "engine/base/error.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/ops/common/cuda/card_array.h"
#include "engine/ops/common/cuda/gdn_exact.h"
#include "engine/ops/common/exact_values.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"
#include "engine/ops/gated_rmsnorm/cuda/gated_rmsnorm_cuda.h"
#include "engine/ops/gdn_gates/cuda/gdn_gates_cuda.h"

namespace lockstep {
namespace {

// The first round keeps nothing yet; the second replays what stayed of it and goes on.
constexpr GdnSpan kFirstRound{0, 0, 0, kGdnExactRound, 0};
constexpr GdnSpan kSecondRound{0, kGdnExactKept, kGdnExactKept, kGdnExactRound - kGdnExactKept,
                               kGdnExactRound};

template <typename T>
void append(std::vector<float>& to, const std::vector<T>& from, size_t n) {
  to.insert(to.end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(n));
}

std::vector<float> conv_card(size_t index, uint64_t seed, Device& device, Stream& stream) {
  constexpr int kChannels = kGdnExactConvChannels;
  const bool prefill = index == 0;
  const ConvExactProblem p(seed, prefill ? kGdnExactPrefill : kGdnExactRound);
  std::vector<uint16_t> rows = bf16_of_floats(p.window);
  rows.resize(static_cast<size_t>(kConvWindowRows) * kChannels);
  const CardArray window(rows, device, stream);
  const CardArray m(bf16_of_floats(p.m), device, stream);
  const CardArray weight(p.weight, device, stream);
  const size_t n_out = static_cast<size_t>(std::max(kGdnExactPrefill, kGdnRoundRows)) * kChannels;
  const CardArray out(std::vector<uint16_t>(n_out), device, stream);
  CausalConvCudaArgs args;
  args.m = m.data();
  args.m_stride = args.out_stride = kChannels;
  args.weight = weight.data();
  args.window = window.data();
  args.slot_stride = static_cast<int64_t>(rows.size());
  args.out = out.data();
  args.n_tokens = kGdnExactPrefill;
  args.n_channels = kChannels;
  args.n_spans = 1;
  if (prefill) {
    causal_conv_prefill_cuda(args, stream);
  } else {
    for (const GdnSpan& round : {kFirstRound, kSecondRound}) {
      const CardArray span(std::vector<GdnSpan>{round}, device, stream);
      args.spans = span.data();
      causal_conv_decode_cuda(args, stream);
      stream.synchronize();
    }
  }
  std::vector<float> answer;
  append(answer, floats_of_bf16(out.values()), p.m.size());
  append(answer, floats_of_bf16(window.values()), p.window.size());
  return answer;
}

std::vector<float> gates_card(size_t index, uint64_t seed, Device& device, Stream& stream) {
  constexpr int kHeads = kGdnExactGateHeads;
  const bool prefill = index == 0;
  const GatesExactProblem p(seed, prefill ? kGdnExactPrefill : kGdnExactRound);
  const CardArray a(bf16_of_floats(p.a), device, stream);
  const CardArray b(bf16_of_floats(p.b), device, stream);
  const CardArray a_log(p.a_log, device, stream);
  const CardArray dt_bias(p.dt_bias, device, stream);
  const std::vector<float> none(static_cast<size_t>(std::max(kGdnExactPrefill, kGdnRoundRows)) *
                                kHeads);
  const CardArray log_decay(none, device, stream);
  const CardArray beta(none, device, stream);
  const CardArray record(std::vector<float>(2 * kGdnRoundColumns * kHeads), device, stream);
  GdnGatesCudaArgs args;
  args.a = a.data();
  args.b = b.data();
  args.stride = kHeads;
  args.a_log = a_log.data();
  args.dt_bias = dt_bias.data();
  args.log_decay = log_decay.data();
  args.beta = beta.data();
  args.n_tokens = kGdnExactPrefill;
  args.record = record.data();
  args.n_spans = 1;
  args.n_heads = kHeads;
  if (prefill) {
    gdn_gates_prefill_cuda(args, stream);
  } else {
    for (const GdnSpan& round : {kFirstRound, kSecondRound}) {
      const CardArray span(std::vector<GdnSpan>{round}, device, stream);
      args.spans = span.data();
      gdn_gates_decode_cuda(args, stream);
      stream.synchronize();
    }
  }
  std::vector<float> answer;
  append(answer, log_decay.values(), p.a.size());
  append(answer, beta.values(), p.a.size());
  return answer;
}

std::vector<float> gated_norm_card(uint64_t seed, Device& device, Stream& stream) {
  const GatedNormExactProblem p(seed);
  const CardArray x(bf16_of_floats(p.x), device, stream);
  const CardArray z(bf16_of_floats(p.z), device, stream);
  const CardArray weight(p.weight, device, stream);
  GatedRmsNormCudaArgs args;
  args.x = x.data();
  args.z = z.data();
  args.weight = weight.data();
  args.out = x.data();
  args.x_stride = args.z_stride = args.out_stride = int64_t{p.n_heads} * kGatedNormWidth;
  args.n_tokens = p.n_tokens;
  args.n_heads = p.n_heads;
  args.eps = kSquaresEps;
  gated_rmsnorm_cuda(args, stream);
  return floats_of_bf16(x.values());
}

// Rows as the projections leave them: q, k and v of a token side by side.
std::vector<uint16_t> delta_rows(const DeltaExactProblem& p) {
  constexpr int64_t kValues = int64_t{kGdnExactDeltaHeads} * kGdnHeadDim;
  std::vector<float> rows;
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    for (const std::vector<float>* part : {&p.q, &p.k}) {
      const auto from = part->begin() + t * kGdnHeadDim;
      rows.insert(rows.end(), from, from + kGdnHeadDim);
    }
    rows.insert(rows.end(), p.v.begin() + t * kValues, p.v.begin() + (t + 1) * kValues);
  }
  return bf16_of_floats(rows);
}

std::vector<float> delta_card(size_t index, uint64_t seed, Device& device, Stream& stream) {
  constexpr int64_t kValues = int64_t{kGdnExactDeltaHeads} * kGdnHeadDim;
  const bool prefill = index < 2;
  const int64_t n_tokens = prefill ? kGdnExactPrefill : 2 * kGdnExactRound;
  const DeltaExactProblem p(seed, n_tokens);
  const GatedDeltaCudaPlan plan = plan_gated_delta_cuda(
      1, kGdnExactDeltaHeads, kGdnHeadDim, kGdnHeadDim, prefill ? n_tokens : 0,
      index == 1 ? KernelFamily::sm80 : KernelFamily::sm70, device.facts());
  const CardArray rows(delta_rows(p), device, stream);
  const CardArray log_decay(p.log_decay, device, stream);
  const CardArray beta(p.beta, device, stream);
  const CardArray state(p.state, device, stream);
  const CardArray out(std::vector<uint16_t>(static_cast<size_t>(n_tokens * kValues)), device,
                      stream);
  GatedDeltaCudaArgs args{plan};
  args.q = rows.data();
  args.k = args.q + kGdnHeadDim;
  args.v = args.k + kGdnHeadDim;
  args.row_stride = 2 * kGdnHeadDim + kValues;
  args.log_decay = log_decay.data();
  args.beta = beta.data();
  args.state = state.data();
  args.out = out.data();
  args.out_stride = kValues;
  std::vector<float> answer;
  if (prefill) {
    const DeviceMemory workspace(device, plan.workspace_bytes);
    gated_delta_prefill_cuda(args, kGdnExactFirst, n_tokens, workspace.data(), stream);
    stream.synchronize();
  } else {
    const CardArray span(
        std::vector<GdnSpan>{{0, 0, kGdnExactRound, kGdnExactRound, 2 * kGdnExactRound}}, device,
        stream);
    gated_delta_decode_cuda(args, span.data(), 1, static_cast<int64_t>(p.state.size()), stream);
    append(answer, floats_of_bf16(out.values()), kGdnExactRound * kValues);
  }
  append(answer, state.values(), p.state.size());
  return with_plain_zeros(answer);
}

}  // namespace

std::vector<float> gdn_exact_card(GdnExact op, size_t index, uint64_t seed, Device& device,
                                  Stream& stream) {
  LOCKSTEP_CHECK(index < gdn_exact_cases(op).size());
  switch (op) {
    case GdnExact::causal_conv:
      return conv_card(index, seed, device, stream);
    case GdnExact::gdn_gates:
      return gates_card(index, seed, device, stream);
    case GdnExact::gated_rmsnorm:
      return gated_norm_card(seed, device, stream);
    case GdnExact::gated_delta:
      break;
  }
  return delta_card(index, seed, device, stream);
}

}  // namespace lockstep

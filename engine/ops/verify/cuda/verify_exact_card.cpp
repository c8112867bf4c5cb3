#include "engine/base/error.h"
#include "engine/ops/common/cuda/card_array.h"
#include "engine/ops/verify/cuda/verify_cuda.h"
#include "engine/ops/verify/cuda/verify_exact.h"

namespace lockstep {

std::vector<float> verify_exact_card(size_t index, uint64_t seed, Device& device, Stream& stream) {
  LOCKSTEP_CHECK(index < verify_exact_cases().size());
  const VerifyExactProblem p(seed);
  std::vector<SampleResult> chosen(p.tokens.size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i].token = p.tokens[i];
  const CardArray fed(p.fed, device, stream);
  const CardArray results(chosen, device, stream);
  const CardArray forced(p.forced, device, stream);
  const CardArray positions(p.positions, device, stream);
  const CardArray firsts(p.first_positions, device, stream);
  const CardArray ids(std::vector<int32_t>(p.fed.size()), device, stream);
  const CardArray n_taken(std::vector<int32_t>(kVerifyExactSpans), device, stream);
  const CardArray last_positions(std::vector<RopePosition>(kVerifyExactSpans), device, stream);
  const CardArray last_firsts(std::vector<int32_t>(kVerifyExactSpans), device, stream);
  const CardArray rows(bf16_of_floats(p.rows), device, stream);
  const CardArray out(std::vector<uint16_t>(kVerifyExactSpans * kVerifyExactWidth), device, stream);
  VerifyCudaArgs args;
  TakeRowsCudaArgs take;
  for (int s = 0; s < kVerifyExactSpans; ++s) {
    args.spans[s] = take.spans[s] = {s * kVerifyExactColumns, kVerifyExactColumns};
  }
  args.n_spans = take.n_spans = kVerifyExactSpans;
  args.fed = fed.data();
  args.positions = positions.data();
  args.first_positions = firsts.data();
  args.results = results.data();
  args.forced = forced.data();
  args.ids = ids.data();
  args.n_taken = n_taken.data();
  args.last = {nullptr, last_positions.data(), last_firsts.data()};
  verify_cuda(args, stream);
  take.n_taken = n_taken.data();
  take.rows = rows.data();
  take.out = out.data();
  take.width = kVerifyExactWidth;
  take_rows_cuda(take, stream);
  std::vector<float> answer;
  for (const int32_t id : ids.values()) answer.push_back(static_cast<float>(id));
  const std::vector<int32_t> taken = n_taken.values();
  const std::vector<int32_t> places = last_firsts.values();
  const std::vector<RopePosition> axes = last_positions.values();
  for (size_t s = 0; s < kVerifyExactSpans; ++s) {
    answer.push_back(static_cast<float>(taken[s]));
    answer.push_back(static_cast<float>(places[s]));
    for (const int32_t axis : axes[s]) answer.push_back(static_cast<float>(axis));
  }
  const std::vector<float> copied = floats_of_bf16(out.values());
  answer.insert(answer.end(), copied.begin(), copied.end());
  return answer;
}

}  // namespace lockstep

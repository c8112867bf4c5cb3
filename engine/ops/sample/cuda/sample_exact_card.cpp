#include "engine/base/error.h"
#include "engine/ops/common/cuda/card_array.h"
#include "engine/ops/sample/cuda/sample_cuda.h"
#include "engine/ops/sample/cuda/sample_exact.h"

namespace lockstep {

std::vector<float> sample_exact_card(size_t index, uint64_t seed, Device& device, Stream& stream) {
  LOCKSTEP_CHECK(index < sample_exact_cases().size());
  const SampleExactProblem p(seed, index == 0);
  const auto n_vocab = static_cast<int64_t>(p.logits.size());
  const auto n_columns = static_cast<int>(p.requests.size());
  SampleBatch batch;
  std::vector<float> all;
  for (const SampleExactRequest& r : p.requests) {
    batch.add(r.params, r.history, p.n_live, r.position);
    all.insert(all.end(), p.logits.begin(), p.logits.end());
  }
  const CardArray logits(all, device, stream);
  const CardArray columns(batch.columns(), device, stream);
  const CardArray adjustments(batch.adjustments(), device, stream);
  const DeviceMemory workspace(
      device,
      sample_workspace_bytes(n_vocab, n_columns, static_cast<int64_t>(batch.adjustments().size())));
  const CardArray out(std::vector<SampleResult>(p.requests.size()), device, stream);
  SampleCudaArgs args{.batch = batch};
  args.logits = logits.data();
  args.stride = n_vocab;
  args.n_vocab = n_vocab;
  args.n_live = p.n_live;
  args.columns = columns.data();
  args.adjustments = adjustments.data();
  args.n_top = kSampleExactTop;
  args.workspace = workspace.data();
  args.out = out.data();
  sample_cuda(args, stream);
  std::vector<float> answer;
  for (const SampleResult& result : out.values()) {
    answer.push_back(static_cast<float>(result.token));
    answer.push_back(result.chosen_value);
    for (int i = 0; i < kSampleExactTop; ++i) {
      answer.push_back(static_cast<float>(result.top_ids[i]));
      answer.push_back(result.top_values[i]);
    }
  }
  return answer;
}

}  // namespace lockstep

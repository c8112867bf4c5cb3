#include "engine/ops/argmax/cuda/argmax_cuda.h"
#include "engine/ops/bias_add/cuda/bias_add_cuda.h"
#include "engine/ops/common/cuda/card_array.h"
#include "engine/ops/common/cuda/rows_exact.h"
#include "engine/ops/embedding/cuda/embedding_cuda.h"
#include "engine/ops/hadamard/cuda/hadamard_cuda.h"
#include "engine/ops/kv_write/cuda/kv_write_cuda.h"
#include "engine/ops/prepare_heads/cuda/prepare_heads_cuda.h"
#include "engine/ops/residual_add/cuda/residual_add_cuda.h"
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"
#include "engine/ops/rope/cuda/rope_cuda.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep {
namespace {

constexpr int kHeadDim = 256;

template <typename T>
std::vector<float> floats_of(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// Two INT8 pages in reverse order, empty, and the first position of the problem.
class CardCache {
 public:
  CardCache(Device& device, Stream& stream)
      : memory_(std::vector<std::byte>(
                    static_cast<size_t>(2 * kv_page_bytes(KvType::int8, kRowsKvHeads, kHeadDim))),
                device, stream),
        pages_({1, 0}, device, stream),
        first_({static_cast<int32_t>(kRowsFirst)}, device, stream) {}
  KvView view() const {
    return {KvType::int8, kRowsKvHeads, kHeadDim, memory_.data(), pages_.data()};
  }
  const int32_t* first_position() const { return first_.data(); }
  std::vector<float> values() const {
    std::vector<float> out;
    for (const std::byte b : memory_.values()) out.push_back(static_cast<float>(b));
    return out;
  }

 private:
  CardArray<std::byte> memory_;
  CardArray<uint32_t> pages_;
  CardArray<int32_t> first_;
};

std::vector<float> argmax_card(const RowsProblem& p, Device& device, Stream& stream) {
  const CardArray x(p.x, device, stream);
  const CardArray best(std::vector<int32_t>(static_cast<size_t>(p.n_rows)), device, stream);
  const auto n_columns = static_cast<int>(p.n_rows);
  const DeviceMemory workspace(device, argmax_workspace_bytes(p.width, n_columns));
  argmax_cuda({x.data(), p.width, p.width, n_columns, workspace.data(), best.data(), nullptr},
              stream);
  return floats_of(best.values());
}

std::vector<float> bias_card(RowsOp op, const RowsProblem& p, Device& device, Stream& stream) {
  const CardArray x(p.x, device, stream);
  const CardArray bias(p.weight, device, stream);
  const CardArray out(std::vector<uint16_t>(p.x.size()), device, stream);
  bias_add_cuda({x.data(), bias.data(), out.data(), p.n_rows, p.width,
                 op == RowsOp::gelu ? AfterBias::gelu_exact : AfterBias::store},
                stream);
  return floats_of_bf16(out.values());
}

std::vector<float> embedding_card(const RowsProblem& p, Device& device, Stream& stream) {
  const CardArray table(bf16_of_floats(p.x), device, stream);
  const CardArray ids(p.ids, device, stream);
  const CardArray out(std::vector<uint16_t>(p.ids.size() * static_cast<size_t>(p.width)), device,
                      stream);
  embedding_cuda({Codec::bf16, reinterpret_cast<const std::byte*>(table.data()), 2 * p.width,
                  p.n_rows, p.width, ids.data(), static_cast<int64_t>(p.ids.size()), out.data()},
                 stream);
  return floats_of_bf16(out.values());
}

std::vector<float> kv_write_card(const RowsProblem& p, Device& device, Stream& stream) {
  const CardCache cache(device, stream);
  const CardArray k(bf16_of_floats(p.x), device, stream);
  const CardArray v(bf16_of_floats(p.y), device, stream);
  kv_write_cuda(
      {cache.view(), k.data(), p.width, v.data(), p.width, cache.first_position(), p.n_rows},
      stream);
  return cache.values();
}

// Angles of the rows' positions.
CardArray<float> angles_card(const RowsProblem& p, Device& device, Stream& stream) {
  constexpr int kPairs = kRowsRotary / 2;
  const CardArray positions(p.positions, device, stream);
  const CardArray inv_freq(rope_inverse_frequencies(1e7, kRowsRotary), device, stream);
  CardArray angles(std::vector<float>(static_cast<size_t>(p.n_rows * kPairs * 2)), device, stream);
  rope_angles_cuda(positions.data(), inv_freq.data(), p.n_rows, kPairs, angles.data(), stream);
  stream.synchronize();
  return angles;
}

std::vector<float> rope_card(const RowsProblem& p, Device& device, Stream& stream) {
  const CardArray x(bf16_of_floats(p.x), device, stream);
  const CardArray<float> angles = angles_card(p, device, stream);
  rope_cuda({x.data(), p.width, angles.data(), p.n_rows, kRowsKvHeads, kHeadDim, kRowsRotary / 2},
            stream);
  return floats_of_bf16(x.values());
}

std::vector<float> heads_card(const RowsProblem& p, Device& device, Stream& stream) {
  const CardCache cache(device, stream);
  const CardArray x(bf16_of_floats(p.x), device, stream);
  const CardArray k(bf16_of_floats(rows_keys(p)), device, stream);
  const CardArray v(bf16_of_floats(rows_values(p)), device, stream);
  const CardArray norms(p.weight, device, stream);
  const CardArray<float> angles = angles_card(p, device, stream);
  const CardArray out(std::vector<uint16_t>(p.x.size() / 2), device, stream);
  PrepareHeadsCudaArgs args;
  args.q = x.data();
  args.q_stride = p.width;
  args.q_head_stride = int64_t{2} * kHeadDim;
  args.q_norm = norms.data();
  args.q_out = out.data();
  args.n_heads = kRowsHeads;
  args.k = k.data();
  args.v = v.data();
  args.k_stride = args.v_stride = int64_t{kRowsKvHeads} * kHeadDim;
  args.k_norm = norms.data() + kHeadDim;
  args.cache = cache.view();
  args.first_position = cache.first_position();
  args.angles = angles.data();
  args.n_pairs = kRowsRotary / 2;
  args.rotate = true;
  args.eps = kRowsEps;
  args.n_tokens = p.n_rows;
  prepare_heads_cuda(args, stream);
  std::vector<float> answer = floats_of_bf16(out.values());
  const std::vector<float> stored = cache.values();
  answer.insert(answer.end(), stored.begin(), stored.end());
  return answer;
}

std::vector<float> rmsnorm_card(const RowsProblem& p, Device& device, Stream& stream) {
  const CardArray x(bf16_of_floats(p.x), device, stream);
  const CardArray weight(p.weight, device, stream);
  const CardArray out(std::vector<uint16_t>(p.x.size()), device, stream);
  RmsNormCudaArgs args;
  args.x = x.data();
  args.x_stride = args.out_stride = p.width;
  args.weight = weight.data();
  args.out = out.data();
  args.n_rows = p.n_rows;
  args.width = static_cast<int>(p.width);
  args.eps = kRowsEps;
  args.weight_offset = 1.0f;
  rmsnorm_cuda(args, stream);
  return floats_of_bf16(out.values());
}

}  // namespace

std::vector<float> rows_exact_card(RowsOp op, size_t /*index*/, uint64_t seed, Device& device,
                                   Stream& stream) {
  const RowsProblem p = rows_problem(op, seed);
  switch (op) {
    case RowsOp::argmax:
      return argmax_card(p, device, stream);
    case RowsOp::bias_add:
    case RowsOp::gelu:
      return bias_card(op, p, device, stream);
    case RowsOp::embedding:
      return embedding_card(p, device, stream);
    case RowsOp::kv_write:
      return kv_write_card(p, device, stream);
    case RowsOp::prepare_heads:
      return heads_card(p, device, stream);
    case RowsOp::rope:
      return rope_card(p, device, stream);
    case RowsOp::rmsnorm:
      return rmsnorm_card(p, device, stream);
    default:
      break;
  }
  const CardArray x(bf16_of_floats(p.x), device, stream);
  const CardArray y(bf16_of_floats(p.y), device, stream);
  if (op == RowsOp::residual_add) {
    residual_add_cuda(x.data(), y.data(), static_cast<int64_t>(p.x.size()), stream);
  } else if (op == RowsOp::hadamard) {
    hadamard_cuda(x.data(), p.width, p.n_rows, static_cast<int>(p.width), stream);
  } else {
    swiglu_cuda({x.data(), p.width, y.data(), p.width, x.data(), p.width, p.n_rows, p.width},
                stream);
  }
  return floats_of_bf16(x.values());
}

}  // namespace lockstep

#include "engine/base/float_formats.h"
#include "engine/ops/argmax/cuda/argmax_cuda.h"
#include "engine/ops/bias_add/cuda/bias_add_cuda.h"
#include "engine/ops/common/cuda/rows_exact.h"
#include "engine/ops/embedding/cuda/embedding_cuda.h"
#include "engine/ops/hadamard/cuda/hadamard_cuda.h"
#include "engine/ops/kv_write/cuda/kv_write_cuda.h"
#include "engine/ops/residual_add/cuda/residual_add_cuda.h"
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"
#include "engine/ops/rope/cuda/rope_cuda.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep {
namespace {

constexpr int kHeadDim = 256;

// An array on the card, copied there when it is made.
template <typename T>
class OnCard {
 public:
  OnCard(const std::vector<T>& values, Device& device, Stream& stream)
      : memory_(device, static_cast<int64_t>(values.size() * sizeof(T))),
        stream_(stream),
        n_(values.size()) {
    stream.copy_in(memory_.data(), values.data(), memory_.size());
    stream.synchronize();
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> out(n_);
    stream_.copy_out(out.data(), memory_.data(), memory_.size());
    stream_.synchronize();
    return out;
  }

 private:
  DeviceMemory memory_;
  Stream& stream_;
  size_t n_;
};

std::vector<uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(float_to_bf16(value));
  return bits;
}

template <typename T>
std::vector<float> floats_of(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

std::vector<float> wide(const std::vector<uint16_t>& bits) {
  std::vector<float> values;
  for (const uint16_t b : bits) values.push_back(bf16_to_float(b));
  return values;
}

std::vector<float> argmax_card(const RowsProblem& p, Device& device, Stream& stream) {
  const OnCard x(p.x, device, stream);
  const OnCard best(std::vector<int32_t>(static_cast<size_t>(p.n_rows)), device, stream);
  const auto n_columns = static_cast<int>(p.n_rows);
  const DeviceMemory workspace(device, argmax_workspace_bytes(p.width, n_columns));
  argmax_cuda({x.data(), p.width, p.width, n_columns, workspace.data(), best.data(), nullptr},
              stream);
  return floats_of(best.values());
}

std::vector<float> bias_card(RowsOp op, const RowsProblem& p, Device& device, Stream& stream) {
  const OnCard x(p.x, device, stream);
  const OnCard bias(p.weight, device, stream);
  const OnCard out(std::vector<uint16_t>(p.x.size()), device, stream);
  bias_add_cuda({x.data(), bias.data(), out.data(), p.n_rows, p.width,
                 op == RowsOp::gelu ? AfterBias::gelu_exact : AfterBias::store},
                stream);
  return wide(out.values());
}

std::vector<float> embedding_card(const RowsProblem& p, Device& device, Stream& stream) {
  const OnCard table(bf16_of(p.x), device, stream);
  const OnCard ids(p.ids, device, stream);
  const OnCard out(std::vector<uint16_t>(p.ids.size() * static_cast<size_t>(p.width)), device,
                   stream);
  embedding_cuda({Codec::bf16, reinterpret_cast<const std::byte*>(table.data()), 2 * p.width,
                  p.n_rows, p.width, ids.data(), static_cast<int64_t>(p.ids.size()), out.data()},
                 stream);
  return wide(out.values());
}

std::vector<float> kv_write_card(const RowsProblem& p, Device& device, Stream& stream) {
  const auto bytes = static_cast<size_t>(2 * kv_page_bytes(KvType::int8, kRowsKvHeads, kHeadDim));
  const OnCard memory(std::vector<std::byte>(bytes), device, stream);
  const OnCard pages(std::vector<uint32_t>{1, 0}, device, stream);
  const OnCard first(std::vector<int32_t>{static_cast<int32_t>(kRowsFirst)}, device, stream);
  const OnCard k(bf16_of(p.x), device, stream);
  const OnCard v(bf16_of(p.y), device, stream);
  kv_write_cuda({{KvType::int8, kRowsKvHeads, kHeadDim, memory.data(), pages.data()},
                 k.data(),
                 p.width,
                 v.data(),
                 p.width,
                 first.data(),
                 p.n_rows},
                stream);
  std::vector<float> out;
  for (const std::byte b : memory.values()) out.push_back(static_cast<float>(b));
  return out;
}

std::vector<float> rope_card(const RowsProblem& p, Device& device, Stream& stream) {
  constexpr int kPairs = kRowsRotary / 2;
  const OnCard x(bf16_of(p.x), device, stream);
  const OnCard positions(p.positions, device, stream);
  const OnCard inv_freq(rope_inverse_frequencies(1e7, kRowsRotary), device, stream);
  const OnCard angles(std::vector<float>(static_cast<size_t>(p.n_rows * kPairs * 2)), device,
                      stream);
  rope_angles_cuda(positions.data(), inv_freq.data(), p.n_rows, kPairs, angles.data(), stream);
  rope_cuda({x.data(), p.width, angles.data(), p.n_rows, kRowsKvHeads, kHeadDim, kPairs}, stream);
  return wide(x.values());
}

std::vector<float> rmsnorm_card(const RowsProblem& p, Device& device, Stream& stream) {
  const OnCard x(bf16_of(p.x), device, stream);
  const OnCard weight(p.weight, device, stream);
  const OnCard out(std::vector<uint16_t>(p.x.size()), device, stream);
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
  return wide(out.values());
}

}  // namespace

std::vector<float> rows_exact_card(RowsOp op, uint64_t seed, Device& device, Stream& stream) {
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
    case RowsOp::rope:
      return rope_card(p, device, stream);
    case RowsOp::rmsnorm:
      return rmsnorm_card(p, device, stream);
    default:
      break;
  }
  const OnCard x(bf16_of(p.x), device, stream);
  const OnCard y(bf16_of(p.y), device, stream);
  if (op == RowsOp::residual_add) {
    residual_add_cuda(x.data(), y.data(), static_cast<int64_t>(p.x.size()), stream);
  } else if (op == RowsOp::hadamard) {
    hadamard_cuda(x.data(), p.width, p.n_rows, static_cast<int>(p.width), stream);
  } else {
    swiglu_cuda({x.data(), p.width, y.data(), p.width, x.data(), p.width, p.n_rows, p.width},
                stream);
  }
  return wide(x.values());
}

}  // namespace lockstep

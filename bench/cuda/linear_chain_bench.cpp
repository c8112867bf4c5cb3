// Products of one layer back to back.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/cuda/device_timer.h"
#include "bench/cuda/linear_bench.h"
#include "bench/cuda/linear_material.h"
#include "bench/material.h"
#include "bench/work.h"
#include "engine/ops/linear/cuda/linear_cuda.h"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep::bench_cuda {
namespace {

// A matrix of a chain: every layer has its own bytes.
struct ChainMatrix {
  LinearCudaPlan plan;
  int64_t offset;  // from the start of a layer
};

// The products of one layer with Gated DeltaNet as a decode round launches them, on one of `ranks`
// cards: what a round pays for a matrix, its share of the gaps between launches included.
class Chain {
 public:
  Chain(OpsRun& run, Codec codec, KernelFamily family, int ranks) : run_(run), ranks_(ranks) {
    const int64_t shapes[6][2] = {{10240 / ranks, 5120}, {6144 / ranks, 5120},  {5120, 3072},
                                  {17408 / ranks, 5120}, {17408 / ranks, 5120}, {5120, 8704}};
    for (int i = 0; i < 6; ++i) {
      const int copies = i % 3 == 2 && ranks == 1 ? 2 : 1;  // both halves of K
      for (int copy = 0; copy < copies; ++copy) {
        matrices_[i].push_back(
            {plan_linear_cuda(codec, shapes[i][0], shapes[i][1], kBenchInt4Group, family,
                              run.device.facts().block_shared_bytes, "chain"),
             layer_bytes_});
        layer_bytes_ += (matrices_[i].back().plan.weight_bytes + 255) / 256 * 256;
        bytes_ +=
            static_cast<double>(matrix_bytes(codec, shapes[i][0], shapes[i][1], kBenchInt4Group));
      }
    }
    n_layers_ = copies_for(run, layer_bytes_);
    weights_ = DeviceMemory(run.device, n_layers_ * layer_bytes_);
    for (int layer = 0; layer < n_layers_; ++layer) {
      for (const auto& pieces : matrices_) {
        for (const ChainMatrix& matrix : pieces) {
          fill_weight(run, matrix.plan, weights_.data() + layer * layer_bytes_ + matrix.offset,
                      static_cast<uint32_t>(layer));
        }
      }
    }
    x_ = random_activations(run, kSkinnyTokens * 8704);
    prepared_ =
        DeviceMemory(run.device, linear_prepared_bytes(matrices_[5][0].plan, kSkinnyTokens));
    out_ = DeviceMemory(run.device, 4 * kSkinnyTokens * 17408 * 2);
  }

  void time(const std::string& op, int n_tokens, bool fused) {
    const LaunchTimes seconds =
        time_launches(native(run_), std::max(n_layers_, 8), run_.settings.n_replays,
                      [&](int i) { launch_layer(i % n_layers_, n_tokens, fused); });
    run_.rows.push_back({op,
                         fmt::format("GDN layer of {} card{}, {}", ranks_, ranks_ == 1 ? "" : "s",
                                     fused ? "fused" : "matrix by matrix"),
                         n_tokens, bytes_, seconds});
  }

 private:
  LinearCudaArgs args(const ChainMatrix& matrix, int layer, int n_tokens, int out) {
    return {matrix.plan,
            weights_.data() + layer * layer_bytes_ + matrix.offset,
            reinterpret_cast<const uint16_t*>(x_.data()),
            matrix.plan.n_cols,
            prepared_.data(),
            out_.data() + out * (kSkinnyTokens * 17408 * 2),
            matrix.plan.n_rows,
            n_tokens,
            CudaOutput::bf16,
            run_.device.facts().n_multiprocessors};
  }
  void launch_layer(int layer, int n_tokens, bool fused) {
    for (int first = 0; first < 6; first += 3) {
      const LinearCudaArgs pair[] = {args(matrices_[first][0], layer, n_tokens, 0),
                                     args(matrices_[first + 1][0], layer, n_tokens, 1)};
      if (!fused) {
        for (const LinearCudaArgs& one : pair) linear_cuda(one, run_.stream);
      } else if (first == 0) {
        linear_group_cuda(pair, run_.stream);
      } else {
        linear_swiglu_cuda(pair[0], pair[1], run_.stream);
      }
      if (!fused && first == 3) {
        auto* gate = static_cast<uint16_t*>(pair[0].out);
        const int64_t width = pair[0].plan.n_rows;
        swiglu_cuda({gate, width, static_cast<const uint16_t*>(pair[1].out), width, gate, width,
                     n_tokens, width},
                    run_.stream);
      }
      const std::vector<ChainMatrix>& halves = matrices_[first + 2];
      if (fused && halves.size() == 2) {
        linear_halves_cuda(args(halves[0], layer, n_tokens, 2), args(halves[1], layer, n_tokens, 3),
                           run_.stream);
        continue;
      }
      for (const ChainMatrix& half : halves) {
        linear_cuda(args(half, layer, n_tokens, 2), run_.stream);
      }
    }
  }

  OpsRun& run_;
  int ranks_;
  std::vector<ChainMatrix> matrices_[6];  // qkv, z, out, gate, up, down
  int64_t layer_bytes_ = 0;
  double bytes_ = 0.0;
  int n_layers_ = 0;
  DeviceMemory weights_;
  DeviceMemory x_;
  DeviceMemory prepared_;
  DeviceMemory out_;
};

}  // namespace

void run_linear_chain(OpsRun& run) {
  for (const std::string& name : run.settings.codecs) {
    for (const int ranks : {1, 2}) {
      Chain chain(run, codec_of(name), bench_family(run), ranks);
      for (const int n_tokens : run.settings.tokens) {
        if (n_tokens > kSkinnyTokens) continue;
        for (const bool fused : {false, true}) {
          chain.time(fmt::format("linear chain {}", name), n_tokens, fused);
        }
      }
    }
  }
}

}  // namespace lockstep::bench_cuda

// Integer-exact cases of an op: small integers drawn from a seed, so that every legal order of
// every sum gives the same bits; or any values, where the kernels promise the CPU op's bits. A
// card's answers go into a receipt (docs/formats/receipt.md), and any machine computes them again.
// Each op with kernels has its cases beside them, in OP_exact.h, and is listed in
// engine/apps/ops_exact.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/device/device.h"

namespace lockstep {

struct ExactCase {
  std::string name;
  int least_arch;  // 70 for sm_70: cards below have no such route
  // The answer from the formula, in float64 or integers; exact in float32.
  std::function<std::vector<float>(uint64_t seed)> host;
};

struct ExactOp {
  std::string op;  // folder of engine/ops
  std::vector<ExactCase> cases;
  // The kernels' answer to cases[index]; empty in a build without CUDA.
  std::function<std::vector<float>(size_t index, uint64_t seed, Device& device, Stream& stream)>
      card;
};

}  // namespace lockstep

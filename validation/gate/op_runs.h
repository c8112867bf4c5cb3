// What the gate's checks of CUDA ops share: the card, the list of programs, the sources that they
// were built from. Nothing here starts an engine.
#pragma once

#include <optional>
#include <string>

#include "validation/gate/gate.h"
#include "validation/ops/op_exact.h"
#include "validation/ops/op_list.h"

namespace lockstep {

class OpRuns {
 public:
  explicit OpRuns(const GateOptions& options) : options_(options) {}

  // Why no op can be judged on this machine; empty when all can.
  const std::string& missing();
  const CardFacts& card() const { return card_; }  // after missing()
  const OpList& list();
  // Op -> its sources: of the tree, or as they were when the programs were built.
  const SourceUnits& units();
  // "op x: file y changed" when the programs were built from other sources than the tree's.
  std::string stale();

  std::filesystem::path exact_program() const;
  std::filesystem::path bench_program() const;
  // compute-sanitizer or what stands in for it; empty when the machine has none.
  std::string sanitizer() const;
  int n_workers() const;

 private:
  const GateOptions& options_;
  std::optional<std::string> missing_;
  CardFacts card_;
  std::optional<OpList> list_;
  std::optional<SourceUnits> units_;
};

}  // namespace lockstep

// The probe's work as steps: each measures for one check on one target and can be run in a process
// of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

struct StepSpec {
  std::string check;
  int gpu = -1;    // or the sender of a pair
  int peer = -1;   // receiver of a pair
  int n_gpus = 0;  // of the run, for steps on all
  Mode mode = Mode::quick;
  std::string nonce;
  double deadline_s = 60;

  std::string target() const;
};

// What a step saw so far: an Observations with only its own fields filled. Called again and again
// while a step climbs, so that a hang leaves what came before it.
using Publish = std::function<void(const Observations& partial)>;

Observations perform_step(Backend& backend, const StepSpec& spec, const Publish& publish);

// Copies what `part` has into `whole`.
void merge(const Observations& part, const StepSpec& spec, Observations& whole);

struct StepOutcome {
  std::string outcome;  // as in Step
  std::string detail;
  double seconds = 0;
  Observations seen;
};

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  virtual StepOutcome execute(const StepSpec& spec) = 0;
};

// Runs steps here; for machines that cannot hang.
std::unique_ptr<StepExecutor> in_process_executor(Backend& backend);

struct CollectOptions {
  Mode mode = Mode::quick;
  std::string nonce;
  std::string backend_name;
  std::function<bool()> interrupted = [] { return false; };
  std::function<void(const StepSpec&, size_t done, size_t total)> progress = [](const StepSpec&,
                                                                                size_t, size_t) {};
  std::function<void(const Observations&)> save = [](const Observations&) {};  // after every step
};

Observations collect(StepExecutor& executor, const CollectOptions& options);

}  // namespace lockstep::probe

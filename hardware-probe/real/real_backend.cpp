#include "hardware-probe/real/real_backend.h"
#include "engine/base/error.h"
namespace lockstep::probe {
std::unique_ptr<Backend> open_real(const StepSpec&) {
  fail("none");
}
}  // namespace lockstep::probe

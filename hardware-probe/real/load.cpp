#include "hardware-probe/real/load.h"

#include "engine/base/error.h"

namespace lockstep::probe {

BackgroundLoad::BackgroundLoad(std::function<void()> burst)
    : thread_([this, burst = std::move(burst)] {
        try {
          while (!stop_) burst();
        } catch (const Error&) {
          failed_ = true;
        }
      }) {}

BackgroundLoad::~BackgroundLoad() {
  stop_ = true;
  thread_.join();
}

}  // namespace lockstep::probe

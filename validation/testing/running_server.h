// 'lockstep serve' as its users start it, for judges that speak HTTP.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/listening_process.h"

namespace lockstep::testing {

class RunningServer {
 public:
  // One rank on a free port; returns when it is ready. `programs` and `golden` are folders. Throws
  // Error with its log when it does not come up.
  RunningServer(const std::string& programs, const std::string& golden,
                const std::vector<std::string>& flags);

  std::string url() const;

 private:
  TempDir halts_;
  std::unique_ptr<ListeningProcess> server_;
};

}  // namespace lockstep::testing

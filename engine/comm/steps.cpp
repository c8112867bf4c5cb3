#include "engine/comm/steps.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {
namespace {

struct Outcome {
  char line[400] = {};  // empty: it went well
};

}  // namespace

void in_step(Communicator& host, const std::function<void()>& step) {
  Outcome mine;
  try {
    step();
  } catch (const Error& error) {
    const std::string line = error.what();
    const std::string shown = line.empty() ? "failed" : line;
    std::memcpy(mine.line, shown.data(), std::min(shown.size(), sizeof(mine.line) - 1));
  }
  std::vector<Outcome> all(static_cast<size_t>(host.n_ranks()));
  host.all_gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string line = all[rank].line;
    if (line.empty()) continue;
    const std::string named = fmt::format("rank {}: ", rank);
    fail("{}{}", line.starts_with(named) ? "" : named, line);
  }
}

}  // namespace lockstep

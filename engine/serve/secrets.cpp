#include "engine/serve/secrets.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::serve {
namespace {

void fill(void* bytes, size_t n) {
  if (::getrandom(bytes, n, 0) != static_cast<ssize_t>(n)) {
    fail("the system gives no random numbers: {}", std::strerror(errno));
  }
}

}  // namespace

std::string random_hex(int n_bytes) {
  std::vector<unsigned char> bytes(static_cast<size_t>(n_bytes));
  fill(bytes.data(), bytes.size());
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

uint64_t random_seed() {
  uint64_t seed = 0;
  fill(&seed, sizeof seed);
  return seed >> 11;
}

}  // namespace lockstep::serve

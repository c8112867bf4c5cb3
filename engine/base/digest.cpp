#include "engine/base/digest.h"

#include <fmt/core.h>
#include <xxhash.h>

#include "engine/base/error.h"

namespace lockstep {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

uint64_t digest64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string digest128_hex(std::span<const std::byte> bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

struct Digest128::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Digest128::Digest128() : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(state_->xxh != nullptr);
  XXH3_128bits_reset(state_->xxh);
}

Digest128::~Digest128() = default;

void Digest128::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Digest128::update(const std::string& text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

std::string Digest128::hex() const {
  return to_hex(XXH3_128bits_digest(state_->xxh));
}

}  // namespace lockstep

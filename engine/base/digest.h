// Digests that identify bytes. XXH3 (libxxhash): fast, not cryptographic; it finds accidents, not
// attacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

uint64_t digest64(std::span<const std::byte> bytes, uint64_t seed = 0);

// 128-bit digest as 32 lower-case hex digits.
std::string digest128_hex(std::span<const std::byte> bytes);

// Streaming form of digest128_hex.
class Digest128 {
 public:
  Digest128();
  ~Digest128();
  Digest128(const Digest128&) = delete;
  Digest128& operator=(const Digest128&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(const std::string& text);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

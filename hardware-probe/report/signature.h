// SHA-256 and Ed25519 (OpenSSL behind it).
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::probe {

std::string sha256_hex(const std::string& text);
std::string random_hex(size_t n_bytes);  // from the operating system

class SigningKey {
 public:
  static SigningKey generate();
  // Reads a PEM file; makes a new key and writes it (mode 0600) when the file is not there.
  static SigningKey load_or_create(const std::filesystem::path& path);

  std::string public_key_hex() const;
  std::string sign_hex(const std::string& text) const;

 private:
  explicit SigningKey(std::string raw) : raw_(std::move(raw)) {}
  std::string raw_;  // 32 bytes
};

// False for anything that is not a valid signature, malformed hex included.
bool signature_is_valid(const std::string& text, const std::string& public_key_hex,
                        const std::string& signature_hex);

}  // namespace lockstep::probe

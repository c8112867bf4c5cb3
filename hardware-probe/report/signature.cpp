#include "hardware-probe/report/signature.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "engine/base/error.h"

namespace lockstep::probe {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;
using File = std::unique_ptr<FILE, int (*)(FILE*)>;

constexpr size_t kKeyBytes = 32, kSignatureBytes = 64;

const unsigned char* raw(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string to_hex(const unsigned char* bytes, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Empty when malformed.
std::string from_hex(const std::string& hex) {
  std::string out;
  if (hex.size() % 2 != 0) return out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) return {};
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

Key private_key(const std::string& bytes) {
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, raw(bytes), bytes.size()),
             EVP_PKEY_free);
}

std::string raw_private_of(EVP_PKEY* key, const std::string& origin) {
  std::string bytes(kKeyBytes, '\0');
  size_t n = bytes.size();
  const bool ed25519 = EVP_PKEY_id(key) == EVP_PKEY_ED25519;
  if (!ed25519 ||
      EVP_PKEY_get_raw_private_key(key, reinterpret_cast<unsigned char*>(bytes.data()), &n) != 1) {
    fail_with(ExitCode::usage, "{}: not an Ed25519 private key", origin);
  }
  return bytes;
}

void write_key(const std::filesystem::path& path, EVP_PKEY* key) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const File file(descriptor < 0 ? nullptr : ::fdopen(descriptor, "w"), &std::fclose);
  if (file == nullptr ||
      PEM_write_PrivateKey(file.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    fail_with(ExitCode::usage, "{}: cannot write the new key", path.string());
  }
}

}  // namespace

std::string sha256_hex(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned n = 0;
  LOCKSTEP_CHECK(EVP_Digest(text.data(), text.size(), digest, &n, EVP_sha256(), nullptr) == 1);
  return to_hex(digest, n);
}

std::string random_hex(size_t n_bytes) {
  std::string bytes(n_bytes, '\0');
  LOCKSTEP_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(n_bytes)) == 1);
  return to_hex(raw(bytes), n_bytes);
}

SigningKey SigningKey::generate() {
  std::string bytes(kKeyBytes, '\0');
  LOCKSTEP_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                            static_cast<int>(bytes.size())) == 1);
  return SigningKey(bytes);
}

SigningKey SigningKey::load_or_create(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    SigningKey fresh = generate();
    write_key(path, private_key(fresh.raw_).get());
    return fresh;
  }
  const File file(std::fopen(path.c_str(), "r"), &std::fclose);
  if (file == nullptr) fail_with(ExitCode::usage, "{}: cannot be read", path.string());
  // No passphrase prompt: a probe may run without a terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return 0; };
  const Key key(PEM_read_PrivateKey(file.get(), nullptr, no_passphrase, nullptr), EVP_PKEY_free);
  if (key == nullptr)
    fail_with(ExitCode::usage, "{}: not an unencrypted PEM private key", path.string());
  return SigningKey(raw_private_of(key.get(), path.string()));
}

std::string SigningKey::public_key_hex() const {
  unsigned char bytes[kKeyBytes];
  size_t n = sizeof(bytes);
  LOCKSTEP_CHECK(EVP_PKEY_get_raw_public_key(private_key(raw_).get(), bytes, &n) == 1);
  return to_hex(bytes, n);
}

std::string SigningKey::sign_hex(const std::string& text) const {
  const Key key = private_key(raw_);
  const DigestContext context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  unsigned char signature[kSignatureBytes];
  size_t n = sizeof(signature);
  LOCKSTEP_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1);
  LOCKSTEP_CHECK(EVP_DigestSign(context.get(), signature, &n, raw(text), text.size()) == 1);
  return to_hex(signature, n);
}

bool signature_is_valid(const std::string& text, const std::string& public_key_hex,
                        const std::string& signature_hex) {
  const std::string public_key = from_hex(public_key_hex);
  const std::string signature = from_hex(signature_hex);
  if (public_key.size() != kKeyBytes || signature.size() != kSignatureBytes) return false;
  const Key key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(public_key), public_key.size()),
      EVP_PKEY_free);
  if (key == nullptr) return false;
  const DigestContext context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1) return false;
  return EVP_DigestVerify(context.get(), raw(signature), signature.size(), raw(text),
                          text.size()) == 1;
}

}  // namespace lockstep::probe

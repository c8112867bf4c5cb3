#include "validation/receipt/signature.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {
namespace {

using Bytes = std::vector<unsigned char>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;
using File = std::unique_ptr<FILE, int (*)(FILE*)>;

constexpr size_t kKeyBytes = 32;
constexpr size_t kSignatureBytes = 64;

const unsigned char* raw(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string to_hex(const Bytes& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Empty when it is not `n_bytes` bytes in hexadecimal.
Bytes from_hex(const std::string& text, size_t n_bytes) {
  if (text.size() != 2 * n_bytes) return {};
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    int used = 0;
    const std::string pair = text.substr(i, 2);
    if (std::sscanf(pair.c_str(), "%2x%n", &value, &used) != 1 || used != 2) return {};
    bytes.push_back(static_cast<unsigned char>(value));
  }
  return bytes;
}

Key read_private_key(const std::filesystem::path& path) {
  const File file(std::fopen(path.c_str(), "r"), &std::fclose);
  if (file == nullptr) fail_with(ExitCode::usage, "{}: cannot be read", path.string());
  const auto no_passphrase = [](char*, int, int, void*) { return 0; };
  Key key(PEM_read_PrivateKey(file.get(), nullptr, no_passphrase, nullptr), EVP_PKEY_free);
  if (key == nullptr || EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519) {
    fail_with(ExitCode::usage, "{}: is no unencrypted Ed25519 private key (PEM)", path.string());
  }
  return key;
}

}  // namespace

Signature sign_text(const std::string& text, const std::filesystem::path& key_file) {
  const Key key = read_private_key(key_file);
  Bytes public_key(kKeyBytes);
  Bytes value(kSignatureBytes);
  size_t n_key = public_key.size();
  size_t n_value = value.size();
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  LOCKSTEP_CHECK(EVP_PKEY_get_raw_public_key(key.get(), public_key.data(), &n_key) == 1);
  LOCKSTEP_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1);
  LOCKSTEP_CHECK(EVP_DigestSign(context.get(), value.data(), &n_value, raw(text), text.size()) ==
                 1);
  return {to_hex(public_key), to_hex(value)};
}

bool signature_fits(const std::string& text, const Signature& signature) {
  const Bytes public_key = from_hex(signature.public_key, kKeyBytes);
  const Bytes value = from_hex(signature.value, kSignatureBytes);
  if (public_key.empty() || value.empty()) return false;
  const Key key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, public_key.data(), public_key.size()),
      EVP_PKEY_free);
  if (key == nullptr) return false;
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1) return false;
  return EVP_DigestVerify(context.get(), value.data(), value.size(), raw(text), text.size()) == 1;
}

}  // namespace lockstep

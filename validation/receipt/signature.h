// Ed25519 signatures of receipts (OpenSSL). A digest finds accidents; a signature also says who.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

struct Signature {
  std::string public_key;  // 64 hexadecimal digits
  std::string value;       // 128 hexadecimal digits
};

// Signs with an unencrypted PEM private key. Throws Error (usage) when the file is none.
Signature sign_text(const std::string& text, const std::filesystem::path& key_file);

bool signature_fits(const std::string& text, const Signature& signature);

}  // namespace lockstep

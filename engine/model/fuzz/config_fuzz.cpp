// Any text as config.json, for the model's sizes and for what it claims about formats.
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/error.h"
#include "engine/model/config.h"
#include "engine/model/quant_claims.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const std::string text(reinterpret_cast<const char*>(data), n_bytes);
  const lockstep::QuantClaims claims = lockstep::parse_quant_claims(text);
  claims.family_of("model.language_model.layers.0.mlp.up_proj");
  claims.family_of("lm_head");
  try {
    const lockstep::ModelConfig config = lockstep::parse_model_config(text, text, "input");
    LOCKSTEP_CHECK(config.n_layers() > 0 && config.hidden_size > 0);
    LOCKSTEP_CHECK(config.n_heads % config.n_kv_heads == 0);
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 0;
}

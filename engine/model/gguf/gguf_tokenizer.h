// The tokenizer's keys of a GGUF file, from tokenizer.json.
#pragma once

#include "engine/model/companion_files.h"
#include "engine/model/config.h"
#include "engine/model/gguf/gguf_writer.h"

namespace lockstep {

// Throws Error that names what tokenizer.json lacks.
void add_gguf_tokenizer(const ModelConfig& config, const CompanionFiles& companions,
                        GgufWriter& writer);

}  // namespace lockstep

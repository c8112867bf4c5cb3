#include "engine/model/companion_files.h"

#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

constexpr const char* kNames[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "hf_quant_config.json",
};

}  // namespace

CompanionFiles read_companion_files(const std::filesystem::path& dir) {
  CompanionFiles files;
  for (const char* name : kNames) {
    const std::filesystem::path path = dir / name;
    const bool needed = std::string(name) == "config.json";
    if (needed || std::filesystem::exists(path)) files[name] = read_text_file(path);
  }
  return files;
}

void write_companion_files(const CompanionFiles& files, const std::filesystem::path& dir) {
  for (const auto& [name, text] : files) write_file_atomically(dir / name, text);
}

}  // namespace lockstep

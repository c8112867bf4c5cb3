// How fast one text is encoded, in chunks that end at a line end. ci/lanes/peers_tokenizer.sh runs
// it in turn with another tokenizer on the same file, because machines change from minute to
// minute.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/text/tokenizer.h"

namespace lockstep {
namespace {

std::vector<std::string_view> chunks_of(std::string_view text, size_t least) {
  std::vector<std::string_view> chunks;
  for (size_t begin = 0; begin < text.size();) {
    const size_t line = text.find('\n', std::min(begin + least, text.size()));
    const size_t end = line == std::string_view::npos ? text.size() : line + 1;
    chunks.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return chunks;
}

std::vector<std::vector<int32_t>> encode_all(const Tokenizer& tokenizer,
                                             const std::vector<std::string_view>& chunks) {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string_view chunk : chunks) ids.push_back(tokenizer.encode(chunk));
  return ids;
}

int bench(const std::string& model, const std::string& file, size_t chunk_bytes) {
  const Tokenizer tokenizer = Tokenizer::load(model);
  const std::string text = read_text_file(file);
  const std::vector<std::string_view> chunks = chunks_of(text, chunk_bytes);
  encode_all(tokenizer, chunks);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::vector<int32_t>> encoded = encode_all(tokenizer, chunks);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  uint32_t digest = 0x811c9dc5;  // FNV-1a over the ids
  size_t n_tokens = 0;
  for (const std::vector<int32_t>& ids : encoded) {
    for (const int32_t id : ids) digest = (digest ^ static_cast<uint32_t>(id)) * 0x01000193u;
    n_tokens += ids.size();
  }
  fmt::print("{{\"bytes\":{},\"tokens\":{},\"digest\":{},\"seconds\":{}}}\n", text.size(), n_tokens,
             digest, elapsed.count());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("text_encode_speed", [&] {
    CLI::App app("Encodes a file and prints bytes, tokens, a digest of the ids, and seconds");
    std::string model;
    std::string file;
    size_t chunk_bytes = 4096;
    app.add_option("--model", model, "Checkpoint folder with tokenizer.json")->required();
    app.add_option("--file", file, "Text to encode")->required();
    app.add_option("--chunk-bytes", chunk_bytes, "Least bytes of a chunk")
        ->check(CLI::Range(size_t{1}, size_t{1} << 30));
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    return lockstep::bench(model, file, chunk_bytes);
  });
}

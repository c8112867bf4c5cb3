// Any text as what describes a checkpoint: its index, a digest file, the header of a shard. The
// first byte says which.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/model/digest_file.h"
#include "engine/model/shard_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::byte kData[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

// A folder with one file of two tensors, and a config.json for a shard.
const fs::path& folder() {
  static const TempDir folder;
  static const bool made = [] {
    SafetensorsWriter writer;
    writer.add("lm_head.weight", DType::U8, {2}, std::span(kData).first(2));
    writer.add("model.norm.weight", DType::U8, {2}, std::span(kData).last(2));
    writer.write(folder.path() / "part.safetensors");
    write_file_atomically(folder.path() / "config.json", std::string("{}"));
    return true;
  }();
  LOCKSTEP_CHECK(made);
  return folder.path();
}

// Without the wait for the disk of write_file_atomically.
fs::path put(const std::string& name, const std::string& text) {
  const fs::path path = folder() / name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

void open_index(const std::string& text) {
  put("model.safetensors.index.json", text);
  const Checkpoint checkpoint(folder());
  LOCKSTEP_CHECK(checkpoint.tensors().size() == 2);
}

void read_digests(const std::string& text) {
  const DigestFile digests = read_digest_file(put("digests.json", text));
  const Checkpoint checkpoint(std::make_unique<SafetensorsFile>(folder() / "part.safetensors"));
  check_digests(checkpoint, digests);
  LOCKSTEP_CHECK(digests.checkpoint == checkpoint.digest());
}

// With the digest that the header should say of itself in place of its digits: no input would get
// past that check else.
std::string mended(std::string header) {
  const std::string mark = "\"lockstep.header_digest\":\"";
  const size_t at = header.find(mark);
  const size_t n_digits = 32;
  if (at == std::string::npos || header.size() - at < mark.size() + n_digits) return header;
  header.replace(at + mark.size(), n_digits, n_digits, '0');
  const std::string digest = digest128_hex(std::as_bytes(std::span(header.data(), header.size())));
  return header.replace(at + mark.size(), n_digits, digest);
}

void open_shard_file(const std::string& header) {
  const std::string text = mended(header);
  const uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += text;
  file.append(reinterpret_cast<const char*>(kData), sizeof kData);
  put(shard_file_name(0, 2), file);
  const auto shard = open_shard(folder(), 0, 2, LayoutSet());
  LOCKSTEP_CHECK(shard->checkpoint().n_bytes() == sizeof kData);
  LOCKSTEP_CHECK(shard->digests().size() == shard->checkpoint().tensors().size());
}

void use(char kind, const std::string& text) {
  if (kind == 'i') open_index(text);
  if (kind == 'd') read_digests(text);
  if (kind == 's') open_shard_file(text);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  if (n_bytes == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, n_bytes - 1);
  try {
    lockstep::use(static_cast<char>(data[0]), text);
  } catch (const lockstep::Error&) {
    return 0;
  }
  return 0;
}

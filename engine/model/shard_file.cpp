#include "engine/model/shard_file.h"

#include <charconv>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/model/checkpoint_digest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersionKey = "lockstep.shard_version";
constexpr const char* kRankKey = "lockstep.rank";
constexpr const char* kRanksKey = "lockstep.n_ranks";
constexpr const char* kSourceKey = "lockstep.source_digest";
constexpr const char* kFingerprintKey = "lockstep.source_fingerprint";
constexpr const char* kConfigKey = "lockstep.config_digest";
constexpr const char* kLayoutKey = "lockstep.layout";
constexpr const char* kHeaderKey = "lockstep.header_digest";
const std::string kTensorPrefix = "lockstep.digest.";
constexpr size_t kDigestDigits = 32;

// Position of the header digest's 32 digits in the header text; npos when absent.
size_t header_digest_at(std::string_view text) {
  const std::string mark = fmt::format("\"{}\":\"", kHeaderKey);
  const size_t at = text.find(mark);
  if (at == std::string_view::npos || text.size() - at < mark.size() + kDigestDigits) {
    return std::string_view::npos;
  }
  return at + mark.size();
}

// Digest of the header text with the digits of the header digest taken as zeros.
std::string digest_of_header(std::string_view text, size_t digits_at) {
  std::string blank(text);
  blank.replace(digits_at, kDigestDigits, kDigestDigits, '0');
  return digest128_hex(std::as_bytes(std::span(blank.data(), blank.size())));
}

std::string metadata_value(const SafetensorsFile& file, const std::string& key) {
  const auto at = file.metadata().find(key);
  if (at == file.metadata().end()) {
    fail("{}: is not a shard file: {} is missing from its header", file.label(), key);
  }
  return at->second;
}

int metadata_int(const SafetensorsFile& file, const std::string& key) {
  const std::string text = metadata_value(file, key);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    fail("{}: {} is '{}', must be a number", file.label(), key, text);
  }
  return value;
}

void check_version(const SafetensorsFile& file) {
  const int version = metadata_int(file, kVersionKey);
  if (version > kShardVersion) {
    fail(
        "{}: shard format {} is newer than this program reads ({}): use a newer lockstep or run "
        "'lockstep weights shard' again",
        file.label(), version, kShardVersion);
  }
  if (version < 1) fail("{}: {} is {}, must be at least 1", file.label(), kVersionKey, version);
}

void check_header_digest(const SafetensorsFile& file) {
  const std::string stored = metadata_value(file, kHeaderKey);
  const size_t at = header_digest_at(file.header_text());
  if (at == std::string_view::npos || digest_of_header(file.header_text(), at) != stored) {
    fail("{}: its header is damaged (digest differs): run 'lockstep weights shard' again",
         file.label());
  }
}

}  // namespace

std::string shard_file_name(int rank, int n_ranks) {
  return fmt::format("shard-{}-of-{}.safetensors", rank, n_ranks);
}

std::string shard_header(const ShardIdentity& identity, const std::vector<TensorInfo>& tensors,
                         const std::map<std::string, std::string>& digests) {
  std::map<std::string, std::string> metadata = {
      {kVersionKey, std::to_string(kShardVersion)},
      {kRankKey, std::to_string(identity.rank)},
      {kRanksKey, std::to_string(identity.n_ranks)},
      {kSourceKey, identity.source_digest},
      {kFingerprintKey, identity.source_fingerprint},
      {kConfigKey, identity.config_digest},
      {kLayoutKey, identity.layout},
      {kHeaderKey, std::string(kDigestDigits, '0')},
  };
  for (const auto& [name, digest] : digests) metadata[kTensorPrefix + name] = digest;
  std::string header = safetensors_header(tensors, metadata);
  const std::string_view text = std::string_view(header).substr(sizeof(uint64_t));
  const size_t at = header_digest_at(text);
  LOCKSTEP_CHECK(at != std::string_view::npos);
  const std::string digest = digest_of_header(text, at);
  header.replace(sizeof(uint64_t) + at, kDigestDigits, digest);
  return header;
}

ShardFile::ShardFile(const fs::path& path) {
  auto file = std::make_unique<SafetensorsFile>(path);
  check_version(*file);
  check_header_digest(*file);
  parse_metadata(*file);
  checkpoint_ = std::make_unique<Checkpoint>(std::move(file));
}

void ShardFile::parse_metadata(const SafetensorsFile& file) {
  identity_.rank = metadata_int(file, kRankKey);
  identity_.n_ranks = metadata_int(file, kRanksKey);
  identity_.source_digest = metadata_value(file, kSourceKey);
  identity_.source_fingerprint = metadata_value(file, kFingerprintKey);
  identity_.config_digest = metadata_value(file, kConfigKey);
  identity_.layout = metadata_value(file, kLayoutKey);
  for (const TensorInfo& tensor : file.tensors()) {
    digests_[canonical_tensor_name(tensor.name)] =
        metadata_value(file, kTensorPrefix + tensor.name);
  }
}

void ShardFile::verify_tensors() const {
  for (const auto& [name, tensor] : checkpoint_->tensors()) {
    if (digest128_hex(tensor->bytes) != digests_.at(name)) {
      fail("{}: tensor {} is damaged (digest differs): run 'lockstep weights shard' again",
           checkpoint_->label(), name);
    }
  }
}

std::unique_ptr<ShardFile> open_shard(const fs::path& dir, int rank, int n_ranks,
                                      const LayoutSet& layouts) {
  const fs::path path = dir / shard_file_name(rank, n_ranks);
  if (!fs::exists(path)) {
    fail("{}: does not exist: run 'lockstep weights shard --tp {} --out {}'", path.string(),
         n_ranks, dir.string());
  }
  auto shard = std::make_unique<ShardFile>(path);
  const ShardIdentity& identity = shard->identity();
  if (identity.rank != rank || identity.n_ranks != n_ranks) {
    fail("{}: is the shard of rank {} of {}, not of rank {} of {}", path.string(), identity.rank,
         identity.n_ranks, rank, n_ranks);
  }
  layouts.require(identity.layout, path.string());
  const fs::path config = dir / "config.json";
  const std::string text = read_text_file(config);
  if (digest128_hex(std::as_bytes(std::span(text.data(), text.size()))) != identity.config_digest) {
    fail("{}: is not the config.json that {} was made with", config.string(), path.string());
  }
  shard->verify_tensors();
  return shard;
}

}  // namespace lockstep

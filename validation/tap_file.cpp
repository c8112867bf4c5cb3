#include "validation/tap_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <set>
#include <tuple>

#include "engine/base/error.h"
#include "engine/model/safetensors.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, 9> kBranches = {
    "mixer",      "mlp", "out", "gdn_state_rowsum", "gdn_state_colsum", "gdn_state_norm",
    "conv_state", "k",   "v"};

int group_of(const std::string& tap) {
  if (tap == "pixel_values") return 0;
  if (tap == "vision_embeds") return 1;
  if (tap.starts_with("image/")) return 3;
  if (tap.starts_with("state/")) return 4;
  if (tap.starts_with("decode/")) return 5;
  return tap.find('/') == std::string::npos ? 2 : 6;
}

int branch_of(const std::string& tap) {
  const std::string branch = tap.substr(tap.rfind('.') + 1);
  const auto at = std::find(kBranches.begin(), kBranches.end(), branch);
  return static_cast<int>(at - kBranches.begin());
}

// Place along the network: the embedding first, the final norm last.
int depth_of(const std::string& tap) {
  const int layer = tap_layer(tap);
  if (layer >= 0) return layer;
  return tap.ends_with("embed") ? -1 : INT_MAX;
}

struct Range {
  int64_t begin;
  int64_t end;
};

struct Shard {
  int64_t total = 0;
  std::vector<Range> ranges;
};

int64_t parse_number(std::string_view text, const std::string& where) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < 0) {
    fail_with(ExitCode::could_not_judge, "{}: shard description is damaged at \"{}\"", where, text);
  }
  return value;
}

// "TOTAL;a:b,c:d"
Shard parse_shard(std::string_view text, const std::string& where) {
  Shard shard;
  const size_t semicolon = text.find(';');
  shard.total = parse_number(text.substr(0, semicolon), where);
  if (semicolon == std::string_view::npos) {
    fail_with(ExitCode::could_not_judge, "{}: shard description has no ranges", where);
  }
  std::string_view rest = text.substr(semicolon + 1);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest = item.size() == rest.size() ? std::string_view() : rest.substr(item.size() + 1);
    const size_t colon = std::min(item.find(':'), item.size());
    const Range range{parse_number(item.substr(0, colon), where),
                      parse_number(item.substr(std::min(colon + 1, item.size())), where)};
    if (range.begin >= range.end || range.end > shard.total) {
      fail_with(ExitCode::could_not_judge, "{}: shard range {} lies outside 0:{}", where, item,
                shard.total);
    }
    shard.ranges.push_back(range);
  }
  return shard;
}

bool is_float(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

class Assembler {
 public:
  explicit Assembler(const std::vector<SafetensorsFile>& files) : files_(files) {}

  // The whole tensor of `tap`; sets `ranks_differ` for a replicated one.
  FloatTensor assemble(const std::string& tap, bool& ranks_differ) const {
    const TensorInfo& first = tensor(0, tap);
    ranks_differ = false;
    if (files_[0].metadata().count("shard:" + tap) != 0) return unshard(tap);
    for (size_t rank = 1; rank < files_.size(); ++rank) {
      const TensorInfo& other = tensor(rank, tap);
      if (files_[rank].metadata().count("shard:" + tap) != 0) {
        fail_with(ExitCode::could_not_judge, "{}: tap {} is split here but whole on rank 0",
                  files_[rank].label(), tap);
      }
      const bool same = other.shape == first.shape && other.dtype == first.dtype &&
                        std::ranges::equal(other.bytes, first.bytes);
      ranks_differ = ranks_differ || !same;
    }
    return {first.shape, to_float_vector(first)};
  }

 private:
  const TensorInfo& tensor(size_t rank, const std::string& tap) const {
    const TensorInfo* found = files_[rank].find(tap);
    if (found == nullptr) {
      fail_with(ExitCode::could_not_judge, "{}: tap {} is missing, another rank wrote it",
                files_[rank].label(), tap);
    }
    if (!is_float(found->dtype)) {
      fail_with(ExitCode::could_not_judge, "{}: tap {} is {}, need F32, BF16 or F16",
                files_[rank].label(), tap, dtype_name(found->dtype));
    }
    return *found;
  }

  FloatTensor unshard(const std::string& tap) const {
    FloatTensor whole;
    std::vector<bool> filled;
    for (size_t rank = 0; rank < files_.size(); ++rank) {
      const TensorInfo& part = tensor(rank, tap);
      const std::string where = files_[rank].label() + ": tap " + tap;
      const auto entry = files_[rank].metadata().find("shard:" + tap);
      if (entry == files_[rank].metadata().end()) {
        fail_with(ExitCode::could_not_judge, "{}: is split on rank 0 but whole here", where);
      }
      const Shard shard = parse_shard(entry->second, where);
      place(part, shard, where, whole, filled);
    }
    if (std::find(filled.begin(), filled.end(), false) != filled.end()) {
      fail_with(ExitCode::could_not_judge, "{}: the ranks together do not hold the whole tap {}",
                files_[0].label(), tap);
    }
    return whole;
  }

  // Copies the rows of `part` to their places; the first call gives `whole` its size.
  static void place(const TensorInfo& part, const Shard& shard, const std::string& where,
                    FloatTensor& whole, std::vector<bool>& filled) {
    int64_t n_local = 0;
    for (const Range& range : shard.ranges) n_local += range.end - range.begin;
    if (part.shape.empty() || part.shape[0] != n_local || n_local == 0) {
      fail_with(ExitCode::could_not_judge, "{}: shape {} does not fit its {} shard rows", where,
                part.shape_text(), n_local);
    }
    std::vector<int64_t> shape = part.shape;
    shape[0] = shard.total;
    const std::vector<float> values = to_float_vector(part);
    const size_t row = values.size() / static_cast<size_t>(n_local);
    if (whole.shape.empty()) {
      // A claimed total beyond all ranks' data is found below as unfilled; bound the allocation.
      if (shard.total > kMaxRanks * n_local) {
        fail_with(ExitCode::could_not_judge, "{}: claims {} rows in all but holds {}", where,
                  shard.total, n_local);
      }
      whole.shape = shape;
      whole.values.resize(row * static_cast<size_t>(shard.total));
      filled.resize(static_cast<size_t>(shard.total));
    }
    if (whole.shape != shape) {
      fail_with(ExitCode::could_not_judge, "{}: shape {} does not fit rank 0's", where,
                part.shape_text());
    }
    auto from = values.begin();
    for (const Range& range : shard.ranges) {
      for (int64_t at = range.begin; at < range.end; ++at, from += static_cast<int64_t>(row)) {
        if (filled[static_cast<size_t>(at)]) {
          fail_with(ExitCode::could_not_judge, "{}: row {} is held twice", where, at);
        }
        filled[static_cast<size_t>(at)] = true;
        std::copy_n(from, row, whole.values.begin() + at * static_cast<int64_t>(row));
      }
    }
  }

  static constexpr int64_t kMaxRanks = 64;
  const std::vector<SafetensorsFile>& files_;
};

std::vector<SafetensorsFile> open_files(const std::vector<std::filesystem::path>& paths) {
  std::vector<SafetensorsFile> files;
  files.reserve(paths.size());
  for (const std::filesystem::path& path : paths) {
    try {
      files.emplace_back(path);
    } catch (const Error& error) {
      throw Error(error.what(), ExitCode::could_not_judge);
    }
  }
  return files;
}

}  // namespace

bool TapOrder::operator()(const std::string& a, const std::string& b) const {
  const auto key = [](const std::string& tap) {
    return std::tuple(group_of(tap), depth_of(tap), branch_of(tap));
  };
  const auto key_a = key(a);
  const auto key_b = key(b);
  return key_a != key_b ? key_a < key_b : a < b;
}

int tap_layer(const std::string& tap) {
  constexpr std::string_view kMark = "layers.";
  const size_t at = tap.find(kMark);
  if (at == std::string::npos) return -1;
  int layer = -1;
  const char* begin = tap.data() + at + kMark.size();
  const auto [end, error] = std::from_chars(begin, tap.data() + tap.size(), layer);
  const bool number = error == std::errc() && end != tap.data() + tap.size() && *end == '.';
  return number && layer >= 0 ? layer : -1;
}

TapDump read_tap_dump(const std::vector<std::filesystem::path>& rank_files) {
  LOCKSTEP_CHECK(!rank_files.empty());
  const std::vector<SafetensorsFile> files = open_files(rank_files);
  std::set<std::string, TapOrder> names;
  for (const SafetensorsFile& file : files) {
    for (const TensorInfo& tensor : file.tensors()) names.insert(tensor.name);
  }
  TapDump dump;
  const Assembler assembler(files);
  for (const std::string& name : names) {
    bool ranks_differ = false;
    dump.taps.emplace(name, assembler.assemble(name, ranks_differ));
    if (ranks_differ) dump.rank_differences.push_back(name);
  }
  return dump;
}

}  // namespace lockstep

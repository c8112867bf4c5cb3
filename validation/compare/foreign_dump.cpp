#include "validation/compare/foreign_dump.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/model/safetensors.h"
#include "validation/compare/npy_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using Tensors = std::map<std::string, FloatTensor>;

void add_safetensors(const fs::path& path, Tensors& tensors) {
  const SafetensorsFile file(path);
  for (const TensorInfo& tensor : file.tensors()) {
    const bool plain =
        tensor.dtype == DType::F32 || tensor.dtype == DType::BF16 || tensor.dtype == DType::F16;
    if (!plain) {
      fail("{}: tensor {} is {}, need F32, BF16 or F16", path.string(), tensor.name,
           dtype_name(tensor.dtype));
    }
    const bool fresh =
        tensors.emplace(tensor.name, FloatTensor{tensor.shape, to_float_vector(tensor)}).second;
    if (!fresh) fail("{}: tensor {} is in another file too", path.string(), tensor.name);
  }
}

void add_file(const fs::path& path, const std::string& npy_name, Tensors& tensors) {
  if (path.extension() == ".safetensors") {
    add_safetensors(path, tensors);
  } else if (path.extension() == ".npy") {
    tensors.emplace(npy_name, read_npy(path));
  } else {
    fail("{}: need a .safetensors or .npy file, or a folder of them", path.string());
  }
}

Tensors read_rank(const fs::path& path) {
  Tensors tensors;
  if (!fs::is_directory(path)) {
    add_file(path, path.stem().string(), tensors);
    return tensors;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".npy" || extension == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) fail("{}: holds no .safetensors or .npy file", path.string());
  for (const fs::path& file : files) {
    add_file(file, fs::path(fs::relative(file, path)).replace_extension().string(), tensors);
  }
  return tensors;
}

std::vector<Tensors> read_ranks(const std::vector<fs::path>& paths) {
  LOCKSTEP_CHECK(!paths.empty());
  std::vector<Tensors> ranks;
  try {
    for (const fs::path& path : paths) ranks.push_back(read_rank(path));
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::could_not_judge);
  }
  return ranks;
}

TapDump join_ranks(const std::vector<fs::path>& paths, const NameMap& names) {
  const std::vector<Tensors> ranks = read_ranks(paths);
  TapDump dump;
  std::map<std::string, std::string> origin;  // of each tap
  for (const auto& [name, unused] : ranks[0]) {
    const Renamed renamed = rename(names, name);
    if (renamed.rule->drop) continue;
    if (const auto [at, fresh] = origin.emplace(renamed.tap, name); !fresh) {
      fail_with(ExitCode::could_not_judge, "{}: tensors {} and {} both become tap {}", names.label,
                at->second, name, renamed.tap);
    }
    std::vector<FloatTensor> parts;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto part = ranks[rank].find(name);
      if (part == ranks[rank].end()) {
        fail_with(ExitCode::could_not_judge, "{}: tensor {} is missing, another rank wrote it",
                  paths[rank].string(), name);
      }
      parts.push_back(part->second);
    }
    const std::string label = paths[0].string() + ": tensor " + name;
    bool differ = false;
    FloatTensor whole = join_parts(parts, *renamed.rule, label, differ);
    dump.taps.emplace(renamed.tap, reshape(std::move(whole), *renamed.rule, label));
    if (differ) dump.rank_differences.push_back(renamed.tap);
  }
  return dump;
}

bool named(const std::vector<std::string>& patterns, const std::string& tap) {
  return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
           return matches(pattern, tap);
         });
}

}  // namespace

TapDump read_foreign_dump(const std::vector<fs::path>& ranks, const NameMap& names) {
  return join_ranks(ranks, names);
}

TapDump read_named_dump(const std::vector<fs::path>& ranks) {
  const bool ours = std::ranges::all_of(
      ranks, [](const fs::path& path) { return path.extension() == ".safetensors"; });
  if (ours) return read_tap_dump(ranks);
  NameRule keep;
  keep.from = keep.to = "*";
  return join_ranks(ranks, NameMap{"dump", {keep}, {}});
}

DumpReport judge_dump(const OraclePrompt& oracle, const TapDump& dump,
                      const std::vector<std::string>& only, Precision precision) {
  OraclePrompt promised = oracle;
  DumpReport report;
  std::erase_if(promised.taps, [&](const auto& entry) {
    const bool wanted = named(only, entry.first);
    if (!wanted) report.not_checked.push_back(entry.first);
    return !wanted;
  });
  PromptReport judged;
  judge_taps(promised, dump, precision, judged);
  for (TapRow& row : judged.taps) {
    report.verdict = merge(report.verdict, row.verdict);
    if (row.verdict != Verdict::pass && report.first_bad.empty()) report.first_bad = row.tap;
    report.rows.push_back(std::move(row));
  }
  // Nothing compared proves nothing.
  if (report.rows.empty()) report.verdict = Verdict::mistrusted;
  return report;
}

}  // namespace lockstep

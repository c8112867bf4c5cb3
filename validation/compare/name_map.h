// How the tensors of another program's dump become taps (docs/formats/name-map.md).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validation/tensor_compare.h"

namespace lockstep {

// How the parts that several files hold of one tensor go together.
enum class Join { same, concat, sum };

struct NameRule {
  std::string from;  // may hold one '*'
  std::string to;    // may hold one '*': what `from` matched; empty with `drop`
  bool drop = false;
  int64_t shift = 0;             // added to the number that '*' matched
  std::optional<int64_t> index;  // picks one entry of dimension 0
  bool squeeze = false;          // drops dimensions of size 1
  bool transpose = false;        // swaps the two dimensions that are left
  std::optional<int64_t> first;  // keeps this many rows of dimension 0
  std::optional<int64_t> last;
  Join join = Join::same;
  size_t join_dim = 0;  // in the dump's own shape
};

struct NameMap {
  std::string label = "names";
  std::vector<NameRule> rules;    // the first that matches counts
  std::vector<std::string> only;  // taps that the dump promises; empty: all of the other side
};

// True when `pattern`, which may hold one '*', matches the whole of `name`; `star` becomes what the
// '*' stands for.
bool matches(std::string_view pattern, std::string_view name, std::string* star = nullptr);

// Throws Error (exit 2) that names file, rule and member.
NameMap read_name_map(const std::filesystem::path& path);
NameMap parse_name_map(const std::string& text, const std::string& label);

// The rule for a tensor and the tap that it becomes (empty when it is dropped). Throws Error (exit
// 3) when no rule matches, or shift meets something that is no number.
struct Renamed {
  const NameRule* rule;
  std::string tap;
};
Renamed rename(const NameMap& map, const std::string& name);

// Index, squeeze, transpose, first and last, in this order. Throws Error (exit 3) that starts with
// `label` when the shape does not fit.
FloatTensor reshape(FloatTensor tensor, const NameRule& rule, const std::string& label);

// The parts of one tensor, rank 0 first. `differ` is set when Join::same meets other bits.
FloatTensor join_parts(const std::vector<FloatTensor>& parts, const NameRule& rule,
                       const std::string& label, bool& differ);

}  // namespace lockstep

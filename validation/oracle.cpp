#include "validation/oracle.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/model/safetensors.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxJsonBytes = size_t{1} << 30;
constexpr size_t kMaxNameBytes = 128;
constexpr int64_t kMaxTokenId = int64_t{1} << 24;
constexpr int64_t kMaxTail = 4096;
constexpr size_t kMaxPictures = 64;
constexpr int64_t kPatchSize = 16;  // the only one the family has

template <typename... Args>
[[noreturn]] void bad_oracle(fmt::format_string<Args...> format, Args&&... args) {
  fail_with(ExitCode::could_not_judge, format, std::forward<Args>(args)...);
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) bad_oracle("{}: \"{}\" is missing", where, key);
  return object[key];
}

const Json& list(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_array()) bad_oracle("{}: \"{}\" must be a list", where, key);
  return value;
}

std::vector<int32_t> token_list(const Json& object, const char* key, const std::string& where) {
  std::vector<int32_t> ids;
  for (const Json& value : list(object, key, where)) {
    const bool valid = value.is_number_unsigned() && value.get<uint64_t>() < kMaxTokenId;
    if (!valid) bad_oracle("{}: \"{}\" holds something that is no token id", where, key);
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

double finite_number(const Json& value, const char* key, const std::string& where) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!std::isfinite(number)) bad_oracle("{}: \"{}\" holds a value that is no number", where, key);
  return number;
}

std::vector<double> number_list(const Json& object, const char* key, const std::string& where) {
  std::vector<double> numbers;
  for (const Json& value : list(object, key, where)) {
    numbers.push_back(finite_number(value, key, where));
  }
  return numbers;
}

std::string prompt_name(const Json& prompt, const std::string& where) {
  const Json& value = member(prompt, "name", where);
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  const bool safe = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (name.empty() || name.size() > kMaxNameBytes || name[0] == '.' || !safe) {
    bad_oracle("{}: a prompt's name must be 1 to {} letters, digits, '-', '_' or '.'", where,
               kMaxNameBytes);
  }
  return name;
}

std::map<std::string, TapNoise> read_noise(const Json& prompt, const std::string& where) {
  std::map<std::string, TapNoise> noise;
  if (!prompt.contains("bf16_noise")) return noise;
  const Json& entries = prompt["bf16_noise"];
  if (!entries.is_object()) bad_oracle("{}: \"bf16_noise\" must be an object", where);
  for (const auto& [tap, entry] : entries.items()) {
    const TapNoise value{finite_number(member(entry, "cos", where), "cos", where),
                         finite_number(member(entry, "rel", where), "rel", where)};
    if (std::fabs(value.cos) > 1 + 1e-6 || value.rel_l2 < 0) {
      bad_oracle("{}: bf16_noise of {} is out of range", where, tap);
    }
    noise[tap] = value;
  }
  return noise;
}

bool is_set(const Json& prompt, const char* key) {
  return prompt.contains(key) && !prompt[key].is_null();
}

int64_t integer_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number_integer()) bad_oracle("{}: \"{}\" must be an integer", where, key);
  return value.get<int64_t>();
}

// Sizes of the prompt's pictures as they were drawn.
struct DrawnSize {
  int64_t width;
  int64_t height;
};

std::vector<DrawnSize> drawn_sizes(const Json& prompt, const std::string& where) {
  std::vector<DrawnSize> sizes;
  const Json pictures =
      is_set(prompt, "image") ? Json::array({prompt["image"]}) : list(prompt, "images", where);
  if (pictures.size() > kMaxPictures) bad_oracle("{}: more than {} pictures", where, kMaxPictures);
  for (const Json& picture : pictures) {
    sizes.push_back({integer_member(picture, "w", where), integer_member(picture, "h", where)});
  }
  return sizes;
}

void read_pictures(const Json& json, const std::string& file_stem, const std::string& where,
                   OraclePrompt& prompt) {
  const std::vector<DrawnSize> sizes = drawn_sizes(json, where);
  const Json& grids = list(json, "grids", where);
  if (grids.size() != sizes.size()) bad_oracle("{}: \"grids\" has another length", where);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string number = sizes.size() == 1 ? "" : fmt::format("-{}", i);
    prompt.images.push_back(fmt::format("{}-{}{}.png", file_stem, prompt.name, number));
    const Json& grid = grids[i];
    const bool valid = grid.is_array() && grid.size() == 3 && grid[1].is_number_unsigned() &&
                       grid[2].is_number_unsigned();
    if (!valid) bad_oracle("{}: \"grids\" must hold [time, rows, columns]", where);
    prompt.resized = prompt.resized || sizes[i].height != grid[1].get<int64_t>() * kPatchSize ||
                     sizes[i].width != grid[2].get<int64_t>() * kPatchSize;
  }
  if (is_set(json, "rope_delta")) prompt.rope_delta = integer_member(json, "rope_delta", where);
}

OraclePrompt read_prompt(const Json& json, const std::string& file, const std::string& file_stem) {
  OraclePrompt prompt;
  prompt.name = prompt_name(json, file);
  const std::string where = file + ": prompt " + prompt.name;
  prompt.has_image = is_set(json, "image") || is_set(json, "images");
  if (prompt.has_image) read_pictures(json, file_stem, where, prompt);
  prompt.ids = token_list(json, "ids", where);
  prompt.greedy = token_list(json, "greedy", where);
  if (json.contains("greedy_text") && json["greedy_text"].is_string()) {
    prompt.greedy_text = json["greedy_text"];
  }
  if (json.contains("mtp_drafts") && json["mtp_drafts"].is_array()) {
    for (const Json& step : json["mtp_drafts"]) {
      prompt.mtp_drafts.push_back(token_list({{"mtp_drafts", step}}, "mtp_drafts", where));
    }
  }
  prompt.margin = number_list(json, "margin", where);
  prompt.second = token_list(json, "second", where);
  prompt.logprob = number_list(json, "logprob", where);
  prompt.bf16_noise = read_noise(json, where);
  if (prompt.ids.empty() || prompt.greedy.empty()) {
    bad_oracle("{}: \"ids\" or \"greedy\" is empty", where);
  }
  const size_t n = prompt.greedy.size();
  if (prompt.margin.size() != n || prompt.second.size() != n || prompt.logprob.size() != n) {
    bad_oracle("{}: greedy, margin, second and logprob must have one length", where);
  }
  return prompt;
}

// Taps that a run can be held against; logits are not among them.
bool is_judged_tap(const std::string& tap) {
  return tap == "embed" || tap == "final_norm" || tap == "vision_embeds" || tap == "pixel_values" ||
         tap.starts_with("layers.") || tap.starts_with("decode/") || tap.starts_with("state/") ||
         tap.starts_with("image/");
}

void attach_tensors(Oracle& oracle, const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  std::map<std::string, OraclePrompt*> by_name;
  for (OraclePrompt& prompt : oracle.prompts) by_name[prompt.name] = &prompt;
  for (const TensorInfo& tensor : file.tensors()) {
    const size_t slash = std::min(tensor.name.find('/'), tensor.name.size());
    const auto owner = by_name.find(tensor.name.substr(0, slash));
    if (owner == by_name.end() || slash == tensor.name.size()) {
      bad_oracle("{}: tensor {} belongs to no prompt of {}.json", path.string(), tensor.name,
                 oracle.prefix);
    }
    const std::string tap = tensor.name.substr(slash + 1);
    if (!is_judged_tap(tap)) continue;
    // Pixels check order and codes, which half precision holds.
    const DType wanted = tap == "pixel_values" ? DType::F16 : DType::F32;
    if (tensor.dtype != wanted) {
      bad_oracle("{}: tensor {} is {}, need {}", path.string(), tensor.name,
                 dtype_name(tensor.dtype), dtype_name(wanted));
    }
    owner->second->taps.emplace(tap, FloatTensor{tensor.shape, to_float_vector(tensor)});
  }
}

Json parse_json(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, kMaxJsonBytes);
  constexpr int kMaxDepth = 16;
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) bad_oracle("{}: nested too deeply", path.string());
    return true;
  };
  Json json = Json::parse(text, limit_depth, false);
  if (json.is_discarded()) bad_oracle("{}: is not valid JSON", path.string());
  return json;
}

Oracle read_files(const std::filesystem::path& prefix) {
  const std::string json_path = prefix.string() + ".json";
  const Json json = parse_json(json_path);
  Oracle oracle;
  oracle.prefix = prefix.string();
  const Json& tail = member(json, "tail", json_path);
  const bool tail_ok =
      tail.is_number_unsigned() && tail.get<uint64_t>() >= 1 && tail.get<uint64_t>() <= kMaxTail;
  if (!tail_ok) bad_oracle("{}: \"tail\" must be 1 to {}", json_path, kMaxTail);
  oracle.tail = tail.get<int64_t>();
  std::set<std::string> names;
  for (const Json& entry : list(json, "prompts", json_path)) {
    oracle.prompts.push_back(read_prompt(entry, json_path, prefix.string()));
    if (!names.insert(oracle.prompts.back().name).second) {
      bad_oracle("{}: prompt {} is listed twice", json_path, oracle.prompts.back().name);
    }
  }
  attach_tensors(oracle, prefix.string() + ".safetensors");
  return oracle;
}

}  // namespace

const TapNoise* OraclePrompt::noise_at(const std::string& tap) const {
  std::string plain = tap;
  for (const std::string_view place : {"decode/", "image/"}) {
    if (plain.starts_with(place)) plain.erase(0, place.size());
  }
  const auto at = bf16_noise.find(plain);
  return at == bf16_noise.end() ? nullptr : &at->second;
}

std::string OraclePrompt::shown_text() const {
  std::string kept;
  for (size_t at = 0; at < greedy_text.size();) {
    const size_t mark = std::min(greedy_text.find("<|", at), greedy_text.size());
    kept.append(greedy_text, at, mark - at);
    const size_t end = greedy_text.find("|>", mark);
    if (end == std::string::npos) return kept + greedy_text.substr(mark);
    at = end + 2;
  }
  return kept;
}

bool OraclePrompt::has_state() const {
  return std::any_of(taps.begin(), taps.end(),
                     [](const auto& entry) { return entry.first.starts_with("state/"); });
}

void leave_images_out(Oracle& oracle, const std::filesystem::path& model) {
  // Without a config.json there is no model either, which the engine says.
  const std::filesystem::path path = model / "config.json";
  const Json config = std::filesystem::exists(path) ? parse_json(path) : Json();
  const bool sees = config.is_object() && is_set(config, "vision_config");
  for (OraclePrompt& prompt : oracle.prompts) prompt.in_scope = sees || !prompt.has_image;
}

Oracle read_oracle(const std::filesystem::path& prefix) {
  try {
    return read_files(prefix);
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::could_not_judge);
  }
}

}  // namespace lockstep

#include "engine/rank/jobs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/media/data_url.h"
#include "engine/rank/prompt_images.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
// Members keep their order: a chat body's tool schemas reach the template as they were written.
using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultMaxTokens = 256;
constexpr int64_t kMaxTokensLimit = int64_t{1} << 24;

// Field access that names file and line in every complaint.
class Line {
 public:
  Line(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& at(const char* key) const { return json_[key]; }

  int64_t integer_or(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    if (!has(key)) return fallback;
    const Json& value = json_[key];
    if (!value.is_number_integer() || value < low || value > high) {
      fail("{}: {} must be an integer in [{}, {}]", where_, key, low, high);
    }
    return value.get<int64_t>();
  }

  float number_or(const char* key, float fallback, float low, float high) const {
    if (!has(key)) return fallback;
    const Json& value = json_[key];
    if (!value.is_number() || value < low || value > high) {
      fail("{}: {} must be a number in [{}, {}]", where_, key, low, high);
    }
    return value.get<float>();
  }

  bool flag_or(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!json_[key].is_boolean()) fail("{}: {} must be true or false", where_, key);
    return json_[key].get<bool>();
  }

  std::vector<int32_t> ids(const char* key) const {
    std::vector<int32_t> ids;
    if (!has(key)) return ids;
    if (!json_[key].is_array()) fail("{}: {} must be a list of token ids", where_, key);
    for (const Json& id : json_[key]) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        fail("{}: {} holds {}, not a token id", where_, key, id.dump());
      }
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }

  // A string or a list of strings.
  std::vector<std::string> strings(const char* key) const {
    const Json& value = json_[key];
    std::vector<std::string> result;
    for (const Json& item : value.is_array() ? value : Json::array({value})) {
      const bool ok = item.is_string() && !item.get_ref<const std::string&>().empty();
      if (!ok) fail("{}: {} must be a string or a list of strings, none empty", where_, key);
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  void refuse_unknown(const std::set<std::string>& known) const {
    for (const auto& [key, value] : json_.items()) {
      if (known.count(key) == 0) fail("{}: unknown field {}", where_, key);
    }
  }

 private:
  const Json& json_;
  std::string where_;
};

std::vector<std::string> tap_names(const Line& taps) {
  std::vector<std::string> names;
  if (!taps.has("names") || !taps.at("names").is_array()) {
    fail("{}: names must be a list of tap names", taps.where());
  }
  for (const Json& name : taps.at("names")) {
    if (!name.is_string()) fail("{}: names must be a list of tap names", taps.where());
    names.push_back(name.get<std::string>());
  }
  return names;
}

TapRequest parse_taps(const Line& job) {
  const Json& json = job.at("taps");
  if (!json.is_object()) fail("{}: taps must be an object", job.where());
  const Line taps(json, job.where() + ": taps");
  taps.refuse_unknown({"names", "last"});
  return {tap_names(taps), taps.integer_or("last", 8, 1, 1 << 20)};
}

// Files are read once, however many jobs put them in.
using InjectionFiles = std::map<std::string, std::shared_ptr<const Injection>>;

std::shared_ptr<const Injection> parse_injection(const Line& job, const ModelConfig& config,
                                                 const fs::path& folder, InjectionFiles& files) {
  const Json& json = job.at("inject");
  if (!json.is_object()) fail("{}: inject must be an object", job.where());
  const Line inject(json, job.where() + ": inject");
  inject.refuse_unknown({"file", "names"});
  if (!inject.has("file") || !inject.at("file").is_string()) {
    fail("{}: file must be the name of a safetensors file", inject.where());
  }
  std::shared_ptr<const Injection>& shared = files[json.dump()];
  if (shared != nullptr) return shared;
  const TapRequest chosen{inject.has("names") ? tap_names(inject) : std::vector<std::string>{"*"}};
  try {
    shared = std::make_shared<const Injection>(folder / inject.at("file").get<std::string>(),
                                               chosen, config);
  } catch (const Error& error) {
    fail("{}: {}", inject.where(), error.what());
  }
  return shared;
}

std::map<int32_t, float> parse_logit_bias(const Line& job) {
  std::map<int32_t, float> bias;
  if (!job.has("logit_bias")) return bias;
  if (!job.at("logit_bias").is_object()) fail("{}: logit_bias must be an object", job.where());
  for (const auto& [key, value] : job.at("logit_bias").items()) {
    const bool digits =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || !value.is_number() || value < -100 || value > 100) {
      fail("{}: logit_bias.{} must map a token id to a number in [-100, 100]", job.where(), key);
    }
    bias[static_cast<int32_t>(std::stol(key))] = value.get<float>();
  }
  return bias;
}

// Sampling fields of a job line or a chat body over `params`.
void parse_sampling(const Line& job, SamplingParams& params) {
  params.temperature = job.number_or("temperature", params.temperature, 0.0f, 100.0f);
  params.top_k = static_cast<int32_t>(job.integer_or("top_k", params.top_k, 0, INT32_MAX));
  params.top_p = job.number_or("top_p", params.top_p, 0.0f, 1.0f);
  params.min_p = job.number_or("min_p", params.min_p, 0.0f, 1.0f);
  params.presence_penalty = job.number_or("presence_penalty", params.presence_penalty, -2.0f, 2.0f);
  params.frequency_penalty =
      job.number_or("frequency_penalty", params.frequency_penalty, -2.0f, 2.0f);
  params.repetition_penalty =
      job.number_or("repetition_penalty", params.repetition_penalty, 0.01f, 100.0f);
  if (job.has("logit_bias")) params.logit_bias = parse_logit_bias(job);
  params.seed = static_cast<uint64_t>(
      job.integer_or("seed", static_cast<int64_t>(params.seed), 0, INT64_MAX));
}

// Fields that a job line and a chat body share.
void parse_common(const Line& job, Request& request) {
  parse_sampling(job, request.sampling);
  request.max_tokens = job.integer_or("max_tokens", request.max_tokens, 1, kMaxTokensLimit);
  request.max_tokens =
      job.integer_or("max_completion_tokens", request.max_tokens, 1, kMaxTokensLimit);
  request.ignore_eos = job.flag_or("ignore_eos", request.ignore_eos);
  if (job.has("stop")) request.stop_strings = job.strings("stop");
}

// A name becomes a file name: keep it to one path component.
void check_name(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && name.size() <= 200 && name.front() != '.' &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain) fail("{}: name '{}' cannot be a file name", where, name);
}

ImageList read_image_files(const Line& job, const ImageReader& reader, const fs::path& folder) {
  ImageList images;
  if (!job.has("images")) return images;
  const std::vector<std::string> paths = job.strings("images");
  if (paths.size() > kMaxImages) fail("{}: more than {} images", job.where(), kMaxImages);
  for (const std::string& path : paths) {
    try {
      images.push_back(is_data_url(path) ? reader.read_data_url(path, "data URL")
                                         : reader.read_file(folder / path));
      reader.check_total(images, "all together");
    } catch (const Error& error) {
      fail("{}: images: {}", job.where(), error.what());
    }
  }
  return images;
}

// A prompt with pictures but no place for them is a question about them.
std::vector<int32_t> encode_prompt(const std::string& prompt, const PromptMaker& maker,
                                   const ImageList& images) {
  std::vector<int32_t> ids = maker.text.encode(prompt);
  const bool has_pads = maker.config.image_token_id &&
                        std::count(ids.begin(), ids.end(), *maker.config.image_token_id) > 0;
  if (images.empty() || has_pads) return ids;
  return maker.text.encode_chat(image_question_body(images.size(), prompt));
}

// The prompt is given as exactly one of ids, prompt and chat. In ids the pads of a picture are
// there in full, as the model sees them; in words one stands for each picture.
void parse_prompt(const Line& job, const PromptMaker& maker, const fs::path& folder,
                  Request& request) {
  const int n_given = int{job.has("ids")} + int{job.has("prompt")} + int{job.has("chat")};
  if (n_given != 1) fail("{}: needs exactly one of ids, prompt and chat", job.where());
  request.images = read_image_files(job, maker.images, folder);
  if (job.has("ids")) {
    request.prompt = job.ids("ids");
    return;
  }
  std::vector<int32_t> ids;
  if (job.has("prompt")) {
    if (!job.at("prompt").is_string()) fail("{}: prompt must be a string", job.where());
    ids = encode_prompt(job.at("prompt").get<std::string>(), maker, request.images);
  } else {
    const Json& body = job.at("chat");
    if (!body.is_object()) fail("{}: chat must be an object", job.where());
    parse_common(Line(body, job.where() + ": chat"), request);
    try {
      std::string words = body.dump(-1, ' ', false, Json::error_handler_t::replace);
      request.images = take_chat_images(words, request.images, maker.images);
      ids = maker.text.encode_chat(words);
    } catch (const Error& error) {
      fail("{}: chat: {}", job.where(), error.what());
    }
  }
  request.prompt = expand_image_pads(ids, request.images, maker.config, job.where());
}

Request parse_job(const Json& json, const std::string& where, const PromptMaker& maker,
                  const fs::path& folder, const SamplingParams& defaults,
                  InjectionFiles& injections) {
  if (!json.is_object()) fail("{}: is not a JSON object", where);
  const Line job(json, where);
  job.refuse_unknown({"name",
                      "ids",
                      "prompt",
                      "chat",
                      "max_tokens",
                      "max_completion_tokens",
                      "temperature",
                      "top_k",
                      "top_p",
                      "min_p",
                      "presence_penalty",
                      "frequency_penalty",
                      "repetition_penalty",
                      "logit_bias",
                      "seed",
                      "ignore_eos",
                      "stop",
                      "stop_ids",
                      "force_ids",
                      "logits",
                      "drafts",
                      "taps",
                      "prefix_cache",
                      "images",
                      "inject",
                      "assumed_context"});
  Request request;
  if (!job.has("name") || !job.at("name").is_string()) fail("{}: name must be a string", where);
  request.name = job.at("name").get<std::string>();
  check_name(request.name, where);
  request.sampling = defaults;
  request.max_tokens = kDefaultMaxTokens;
  parse_prompt(job, maker, folder, request);
  parse_common(job, request);
  request.force_ids = job.ids("force_ids");
  request.stop_ids = job.ids("stop_ids");
  request.report_drafts = job.flag_or("drafts", false);
  request.use_prefix_cache = job.flag_or("prefix_cache", true);
  request.n_logits = static_cast<int>(job.integer_or("logits", 0, 0, 1 << 20));
  request.assumed_context = job.integer_or("assumed_context", 0, 0, kMaxTokensLimit);
  request.prompt.insert(request.prompt.begin(), static_cast<size_t>(request.assumed_context), 0);
  if (job.has("taps")) request.taps = parse_taps(job);
  if (job.has("inject")) {
    request.injection = parse_injection(job, maker.config, folder, injections);
  }
  request.stop_watcher = maker.text.watch(request.stop_strings);
  return request;
}

void apply(const JobOverrides& overrides, Request& request) {
  if (overrides.max_tokens) request.max_tokens = *overrides.max_tokens;
  if (overrides.temperature) request.sampling.temperature = *overrides.temperature;
  if (overrides.seed) request.sampling.seed = *overrides.seed;
  if (overrides.ignore_eos) request.ignore_eos = true;
}

}  // namespace

std::vector<Request> read_jobs(const fs::path& path, const PromptMaker& maker,
                               const SamplingParams& defaults, const JobOverrides& overrides) {
  std::istringstream lines(read_text_file(path, size_t{1} << 30));
  std::vector<Request> requests;
  std::set<std::string> names;
  InjectionFiles injections;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) fail("{}: is not valid JSON", where);
    requests.push_back(parse_job(json, where, maker, path.parent_path(), defaults, injections));
    apply(overrides, requests.back());
    if (!names.insert(requests.back().name).second) {
      fail("{}: name '{}' is used twice", where, requests.back().name);
    }
  }
  if (requests.empty()) fail("{}: holds no job", path.string());
  return requests;
}

SamplingParams load_generation_defaults(const std::filesystem::path& model_dir) {
  SamplingParams params;
  const std::filesystem::path path = model_dir / "generation_config.json";
  if (!std::filesystem::exists(path)) return params;
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("{}: is not a JSON object", path.string());
  const Line config(json, path.string());
  if (!config.flag_or("do_sample", false)) return params;
  params.temperature = 1.0f;
  parse_sampling(config, params);
  return params;
}

std::string result_line(const Request& request, const RequestResult& result,
                        const std::string* text) {
  Json json;
  json["name"] = request.name;
  if (text != nullptr) json["text"] = *text;
  json["ids"] = result.ids;
  json["finish_reason"] = finish_reason_name(result.finish_reason);
  json["prompt_tokens"] = request.prompt.size();
  json["completion_tokens"] = result.ids.size();
  if (request.n_logits > 0) {
    Json steps = Json::array();
    for (const StepLogits& step : result.logits) {
      steps.push_back({{"ids", step.ids},
                       {"values", step.values},
                       {"lse", step.log_sum_exp},
                       {"chosen_value", step.chosen_value}});
    }
    json["logits"] = std::move(steps);
  }
  json["mtp"] = {{"rounds", result.mtp.rounds},
                 {"drafted", result.mtp.drafted},
                 {"accepted", result.mtp.accepted}};
  if (request.report_drafts) {
    Json rounds = Json::array();
    for (const DraftRound& round : result.mtp.draft_rounds) {
      rounds.push_back({{"step", round.step}, {"drafts", round.drafts}});
    }
    json["mtp"]["draft_rounds"] = std::move(rounds);
  }
  if (!request.images.empty()) json["rope_delta"] = result.rope_delta;
  json["cache"] = {{"hit_tokens", result.cache_hit_tokens},
                   {"computed_tokens", result.computed_tokens}};
  const auto n_decoded = result.ids.empty() ? 0 : result.ids.size() - 1;
  json["timing"] = {{"prefill_tokens", result.computed_tokens},
                    {"prefill_s", result.prefill_s},
                    {"decode_tokens", n_decoded},
                    {"decode_s", result.decode_s}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep

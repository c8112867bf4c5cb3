// Drafts of llama.cpp from a GGUF file with the MTP layer, held against an oracle's: the oracle's
// tokens are fed, and behind each step the layer drafts as it did there.
// Usage: llama_mtp MODEL.gguf ORACLE.json LIBRARY_FOLDER
// Prints one JSON object: layers, prompts, drafts, equal, and where each prompt first differs.
#include <llama-ext.h>
#include <llama.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using Json = nlohmann::json;

constexpr int32_t kBatch = 512;

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "llama_mtp: %s\n", message.c_str());
  std::exit(1);
}

llama_context* make_context(llama_model* model, uint32_t n_tokens, llama_context_type type,
                            llama_context* other) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = n_tokens;
  params.n_batch = kBatch;
  params.n_ubatch = kBatch;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.ctx_type = type;
  params.ctx_other = other;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) stop("no context");
  return context;
}

// Tokens with a row of the width of the model each; the last one's logits are kept.
void decode(llama_context* context, int32_t width, const std::vector<llama_token>& tokens,
            const float* rows, llama_pos first) {
  const auto n = static_cast<int32_t>(tokens.size());
  llama_batch batch = llama_batch_init(n, rows == nullptr ? 0 : width, 1);
  // The library allocates tokens or rows; the layer takes both.
  if (rows != nullptr) {
    batch.token = static_cast<llama_token*>(std::malloc(sizeof(llama_token) * tokens.size()));
    std::memcpy(batch.embd, rows, sizeof(float) * tokens.size() * static_cast<size_t>(width));
  }
  batch.n_tokens = n;
  for (int32_t i = 0; i < n; ++i) {
    batch.token[i] = tokens[static_cast<size_t>(i)];
    batch.pos[i] = first + i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i + 1 == n;
  }
  const int32_t status = llama_decode(context, batch);
  if (rows != nullptr) {
    std::free(batch.token);
    batch.token = nullptr;
  }
  llama_batch_free(batch);
  if (status != 0) stop("llama_decode returned " + std::to_string(status));
}

llama_token best_token(llama_context* context, int32_t n_vocabulary) {
  const float* logits = llama_get_logits_ith(context, -1);
  llama_token best = 0;
  for (llama_token id = 1; id < n_vocabulary; ++id) {
    if (logits[id] > logits[best]) best = id;
  }
  return best;
}

// What goes into the head, for every position of `tokens`.
std::vector<float> final_rows(llama_context* context, int32_t width,
                              const std::vector<llama_token>& tokens) {
  std::vector<float> rows;
  for (size_t begin = 0; begin < tokens.size(); begin += kBatch) {
    const size_t end = std::min(begin + kBatch, tokens.size());
    decode(context, width,
           {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
            tokens.begin() + static_cast<std::ptrdiff_t>(end)},
           nullptr, static_cast<llama_pos>(begin));
    const float* from = llama_get_embeddings_nextn(context);
    rows.insert(rows.end(), from, from + (end - begin) * static_cast<size_t>(width));
  }
  return rows;
}

struct Drafter {
  llama_context* context;
  int32_t width;
  int32_t n_vocabulary;
  const std::vector<llama_token>& tokens;
  const std::vector<float>& rows;
  llama_pos done = 1;  // the layer has read the tokens before this position; the first has no row

  // Three tokens behind position `last`.
  std::vector<llama_token> draft(llama_pos last) {
    // The newest token alone, as the library's own driver does: rows of a longer batch with one
    // output lie elsewhere.
    while (done <= last) {
      const llama_pos end = done == last ? last + 1 : std::min(done + kBatch, last);
      decode(context, width, {tokens.begin() + done, tokens.begin() + end},
             rows.data() + int64_t{done - 1} * width, done);
      done = end;
    }
    std::vector<llama_token> drafts = {best_token(context, n_vocabulary)};
    while (drafts.size() < 3) {
      const float* row = llama_get_embeddings_nextn_ith(context, 0);
      const std::vector<float> previous(row, row + width);
      decode(context, width, {drafts.back()}, previous.data(),
             last + static_cast<llama_pos>(drafts.size()));
      drafts.push_back(best_token(context, n_vocabulary));
    }
    if (!llama_memory_seq_rm(llama_get_memory(context), 0, last + 1, -1)) stop("no rollback");
    return drafts;
  }
};

void judge(llama_model* model, const Json& prompt, Json& report) {
  std::vector<llama_token> tokens = prompt["ids"];
  const auto n_prompt = static_cast<llama_pos>(tokens.size());
  const std::vector<llama_token> greedy = prompt["greedy"];
  tokens.insert(tokens.end(), greedy.begin(), greedy.end());
  const auto n_context = static_cast<uint32_t>(tokens.size() + 8);
  const int32_t width = llama_model_n_embd(model);
  llama_context* target = make_context(model, n_context, LLAMA_CONTEXT_TYPE_DEFAULT, nullptr);
  llama_set_embeddings_nextn(target, true, false);
  const std::vector<float> rows = final_rows(target, width, tokens);
  llama_context* layer = make_context(model, n_context, LLAMA_CONTEXT_TYPE_MTP, target);
  llama_set_embeddings_nextn(layer, true, true);
  const int32_t n_vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  Drafter drafter{layer, width, n_vocabulary, tokens, rows};
  const Json& steps = prompt["mtp_drafts"];
  for (size_t step = 0; step < steps.size(); ++step) {
    const std::vector<llama_token> want = steps[step];
    const std::vector<llama_token> got = drafter.draft(n_prompt + static_cast<llama_pos>(step));
    for (size_t k = 0; k < got.size(); ++k) {
      const bool same = got[k] == want.at(k);
      report["drafts"] = report["drafts"].get<int64_t>() + 1;
      report["equal"] = report["equal"].get<int64_t>() + (same ? 1 : 0);
      const std::string name = prompt["name"];
      if (!same && !report["differs"].contains(name)) report["differs"][name] = {step, k};
    }
  }
  llama_free(layer);
  llama_free(target);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) stop("usage: llama_mtp MODEL.gguf ORACLE.json LIBRARY_FOLDER");
  ggml_backend_load_all_from_path(argv[3]);
  llama_model_params params = llama_model_default_params();
  params.load_mtp = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) stop(std::string(argv[1]) + ": cannot be loaded");
  std::ifstream file(argv[2]);
  const Json oracle = Json::parse(file);
  Json report = {{"layers", llama_model_n_layer_nextn(model)},
                 {"prompts", 0},
                 {"drafts", 0},
                 {"equal", 0},
                 {"differs", Json::object()}};
  for (const Json& prompt : oracle["prompts"]) {
    if (!prompt["image"].is_null() || !prompt["images"].is_null()) continue;
    judge(model, prompt, report);
    report["prompts"] = report["prompts"].get<int64_t>() + 1;
  }
  std::printf("%s\n", report.dump().c_str());
  llama_model_free(model);
  return 0;
}

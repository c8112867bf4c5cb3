// A test's own server around llama.cpp's C API: /v1/completions on token ids, greedy, with
// log-probabilities, so that `lockstep diverge` can judge it as any endpoint. One request at a
// time. Usage: llama_server MODEL.gguf BACKEND_FOLDER f32|f16 [CONTEXT]
// Prints "port N" when it listens.
#include <ggml-backend.h>
#include <httplib.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace {

using Json = nlohmann::json;

class Model {
 public:
  Model(const char* path, bool f32_cache, uint32_t n_context) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    model_ = llama_model_load_from_file(path, model_params);
    if (model_ == nullptr) give_up("the model cannot be loaded");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = n_context;
    params.n_batch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = f32_cache ? GGML_TYPE_F32 : GGML_TYPE_F16;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) give_up("no context can be made");
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
  }

  Json complete(std::vector<llama_token> ids, int max_tokens, int top) {
    llama_memory_clear(llama_get_memory(context_), true);
    Json logprobs = {{"tokens", Json::array()},
                     {"token_logprobs", Json::array()},
                     {"top_logprobs", Json::array()}};
    std::string text;
    size_t fed = 0;
    for (int step = 0; step < max_tokens; ++step) {
      const float* logits = feed(ids, fed);
      ids.push_back(add_step(logits, top, logprobs));
      text += "[" + std::to_string(ids.back()) + "]";
    }
    return {{"choices", {{{"text", text}, {"logprobs", logprobs}, {"finish_reason", "length"}}}}};
  }

 private:
  [[noreturn]] static void give_up(const char* words) {
    std::fprintf(stderr, "llama_server: %s\n", words);
    std::exit(1);
  }

  // Logits behind the last of `ids`, of which `fed` were already read.
  const float* feed(std::vector<llama_token>& ids, size_t& fed) {
    while (fed < ids.size()) {
      const size_t n = std::min<size_t>(512, ids.size() - fed);
      if (llama_decode(context_, llama_batch_get_one(ids.data() + fed, static_cast<int>(n))) != 0) {
        give_up("decoding failed");
      }
      fed += n;
    }
    return llama_get_logits_ith(context_, -1);
  }

  // The largest logit, lowest id on ties; notes its log-probability and the strongest others.
  llama_token add_step(const float* logits, int top, Json& logprobs) const {
    std::vector<llama_token> order(static_cast<size_t>(n_vocab_));
    std::iota(order.begin(), order.end(), 0);
    const auto stronger = [&](llama_token a, llama_token b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    const auto n = std::min<std::ptrdiff_t>(top, n_vocab_);
    std::partial_sort(order.begin(), order.begin() + n, order.end(), stronger);
    double sum = 0;
    for (int i = 0; i < n_vocab_; ++i) sum += std::exp(double{logits[i]} - logits[order[0]]);
    const double log_sum = logits[order[0]] + std::log(sum);
    Json tops = Json::object();
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      tops["token_id:" + std::to_string(order[static_cast<size_t>(i)])] =
          logits[order[static_cast<size_t>(i)]] - log_sum;
    }
    logprobs["tokens"].push_back("token_id:" + std::to_string(order[0]));
    logprobs["token_logprobs"].push_back(logits[order[0]] - log_sum);
    logprobs["top_logprobs"].push_back(std::move(tops));
    return order[0];
  }

  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  int n_vocab_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: llama_server MODEL.gguf BACKEND_FOLDER f32|f16 [CONTEXT]\n");
    return 2;
  }
  ggml_backend_load_all_from_path(argv[2]);
  llama_backend_init();
  Model model(argv[1], std::string(argv[3]) == "f32",
              argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 4096);
  std::mutex mutex;
  httplib::Server server;
  server.Post("/v1/completions", [&](const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(mutex);
    const Json body = Json::parse(request.body, nullptr, false);
    if (!body.is_object() || !body.contains("prompt") || !body["prompt"].is_array()) {
      response.status = 400;
      response.set_content("wants token ids as prompt", "text/plain");
      return;
    }
    const Json answer = model.complete(body["prompt"].get<std::vector<llama_token>>(),
                                       body.value("max_tokens", 16), body.value("logprobs", 5));
    response.set_content(answer.dump(), "application/json");
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::printf("port %d\n", port);
  std::fflush(stdout);
  return server.listen_after_bind() ? 0 : 1;
}

#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "validation/diverge/openai_client.h"
#include "validation/diverge/side.h"

namespace lockstep {
namespace {

// Requests a prompt may cost: each fork asks once more behind it.
constexpr int kMaxForks = 32;

class EndpointSide : public Side {
 public:
  EndpointSide(const std::string& url, const SideOptions& options)
      : url_(url), top_(options.top), client_(url, options.served_model, options.timeout) {}

  std::string label() const override { return url_; }

  std::vector<SideRun> run(const std::vector<DivergePrompt>& prompts, int max_tokens) override {
    std::vector<SideRun> runs;
    Progress progress(url_, prompts.size(), "prompts");
    for (const DivergePrompt& prompt : prompts) {
      progress.advance(0);
      runs.push_back(client_.complete(prompt, {}, max_tokens, top_));
      progress.advance();
    }
    return runs;
  }

  std::vector<SideRun> follow(const std::vector<DivergePrompt>& prompts,
                              const std::vector<SideRun>& reference) override {
    std::vector<SideRun> runs;
    Progress progress(url_, prompts.size(), "prompts");
    for (size_t i = 0; i < prompts.size(); ++i) {
      progress.advance(0);
      runs.push_back(follow_one(prompts[i], reference[i]));
      progress.advance();
    }
    return runs;
  }

  std::optional<std::vector<TapMap>> taps(const std::vector<TapJob>&) override {
    return std::nullopt;
  }

 private:
  // A completion is the reference's until it forks; behind a fork the reference's token is fed.
  SideRun follow_one(const DivergePrompt& prompt, const SideRun& reference) const {
    SideRun whole;
    std::vector<int32_t> fed;
    const size_t n = reference.steps.size();
    for (int forks = 0; whole.steps.size() < n && forks <= kMaxForks; ++forks) {
      const size_t begin = whole.steps.size();
      const SideRun part = client_.complete(prompt, fed, static_cast<int>(n - begin), top_);
      if (begin == 0) whole.text = part.text;
      if (part.steps.empty()) break;
      for (const SideStep& step : part.steps) {
        const SideStep& expected = reference.steps[whole.steps.size()];
        whole.steps.push_back(step);
        if (!share_names(step.chosen, expected.chosen)) return whole;
        fed.push_back(expected.chosen.id);
        if (!(step.chosen == expected.chosen) || whole.steps.size() == n) break;
      }
      // Without ids nothing can be fed: the first fork ends what can be compared.
      const bool can_feed = !prompt.ids.empty() && fed.back() >= 0;
      if (!can_feed) break;
    }
    return whole;
  }

  std::string url_;
  int top_;
  OpenAiClient client_;
};

}  // namespace

std::unique_ptr<Side> make_endpoint_side(const std::string& url, const SideOptions& options) {
  return std::make_unique<EndpointSide>(url, options);
}

}  // namespace lockstep

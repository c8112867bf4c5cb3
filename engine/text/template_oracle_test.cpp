// The template engine against Jinja2: tests/template_oracle.py makes templates, requests and what
// Jinja2 renders of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/text/chat_request.h"
#include "engine/text/chat_template.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1764500000;  // as in the script

struct Case {
  std::string template_name;
  std::string json;
  bool is_chat = false;
  std::optional<std::string> text;  // absent: Jinja2 fails
  std::string error;
};

struct Oracle {
  std::map<std::string, std::string> sources;
  std::vector<Case> cases;
};

Oracle run_oracle() {
  const std::filesystem::path folder =
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "engine/text/tests";
  const std::filesystem::path output = std::filesystem::temp_directory_path() /
                                       fmt::format("lockstep-template-oracle-{}.jsonl", getpid());
  const ProcessResult result =
      run_process({LOCKSTEP_PYTHON, (folder / "template_oracle.py").string(),
                   std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5/chat_template.jinja",
                   (folder / "templates").string(), output.string()});
  if (result.exit_code != 0)
    fail("the oracle (needs python3-jinja2) failed: {}", result.stderr_text);
  Oracle oracle;
  std::ifstream file(output);
  std::string line;
  while (std::getline(file, line)) {
    const auto entry = nlohmann::json::parse(line);
    const std::string name = entry.at("template");
    if (entry.contains("source")) {
      oracle.sources[name] = entry["source"];
      continue;
    }
    Case one;
    one.template_name = name;
    one.is_chat = entry.contains("chat");
    one.json = entry.at(one.is_chat ? "chat" : "context");
    if (entry.contains("text")) one.text = entry["text"].get<std::string>();
    one.error = entry.value("error", "");
    oracle.cases.push_back(std::move(one));
  }
  std::filesystem::remove(output);
  return oracle;
}

struct Outcome {
  std::optional<std::string> text;
  std::string error;
};

Outcome render(const std::string& source, const Case& one, const TemplateOptions& options) {
  try {
    const ChatTemplate chat_template(source, one.template_name, options);
    return {one.is_chat ? render_chat(chat_template, one.json, kNow)
                        : chat_template.render(one.json, kNow),
            ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

bool is_unsupported(const Outcome& outcome) {
  return outcome.error.find("not supported") != std::string::npos;
}

int count_different(const Oracle& oracle, const TemplateOptions& options) {
  int n = 0;
  for (const Case& one : oracle.cases) {
    if (one.template_name.starts_with("expression.")) continue;
    if (render(oracle.sources.at(one.template_name), one, options).text != one.text) ++n;
  }
  return n;
}

TEST(TemplateOracle, RendersWhatJinja2Renders) {
  const Oracle oracle = run_oracle();
  int n_chats = 0;
  int n_texts = 0;
  int n_unsupported = 0;
  for (const Case& one : oracle.cases) {
    const std::string& source = oracle.sources.at(one.template_name);
    const Outcome outcome = render(source, one, {});
    n_chats += one.is_chat ? 1 : 0;
    n_texts += one.text.has_value() ? 1 : 0;
    // What is not supported says so; only generated expressions may meet it.
    if (one.text.has_value() && is_unsupported(outcome) &&
        one.template_name.starts_with("expression.")) {
      ++n_unsupported;
      continue;
    }
    EXPECT_EQ(outcome.text, one.text)
        << one.template_name << "\n"
        << source << "\n"
        << one.json << "\nJinja2: " << one.error << "\nours: " << outcome.error;
  }
  EXPECT_GE(n_chats, 700);
  EXPECT_GE(n_texts, 2000);
  EXPECT_LE(n_unsupported, 40);

  // The cases must notice an environment that is set up otherwise.
  TemplateOptions no_trim;
  no_trim.trim_blocks = false;
  EXPECT_GT(count_different(oracle, no_trim), 20);
  TemplateOptions no_lstrip;
  no_lstrip.lstrip_blocks = false;
  EXPECT_GT(count_different(oracle, no_lstrip), 20);
}

}  // namespace
}  // namespace lockstep

#include "validation/exam/exam.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "engine/base/mapped_file.h"
#include "engine/base/progress.h"
#include "engine/base/table.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string digest_of(const std::string& text) {
  return digest128_hex(std::as_bytes(std::span(text.data(), text.size())));
}

std::vector<ExamItem> judge_all(const std::vector<Question>& questions,
                                const std::vector<RawAnswer>& answers, const Sandbox& sandbox) {
  std::vector<ExamItem> items;
  Progress progress("judging", questions.size(), "answers");
  for (size_t i = 0; i < questions.size(); ++i) {
    items.push_back({digest_of(questions[i].text), questions[i].kind, answers[i].text,
                     judge_answer(questions[i], answers[i].text, answers[i].cut, sandbox),
                     answers[i].tokens, answers[i].seconds});
    progress.advance();
  }
  return items;
}

// Every so many-th question again, backwards.
PairedReport run_control(const std::vector<Question>& questions, const ExamOptions& options,
                         const std::vector<ExamItem>& items, const Sandbox& sandbox) {
  const size_t n = questions.size();
  const size_t n_control = std::min(n, static_cast<size_t>(options.n_control));
  std::vector<Question> some;
  std::vector<ExamItem> first;
  for (size_t k = 0; k < n_control; ++k) {
    some.push_back(questions[k * n / n_control]);
    first.push_back(items[k * n / n_control]);
  }
  std::vector<size_t> order;
  for (size_t k = n_control; k-- > 0;) order.push_back(k);
  const std::vector<ExamItem> again =
      judge_all(some, ask_all(options.target, some, order), sandbox);
  return pair_runs(first, again, options.margin);
}

double seconds_of(const ExamReport& report) {
  double sum = 0;
  for (const ExamItem& item : report.items) sum += item.seconds;
  return sum;
}

int64_t tokens_of(const ExamReport& report) {
  int64_t sum = 0;
  for (const ExamItem& item : report.items) sum += item.tokens;
  return sum;
}

std::string paired_words(const PairedReport& report, double margin) {
  return fmt::format(
      "{} ({} questions, {} lost, {} gained; drop {:.2f} points, 90 % interval {:.2f} to {:.2f}, "
      "margin {:.2f}; McNemar p {:.3g}; smallest drop it could have seen {:.2f} points)",
      paired_verdict_name(report.verdict), report.n, report.lost, report.gained, 100 * report.drop,
      100 * report.interval.low, 100 * report.interval.high, 100 * margin, report.mcnemar_p,
      100 * report.smallest_drop);
}

Json paired_json(const PairedReport& report) {
  return {{"verdict", paired_verdict_name(report.verdict)},
          {"questions", report.n},
          {"lost", report.lost},
          {"gained", report.gained},
          {"drop", report.drop},
          {"interval_90", {report.interval.low, report.interval.high}},
          {"mcnemar_p", report.mcnemar_p},
          {"smallest_drop", report.smallest_drop}};
}

}  // namespace

int64_t ExamReport::count(Outcome outcome) const {
  return std::ranges::count(items, outcome, &ExamItem::outcome);
}

ExamReport run_exam(const std::vector<Question>& questions, const ExamOptions& options,
                    const Sandbox& sandbox) {
  const std::string refusal = sandbox.unavailable();
  if (!refusal.empty()) {
    fail_with(ExitCode::could_not_judge, "{}; answers are code and run nowhere else", refusal);
  }
  ExamReport report;
  const std::vector<ExamItem> earlier =
      options.against.empty() ? std::vector<ExamItem>() : read_store(options.against);
  report.target = options.target.spec;
  report.margin = options.margin;
  std::vector<size_t> order(questions.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  report.items = judge_all(questions, ask_all(options.target, questions, order), sandbox);
  report.agreement = judge_agreement(options.target, questions, report.items);
  if (options.n_control > 0) {
    report.control = run_control(questions, options, report.items, sandbox);
  }
  if (!options.against.empty()) {
    report.against_path = options.against.string();
    report.against = pair_runs(earlier, report.items, options.margin);
  }
  return report;
}

std::string store_lines(const std::vector<ExamItem>& items) {
  std::string lines;
  for (const ExamItem& item : items) {
    const Json json = {{"version", 1},
                       {"question", item.question},
                       {"kind", item.kind == QuestionKind::code ? "code" : "choice"},
                       {"answer", item.answer},
                       {"outcome", outcome_name(item.outcome)},
                       {"tokens", item.tokens},
                       {"seconds", item.seconds}};
    lines += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

std::vector<ExamItem> read_store(const std::filesystem::path& path) {
  std::istringstream lines(read_text_file(path));
  std::vector<ExamItem> items;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    try {
      const Json json = Json::parse(line);
      const Json version = json_field<Json>(json, "version");
      if (version != 1) fail("version {} is not 1", version.dump());
      const bool code = json_field<std::string>(json, "kind") == "code";
      items.push_back({json_field<std::string>(json, "question"),
                       code ? QuestionKind::code : QuestionKind::choice,
                       json_field<std::string>(json, "answer"),
                       parse_outcome(json_field<std::string>(json, "outcome")),
                       json_field<int64_t>(json, "tokens"), json_field<double>(json, "seconds")});
    } catch (const std::exception& error) {
      fail_with(ExitCode::could_not_judge, "{}:{}: {}", path.string(), number, json_problem(error));
    }
  }
  return items;
}

PairedReport pair_runs(const std::vector<ExamItem>& before, const std::vector<ExamItem>& now,
                       double margin) {
  std::map<std::string, bool> was_right;
  for (const ExamItem& item : before) was_right[item.question] = item.outcome == Outcome::right;
  int64_t lost = 0;
  int64_t gained = 0;
  for (const ExamItem& item : now) {
    const auto at = was_right.find(item.question);
    if (at == was_right.end() || was_right.size() != now.size()) {
      fail_with(ExitCode::could_not_judge,
                "the runs answer different questions; ask both the same");
    }
    const bool right = item.outcome == Outcome::right;
    lost += at->second && !right ? 1 : 0;
    gained += !at->second && right ? 1 : 0;
  }
  if (now.empty()) fail_with(ExitCode::could_not_judge, "the runs hold no question");
  return judge_pairs(static_cast<int64_t>(now.size()), lost, gained, margin);
}

std::string exam_text(const ExamReport& report) {
  const auto n = static_cast<double>(report.items.size());
  Table table({{"outcome"}, {"code", Align::right}, {"choice", Align::right}});
  const std::vector<std::pair<Outcome, const char*>> rows = {
      {Outcome::right, "right"},
      {Outcome::wrong, "wrong"},
      {Outcome::budget, "no answer, budget spent"},
      {Outcome::none, "no answer"},
      {Outcome::contained, "code failed or hit a wall"}};
  for (const auto& [outcome, words] : rows) {
    const auto count = [&](QuestionKind kind) {
      return std::to_string(std::ranges::count_if(report.items, [&, wanted = outcome](auto& item) {
        return item.kind == kind && item.outcome == wanted;
      }));
    };
    table.add_row({words, count(QuestionKind::code), count(QuestionKind::choice)});
  }
  std::string text = printable(report.target) + "\n" + table.render(false);
  text += fmt::format("score {:.1f} %; {:.3f} s and {:.1f} tokens an item\n",
                      100 * static_cast<double>(report.count(Outcome::right)) / n,
                      seconds_of(report) / n, static_cast<double>(tokens_of(report)) / n);
  const Agreement& agreement = report.agreement;
  if (agreement.n > 0) {
    text += fmt::format("recorded answers: {} of {} equal, {} ties, {} other\n", agreement.equal,
                        agreement.n, agreement.ties, agreement.other);
  }
  if (report.control) text += "control: " + paired_words(*report.control, report.margin) + "\n";
  if (report.against) {
    text += "against " + report.against_path + ": " + paired_words(*report.against, report.margin) +
            "\n";
  }
  return text;
}

std::string exam_json(const ExamReport& report) {
  Json json = {{"target", report.target}, {"questions", report.items.size()}};
  for (const Outcome outcome :
       {Outcome::right, Outcome::wrong, Outcome::budget, Outcome::none, Outcome::contained}) {
    json[std::string(outcome_name(outcome))] = report.count(outcome);
  }
  json["seconds"] = seconds_of(report);
  json["tokens"] = tokens_of(report);
  json["margin"] = report.margin;
  json["agreement"] = {{"questions", report.agreement.n},
                       {"equal", report.agreement.equal},
                       {"ties", report.agreement.ties},
                       {"other", report.agreement.other},
                       {"largest_tie_sigmas", report.agreement.largest_tie_sigmas}};
  if (report.control) json["control"] = paired_json(*report.control);
  if (report.against) json["against"] = paired_json(*report.against);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep

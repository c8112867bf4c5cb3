#include "bench/cpu/results.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/timer.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/base/table.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

bool same_series(const Series& a, const Series& b) {
  return a.section == b.section && a.name == b.name && a.n_ranks == b.n_ranks &&
         a.n_threads == b.n_threads && a.n_tokens == b.n_tokens && a.unit == b.unit;
}

Json spread_json(const std::vector<double>& values) {
  const Spread spread = spread_of(values);
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}, {"runs", values}};
}

Json series_json(const Series& series) {
  Json json = {{"name", series.name}, {"tp", series.n_ranks}, {"threads", series.n_threads}};
  if (series.n_tokens > 0) json["tokens"] = series.n_tokens;
  json["unit"] = series.unit;
  json["value"] = spread_json(series.values);
  if (series.roof != Roof::none) {
    json["roof"] = roof_name(series.roof);
    json["share"] = spread_json(series.shares);
    json["credible"] = series.credible();
  }
  if (series.floor) json["floor"] = *series.floor;
  return json;
}

std::string number_text(double value) {
  return value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

// "median (low-high)"; the median alone of one run.
std::string spread_text(const std::vector<double>& values) {
  const Spread spread = spread_of(values);
  if (values.size() == 1) return number_text(spread.median);
  return fmt::format("{} ({}-{})", number_text(spread.median), number_text(spread.low),
                     number_text(spread.high));
}

std::string percent_text(const std::vector<double>& shares) {
  const Spread spread = spread_of(shares);
  if (shares.size() == 1) return fmt::format("{:.0f} %", 100 * spread.median);
  return fmt::format("{:.0f} % ({:.0f}-{:.0f})", 100 * spread.median, 100 * spread.low,
                     100 * spread.high);
}

std::string threads_text(const Series& series) {
  return series.n_ranks == 1 ? std::to_string(series.n_threads)
                             : fmt::format("{}x{}", series.n_ranks, series.n_threads);
}

void print_roofs(const Results& results) {
  Table table({{"roof"}, {"threads", Align::right}, {"value", Align::right}, {"unit"}});
  for (const Series& series : results.series()) {
    if (series.section != "roof") continue;
    table.add_row({series.name, threads_text(series), spread_text(series.values), series.unit});
  }
  table.print();
}

std::vector<const Series*> of_section(const Results& results, const std::string& section) {
  std::vector<const Series*> chosen;
  for (const Series& series : results.series()) {
    if (series.section == section) chosen.push_back(&series);
  }
  return chosen;
}

// A row for every op and thread count, a column for every number of tokens.
void print_ops(const Results& results) {
  std::vector<const Series*> ops = of_section(results, "op");
  if (ops.empty()) return;
  std::set<int64_t> tokens;
  for (const Series* series : ops) tokens.insert(series->n_tokens);
  std::vector<TableColumn> columns = {{"op"}, {"threads", Align::right}};
  for (const int64_t n : tokens) columns.push_back({fmt::format("T={}", n), Align::right});
  Table table(columns);
  while (!ops.empty()) {
    const Series* first = ops.front();
    std::vector<std::string> row = {first->name, threads_text(*first)};
    const auto in_row = [&](const Series* s) {
      return s->name == first->name && s->n_threads == first->n_threads;
    };
    for (const int64_t n : tokens) {
      const auto at = std::find_if(ops.begin(), ops.end(),
                                   [&](const Series* s) { return in_row(s) && s->n_tokens == n; });
      row.push_back(
          at == ops.end() ? "" : percent_text((*at)->shares) + ((*at)->credible() ? "" : " ?"));
    }
    table.add_row(row);
    std::erase_if(ops, in_row);
  }
  fmt::print("\nOps: T=1..4 of the read bandwidth over as many bytes, T=64, 512 of the FMA peak\n");
  table.print();
}

void print_engine(const Results& results) {
  const std::vector<const Series*> engine = of_section(results, "engine");
  if (engine.empty()) return;
  Table table({{"engine"},
               {"prompt", Align::right},
               {"threads", Align::right},
               {"tokens/s", Align::right},
               {"share", Align::right},
               {"of"},
               {"floor", Align::right},
               {""}});
  for (const Series* series : engine) {
    const bool held = !series->floor || median(series->shares) >= *series->floor;
    table.add_row({series->name, std::to_string(series->n_tokens), threads_text(*series),
                   spread_text(series->values), percent_text(series->shares),
                   series->roof == Roof::fma ? "FMA peak" : "read bandwidth",
                   series->floor ? fmt::format("{:.0f} %", 100 * *series->floor) : "",
                   !series->credible() ? "not credible"
                   : held              ? ""
                                       : "below"});
  }
  fmt::print("\nEngine (floors are information: nothing fails here)\n");
  table.print();
}

}  // namespace

bool CpuBenchSettings::wants(const std::string& section) const {
  return std::find(sections.begin(), sections.end(), section) != sections.end();
}

std::string roof_name(Roof roof) {
  return roof == Roof::fma ? "fma" : roof == Roof::read ? "read" : "";
}

bool Series::credible() const {
  constexpr double kMostCredible = 1.1;  // sizes of read roofs are up to 10 % apart
  return std::all_of(shares.begin(), shares.end(), [](double s) { return s <= kMostCredible; });
}

void Results::add(const Series& key, double value, double share) {
  LOCKSTEP_CHECK(std::isfinite(value) && value > 0 && std::isfinite(share));
  auto at = std::find_if(series_.begin(), series_.end(),
                         [&](const Series& series) { return same_series(series, key); });
  if (at == series_.end()) at = series_.insert(series_.end(), key);
  at->values.push_back(value);
  if (key.roof != Roof::none) at->shares.push_back(share);
}

std::string results_json(const BenchContext& context, const Results& results) {
  Json json = {
      {"format", "lockstep-bench-cpu"},
      {"version", 1},
      {"cpu_target", context.cpu_target},
      {"cores", context.n_cores},
      {"load", context.load},
      {"machine", Json::parse(context.machine.to_json())},
      {"runs", context.n_runs},
      {"model", context.model},
      {"weight_bytes", {{"round", context.weights.round}, {"draft", context.weights.draft}}},
      {"roofs", Json::array()},
      {"ops", Json::array()},
      {"engine", Json::array()}};
  for (const Series& series : results.series()) {
    const char* list = series.section == "roof" ? "roofs"
                       : series.section == "op" ? "ops"
                                                : "engine";
    json[list].push_back(series_json(series));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

void print_results(const BenchContext& context, const Results& results) {
  fmt::print(
      "{}: {} read a round, {} more a draft; {} cores, {}; {} {}, median (lowest-highest)\n\n",
      printable(context.model), human_bytes(static_cast<double>(context.weights.round)),
      human_bytes(static_cast<double>(context.weights.draft)), context.n_cores, context.cpu_target,
      context.n_runs, context.n_runs == 1 ? "run" : "runs");
  fmt::print("machine: {}\n\n", context.machine.line());
  if (context.load > 0.5 * context.n_cores) {
    fmt::print(
        "This machine was busy (load {:.1f}): read shares as lower bounds, '?' as noise.\n\n",
        context.load);
  }
  print_roofs(results);
  print_ops(results);
  print_engine(results);
}

}  // namespace lockstep

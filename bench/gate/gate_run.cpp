#include "bench/gate/gate_run.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/median.h"

namespace lockstep {
namespace {

void run_quad(const PaceProcess& process, const std::array<bool, 4>& order,
              std::vector<PaceFigure>& figures) {
  for (PaceFigure& figure : figures) figure.quads.emplace_back();
  size_t n_a = 0;
  size_t n_b = 0;
  for (const bool candidate : order) {
    const std::vector<double> seconds = process(candidate);
    LOCKSTEP_CHECK(seconds.size() == figures.size());
    const size_t place = candidate ? n_b++ : n_a++;
    for (size_t i = 0; i < figures.size(); ++i) {
      if (!(seconds[i] > 0)) fail("{}: a time of {} s", figures[i].name, seconds[i]);
      PaceQuad& quad = figures[i].quads.back();
      (candidate ? quad.b : quad.a)[place] = seconds[i];
    }
  }
}

}  // namespace

double PaceFigure::change() const {
  return std::expm1(median(differences()));
}

std::vector<double> PaceFigure::differences() const {
  std::vector<double> values;
  for (const PaceQuad& quad : quads) values.push_back(quad.difference());
  return values;
}

PaceVerdict PaceRace::verdict() const {
  for (const PaceVerdict one : {PaceVerdict::slower, PaceVerdict::ambiguous, PaceVerdict::faster}) {
    const auto is_it = [&](const PaceFigure& figure) { return figure.verdict == one; };
    if (std::any_of(figures.begin(), figures.end(), is_it)) return one;
  }
  return PaceVerdict::same;
}

PaceRace run_race(const std::vector<std::string>& names, const PaceProcess& process, uint64_t seed,
                  const PaceRule& rule) {
  PaceRace race;
  for (const std::string& name : names) race.figures.push_back({name, PaceVerdict::ambiguous, {}});
  const double alpha = rule.alpha / static_cast<double>(names.size());
  process(false);
  process(true);
  int n_quads = 0;
  for (const int look : rule.looks) {
    for (; n_quads < look; ++n_quads) run_quad(process, quad_order(seed, n_quads), race.figures);
    bool decided = true;
    for (PaceFigure& figure : race.figures) {
      if (figure.verdict == PaceVerdict::ambiguous) {
        figure.verdict = judge_pace(figure.differences(), rule, alpha);
      }
      decided = decided && figure.verdict != PaceVerdict::ambiguous;
    }
    if (decided) break;
  }
  return race;
}

}  // namespace lockstep

#include "engine/base/json_problem.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::string problem_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return json_problem(error);
  }
  return "no exception";
}

TEST(JsonProblem, SaysInPlainWordsWhatTheLibraryFound) {
  const Json object = {{"name", 7}, {"list", {1}}};
  const std::pair<std::function<void()>, const char*> rows[] = {
      {[] { const Json json = Json::parse("{x"); }, "not valid JSON at column 2"},
      {[] { const Json json = Json::parse("{\n\"a\": 1,\n]"); },
       "not valid JSON at line 3, column 1"},
      {[] { const Json json = Json::parse(""); }, "not valid JSON at column 1"},
      {[&] { return void(object.at("q")); }, "'q' is missing"},
      {[&] { return void(object.at("name").get<std::string>()); },
       "a value must be string, but is number"},
      {[&] { return void(object.at("name").at("x")); },
       "a value of another type is needed where there is number"},
      {[&] { return void(object.at("list").at(3)); }, "a list is too short"},
      {[] { fail("a line of our own"); }, "a line of our own"}};
  for (const auto& [body, words] : rows) EXPECT_EQ(problem_of(body), words);
}

TEST(JsonProblem, FieldsAreNamed) {
  const Json object = {{"name", "a"}, {"ids", {1, "x"}}};
  EXPECT_EQ(json_field<std::string>(object, "name"), "a");
  EXPECT_EQ(problem_of([&] { json_field<int>(object, "name"); }),
            "'name': a value must be number, but is string");
  EXPECT_EQ(problem_of([&] { json_field<std::vector<int>>(object, "ids"); }),
            "'ids': a value must be number, but is string");
  EXPECT_EQ(problem_of([&] { json_field<int>(object, "q"); }), "'q' is missing");
  EXPECT_EQ(problem_of([&] { json_field<int>(Json(7), "q"); }), "not a JSON object");
}

}  // namespace
}  // namespace lockstep

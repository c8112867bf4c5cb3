#include "validation/receipt/waivers.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace lockstep {
namespace {

std::string waivers_json(const std::string& item) {
  return R"({"format": "lockstep-waivers", "format_version": 1, "waivers": [)" + item + "]}";
}

std::string item(const std::string& subject, const std::string& issued,
                 const std::string& expires) {
  return "{" + subject + R"(, "owner": "ada", "reason": "no GPU at hand", "issued": ")" + issued +
         R"(", "expires": ")" + expires + "\"}";
}

std::string error_of(const std::string& json) {
  try {
    parse_waivers(json, "w.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Waivers, HoldThroughTheirLastDay) {
  const auto waivers =
      parse_waivers(waivers_json(item(R"("op": "linear")", "2026-01-31", "2026-02-14") + "," +
                                 item(R"("check": "bench-gate")", "2026-01-31", "2026-02-01")),
                    "w.json");
  ASSERT_EQ(waivers.size(), 2u);
  EXPECT_EQ(waivers[0].subject(), "op linear");
  EXPECT_EQ(waivers[1].subject(), "check bench-gate");
  EXPECT_EQ(waiver_for_op(waivers, "linear", "2026-02-14"), &waivers[0]);
  EXPECT_EQ(waiver_for_op(waivers, "linear", "2026-02-15"), nullptr);
  EXPECT_EQ(waiver_for_op(waivers, "rope", "2026-02-01"), nullptr);
  EXPECT_EQ(waiver_for_check(waivers, "bench-gate", "2026-02-01"), &waivers[1]);
  EXPECT_EQ(waiver_for_check(waivers, "linear", "2026-02-01"), nullptr);
}

TEST(Waivers, RefuseByName) {
  EXPECT_EQ(error_of(waivers_json(item(R"("op": "a")", "2026-01-31", "2026-02-14"))), "no error");
  EXPECT_NE(error_of(waivers_json(item(R"("op": "a")", "2026-01-31", "2026-02-15")))
                .find("more than 14 days"),
            std::string::npos);
  EXPECT_NE(error_of(waivers_json(item(R"("op": "a")", "2026-02-30", "2026-03-01"))).find("dates"),
            std::string::npos);
  EXPECT_NE(error_of(waivers_json(item(R"("op": "a", "check": "b")", "2026-01-01", "2026-01-02")))
                .find("one of them"),
            std::string::npos);
  EXPECT_NE(error_of(waivers_json(R"({"op": "a"})")).find("owner"), std::string::npos);
  EXPECT_NE(error_of("[]").find("is no list of waivers"), std::string::npos);
  EXPECT_NE(error_of(R"({"format": "lockstep-waivers", "format_version": 2, "waivers": []})")
                .find("version 2"),
            std::string::npos);
}

TEST(Waivers, NoFileIsNoWaiver) {
  EXPECT_TRUE(read_waivers("/nonexistent/waivers.json").empty());
  EXPECT_EQ(utc_now().size(), 20u);
  EXPECT_EQ(utc_now().substr(0, 10), utc_today());
}

}  // namespace
}  // namespace lockstep

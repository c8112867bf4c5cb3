#include "engine/base/listening_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "engine/base/error.h"

namespace lockstep {
namespace {

std::string error_of(const std::string& script, const std::string& awaited,
                     std::chrono::milliseconds bound = std::chrono::minutes(1)) {
  try {
    const ListeningProcess process({"sh", "-c", script}, awaited, bound);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::could_not_judge);
    return error.what();
  }
  return "";
}

TEST(ListeningProcess, KnowsItsPortAndItsLog) {
  const ListeningProcess process(
      {"sh", "-c",
       "echo loading >&2; echo '{\"event\":\"listening\",\"port\":4711}'; "
       "echo '{\"event\":\"ready\"}'; exec sleep 60"},
      "\"event\":\"ready\"");
  EXPECT_EQ(process.port(), 4711);
  EXPECT_EQ(process.log(), "loading\n");
  EXPECT_TRUE(process.process().running());
  process.process().send_signal(SIGTERM);
  EXPECT_EQ(process.process().wait(), 128 + SIGTERM);
}

TEST(ListeningProcess, SaysWhyItDidNotComeUp) {
  EXPECT_NE(error_of("echo no model >&2; exit 1", "listening").find("no model"), std::string::npos);
  EXPECT_NE(error_of("echo slow >&2; exec sleep 60", "listening", std::chrono::milliseconds(300))
                .find("slow"),
            std::string::npos);
  EXPECT_NE(error_of("echo listening; exec sleep 60", "listening").find("says no port"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep

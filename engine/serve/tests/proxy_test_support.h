// Tests of lockstep-serve with ranks that need no engine.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/serve/tests/server_under_test.h"

namespace lockstep::serve {

class ProxyTest : public ::testing::Test {
 protected:
  void TearDown() override { expect_no_report(); }

  void expect_no_report() {
    if (!server_) return;
    EXPECT_EQ(server_->sanitizer_reports(), std::vector<std::string>());
  }

  // --model is what the fake ranks look at.
  ServerUnderTest& start(std::vector<std::string> flags = {}, bool wait = true,
                         const std::string& model = "fake") {
    flags.insert(flags.begin(), {"--model=" + model, "--rank-program=" + fake_rank_});
    expect_no_report();  // of the one before
    server_ = std::make_unique<ServerUnderTest>(program_, flags, wait);
    return *server_;
  }
  ServerUnderTest& server() { return *server_; }

  size_t count(const std::string& text) { return server_->log_lines(text).size(); }
  bool logged(const std::string& text, size_t times = 1) {
    return eventually([&] { return count(text) >= times; });
  }

  const std::filesystem::path self_ = std::filesystem::read_symlink("/proc/self/exe");
  const std::string fake_rank_ = self_.parent_path() / "fake_rank";
  const std::string program_ = self_.parent_path().parent_path() / "bin" / "lockstep-serve";
  std::unique_ptr<ServerUnderTest> server_;
};

}  // namespace lockstep::serve

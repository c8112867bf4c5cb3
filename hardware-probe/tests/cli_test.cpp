#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;

ProcessResult probe(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(LOCKSTEP_BIN_DIR) + "/lockstep-probe");
  return run_process(arguments, std::chrono::minutes(2));
}

class ProbeCli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::temp_directory_path() / ("lockstep-probe-test-" + std::to_string(::getpid()) +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(ProbeCli, ExitCodesFollowTheVerdict) {
  EXPECT_EQ(probe({"--sim", "V100-SXM2-32GB"}).exit_code, 0);
  EXPECT_EQ(probe({"--sim", "V100-SXM2-32GB,bad-sm", "--quick"}).exit_code, 1);
  EXPECT_EQ(probe({"--sim", "V100-SXM2-32GB,memory-hang"}).exit_code, 3);
  EXPECT_EQ(probe({"--sim", "V100-SXM2-32GB,ecc-wiped"}).exit_code, 5);
  EXPECT_NE(probe({"--sim", "V100-SXM2-32GB"}).stdout_text.find("ACCEPT (quick)"),
            std::string::npos);
  EXPECT_NE(probe({"--sim", "V100-SXM2-32GB", "--standard"}).stdout_text.find("ACCEPT (standard)"),
            std::string::npos);
}

TEST_F(ProbeCli, UsageErrorsAreOneLineAndExitTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--sim", "NO-SUCH"},
      {"--sim", ""},
      {"--replay", ""},
      {"--sim", "T4", "--nonce", ""},
      {"verify", ""},
      {"--sim", "V100-SXM2-32GB,no-such"},
      {"--quick", "--deep", "--sim", "T4"},
      {"--no-such"},
      {"--sim", "T4", "--claim", "NO-SUCH"},
      {"--replay", path("absent.json")},
      {"verify", path("absent.json")},
      {"verify"},
      {"--sim", "T4", "--html", "/proc/no/such/place.html"},
      {"--sim", "T4", "--key", "/dev/null"}};
  for (const auto& arguments : wrong) {
    const ProcessResult result = probe(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments.front();
    EXPECT_EQ(std::count(result.stderr_text.begin(), result.stderr_text.end(), '\n'), 1)
        << result.stderr_text;
  }
}

TEST_F(ProbeCli, FilesThatAreNoRecordAreRefusedInPlainWords) {
  const std::pair<const char*, const char*> rows[] = {
      {"{x", "not a probe record: not valid JSON at column 2"},
      {"7", "no JSON object"},
      {R"({"steps": 7, "gpus": []})", "not a probe record: "}};
  for (const auto& [text, words] : rows) {
    write_file_atomically(path("bad.json"), std::string(text));
    const ProcessResult result = probe({"--replay", path("bad.json")});
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_NE(result.stderr_text.find("bad.json: " + std::string(words)), std::string::npos)
        << result.stderr_text;
    EXPECT_EQ(result.stderr_text.find("json.exception"), std::string::npos) << result.stderr_text;
  }
}

// Before the machine is probed, which takes hours in the deep mode.
TEST_F(ProbeCli, FilesThatCannotBeWrittenAreRefusedAtOnce) {
  for (const char* flag : {"--report", "--html", "--profile"}) {
    const ProcessResult result =
        probe({"--sim", "T4", "--record", path("rec.json"), flag, "/proc/no/such/place"});
    EXPECT_EQ(result.exit_code, 2) << flag;
    EXPECT_NE(result.stderr_text.find(std::string(flag) + " /proc/no/such/place: /proc/no/such is"),
              std::string::npos)
        << result.stderr_text;
    EXPECT_FALSE(fs::exists(path("rec.json"))) << flag;
  }
}

TEST_F(ProbeCli, AnEmptySimulationIsRefusedWithThoseThatThereAre) {
  const std::string words = probe({"--sim", ""}).stderr_text;
  for (const char* needed : {"--sim: is empty: give", "CARD[*1][+CARD][,FAULT...]",
                             "V100-SXM2-32GB", "H200-SXM", "--list-faults"})
    EXPECT_NE(words.find(needed), std::string::npos) << words;
}

TEST_F(ProbeCli, ListsCardsAndFaults) {
  const std::string cards = probe({"--list-cards"}).stdout_text;
  for (const char* card : {"V100-SXM2-32GB", "V100-PCIE-32GB", "PG500-216", "PG503-216",
                           "V100S-PCIE-32GB", "RTX-4090-48G", "H200-SXM"})
    EXPECT_NE(cards.find(card), std::string::npos) << card;
  const std::string faults = probe({"--list-faults"}).stdout_text;
  for (const char* fault :
       {"bad-sm", "stuck-bit", "hbm-slow-chunk", "p2p-mirror", "p2p-slow", "p2p-drop", "pcie-x1",
        "throttle", "throttle-second", "ecc-wiped", "retired-pages", "wrong-clock", "remarked",
        "nvlink-errors", "power-brake", "lost-mid-run"})
    EXPECT_NE(faults.find(fault), std::string::npos) << fault;
}

TEST_F(ProbeCli, ReportIsSignedVerifiedReplayedAndCompared) {
  const ProcessResult made =
      probe({"--sim", "PG500-216,p2p-slow", "--nonce", "buyer-7", "--key", path("key.pem"),
             "--report", path("r.json"), "--record", path("rec.json"), "--html", path("r.html"),
             "--profile", path("p.json"), "--json"});
  EXPECT_EQ(made.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(made.stdout_text).at("verdict").at("name"), "REJECT");
  EXPECT_EQ(read_text_file(path("r.json")), made.stdout_text);
  struct stat key {};
  ASSERT_EQ(::stat(path("key.pem").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777u, 0600u);
  const ProcessResult verified = probe({"verify", path("r.json"), "--nonce", "buyer-7"});
  EXPECT_EQ(verified.exit_code, 4) << verified.stdout_text;
  EXPECT_NE(verified.stdout_text.find("SIMULATED"), std::string::npos) << verified.stdout_text;
  EXPECT_NE(verified.stdout_text.find("its verdict is REJECT (quick)"), std::string::npos);
  EXPECT_EQ(probe({"verify", path("r.json"), "--nonce", "buyer-8"}).exit_code, 1);
  EXPECT_EQ(probe({"--replay", path("r.json")}).exit_code, 1);
  EXPECT_EQ(probe({"--replay", path("rec.json")}).exit_code, 1);
  EXPECT_EQ(probe({"--replay", path("r.json"), "--compare", path("rec.json")}).exit_code, 1);
  const ProcessResult other = probe({"--sim", "V100-SXM2-32GB", "--compare", path("r.json")});
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_NE(other.stdout_text.find("1. Memory clock 877 against 1107"), std::string::npos)
      << other.stdout_text;
  std::string text = made.stdout_text;
  text.replace(text.find("REJECT"), 6, "ACCEPT");
  write_file_atomically(path("bad.json"), text);
  EXPECT_EQ(probe({"verify", path("bad.json")}).exit_code, 1);
}

// On a machine without a GPU: no crash, no false verdict.
TEST_F(ProbeCli, WithoutADriverTheVerdictIsInconclusive) {
  if (fs::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "this machine has a driver";
  const ProcessResult result = probe({"--record", path("rec.json")});
  EXPECT_EQ(result.exit_code, 3) << result.stdout_text << result.stderr_text;
  EXPECT_NE(result.stdout_text.find("no CUDA driver"), std::string::npos) << result.stdout_text;
  EXPECT_TRUE(fs::exists(path("rec.json")));
}

TEST_F(ProbeCli, ThePortableFileNeedsNoNewerGlibcThan231AndNoOtherLibrary) {
  if (LOCKSTEP_PROBE_PORTABLE == 0) GTEST_SKIP() << "built with the system's compiler";
  const std::string binary = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-probe";
  const std::string symbols = run_process({"readelf", "-W", "--version-info", binary}).stdout_text;
  int highest = 0;
  for (size_t at = symbols.find("GLIBC_2."); at != std::string::npos;
       at = symbols.find("GLIBC_2.", at + 1))
    highest = std::max(highest, std::atoi(symbols.c_str() + at + 8));
  EXPECT_GT(highest, 0);
  EXPECT_LE(highest, 31);
  const std::string dynamic = run_process({"readelf", "-W", "-d", binary}).stdout_text;
  for (size_t at = dynamic.find("(NEEDED)"); at != std::string::npos;
       at = dynamic.find("(NEEDED)", at + 1)) {
    const size_t open = dynamic.find('[', at);
    const std::string library = dynamic.substr(open + 1, dynamic.find(']', open) - open - 1);
    const bool known = library == "libc.so.6" || library == "libm.so.6" ||
                       library == "libdl.so.2" || library == "libpthread.so.0" ||
                       library == "ld-linux-x86-64.so.2";
    EXPECT_TRUE(known) << library;
  }
}

}  // namespace
}  // namespace lockstep::probe

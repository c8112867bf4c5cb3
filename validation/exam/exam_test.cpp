// The exam: hostile answers stay inside, right ones are told from wrong ones, and pairs of runs get
// the verdict that their numbers allow.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/philox.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/exam/exam.h"
#include "validation/testing/fake_endpoint.h"
#include "validation/testing/running_server.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::FakeAnswers;
using testing::FakeEndpoint;

const std::string kExam = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-exam";

SandboxLimits quick_limits() {
  SandboxLimits limits;
  limits.wall = std::chrono::seconds(20);
  limits.cpu_s = 1;
  return limits;
}

const Sandbox& sandbox() {
  static const Sandbox instance(kExam, quick_limits());
  return instance;
}

SandboxResult run(const std::string& code) {
  return sandbox().run_python(code, "");
}

TEST(SandboxTest, RunsWhatIsHarmless) {
  ASSERT_EQ(sandbox().unavailable(), "");
  const SandboxResult result = run("import math\nprint(math.factorial(20), open('/input').read())");
  EXPECT_EQ(result.end, SandboxEnd::finished);
  EXPECT_EQ(result.output, "2432902008176640000 \n\n");
  EXPECT_EQ(run("raise ValueError(3)").end, SandboxEnd::failed);
}

TEST(SandboxTest, NoProcessesAndNoThreads) {
  EXPECT_NE(run("import os\nos.fork()").output.find("PermissionError"), std::string::npos);
  EXPECT_NE(run("import os\nwhile True: os.fork()").output.find("PermissionError"),
            std::string::npos);
  EXPECT_NE(run("import _thread\n_thread.start_new_thread(print, ())").output.find("can't start"),
            std::string::npos);
  EXPECT_EQ(run("import os\nos.kill(-1, 9)").end, SandboxEnd::failed);
  EXPECT_NE(run("import ctypes\n"
                "libc = ctypes.CDLL(None, use_errno=True)\n"
                "print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())")
                .output.find("-1 1"),
            std::string::npos);
}

TEST(SandboxTest, NoNetwork) {
  for (const char* family : {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}) {
    const SandboxResult result =
        run(std::string("import _socket\n_socket.socket(_socket.") + family + ", 1)");
    EXPECT_NE(result.output.find("PermissionError"), std::string::npos) << family << result.output;
  }
}

TEST(SandboxTest, NoFilesButItsOwn) {
  const TempDir dir;
  write_file_atomically(dir.path() / "secret", std::string("x"));
  const std::string secret = (dir.path() / "secret").string();
  EXPECT_NE(run("open('" + secret + "')").output.find("FileNotFoundError"), std::string::npos);
  for (const char* code :
       {"open('/x', 'w')", "open('/input', 'a')", "open('/usr/x', 'w')",
        "import os\nos.mkdir('/x')", "import os\nos.unlink('/input')",
        "import os\nos.rename('/input', '/y')", "import os\nos.symlink('/usr', '/z')",
        "import os\nos.chmod('/input', 0)", "import os\nos.truncate('/input', 0)",
        "import os\nos.memfd_create('x')"}) {
    const SandboxResult result = run(code);
    EXPECT_EQ(result.end, SandboxEnd::failed) << code;
    EXPECT_NE(result.output.find("Error"), std::string::npos) << code << result.output;
  }
  EXPECT_EQ(run("import os\nprint(sorted(os.listdir('/')))").output.find("home"),
            std::string::npos);
  EXPECT_EQ(read_text_file(dir.path() / "secret"), "x");
}

TEST(SandboxTest, LimitsOnMemoryTimeAndOutput) {
  EXPECT_NE(run("x = bytearray(10 << 30)").output.find("MemoryError"), std::string::npos);
  // Its memory or its second, whichever is gone first.
  EXPECT_NE(run("x = []\nwhile True: x.append(bytearray(1 << 20))").end, SandboxEnd::finished);
  EXPECT_EQ(run("while True: pass").end, SandboxEnd::out_of_time);
  SandboxLimits asleep = quick_limits();
  asleep.wall = std::chrono::seconds(2);
  EXPECT_EQ(Sandbox(kExam, asleep).run_python("import time\ntime.sleep(1000)", "").end,
            SandboxEnd::out_of_time);
  const SandboxResult loud = run("while True: print('x' * 4096)");
  EXPECT_NE(loud.end, SandboxEnd::finished);
  EXPECT_LE(loud.output.size(), size_t{64} << 10);
  EXPECT_NE(run("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))").end,
            SandboxEnd::finished);
}

TEST(SandboxTest, AMissingWallIsRefused) {
  EXPECT_NE(Sandbox("/nonexistent").unavailable(), "");
  const TempDir dir;
  const ProcessResult result = run_process({kExam, "--contained", (dir.path() / "gone").string()});
  EXPECT_EQ(result.exit_code, kNoWalls);
  EXPECT_TRUE(result.stderr_text.starts_with("sandbox: ")) << result.stderr_text;
}

Question code_question() {
  Question question;
  question.kind = QuestionKind::code;
  question.text = "twice";
  question.function = "f";
  question.arguments = "[[1],[-3]]";
  question.expected = "[2,-6]";
  return question;
}

Outcome judge(const Question& question, const std::string& answer, bool cut = false) {
  return judge_answer(question, answer, cut, sandbox());
}

TEST(Answers, Code) {
  const Question q = code_question();
  EXPECT_EQ(judge(q, "```python\ndef f(x):\n    return 2 * x\n```"), Outcome::right);
  EXPECT_EQ(judge(q, "def f(x): return x + x"), Outcome::right);
  EXPECT_EQ(judge(q, "Sure:\n```\ndef f(x): return 2.0 * x\n```\nDone."), Outcome::right);
  EXPECT_EQ(judge(q, "```python\ndef f(x):\n    return 3 * x\n```"), Outcome::wrong);
  EXPECT_EQ(judge(q, "```python\ndef g(x):\n    return 2 * x\n```"), Outcome::contained);
  EXPECT_EQ(judge(q, "I do not know"), Outcome::contained);
  EXPECT_EQ(judge(q, "```python\ndef f(x):\n    return 2 *", true), Outcome::budget);
  EXPECT_EQ(judge(q, "```python\ndef f(x):\n    return 2 * x\n```\nThis fun", true),
            Outcome::right);
  EXPECT_EQ(judge(q, "", true), Outcome::budget);
  EXPECT_EQ(judge(q, " \n", false), Outcome::none);
  // What it prints is no result: the expected values never enter the sandbox.
  EXPECT_EQ(judge(q, "def f(x): return 0\nprint('RESULT [2, -6]')"), Outcome::wrong);
  EXPECT_EQ(judge(q, "import os\ndef f(x):\n    os._exit(0)"), Outcome::contained);
  EXPECT_EQ(judge(q, "import os\nwhile True: os.fork()"), Outcome::contained);
}

TEST(Answers, Choice) {
  Question q;
  q.answer = "85 is A";
  EXPECT_EQ(judge(q, " 85 is A\n"), Outcome::right);
  EXPECT_EQ(judge(q, "85 is B"), Outcome::wrong);
  EXPECT_EQ(judge(q, "85 is A because"), Outcome::wrong);
  EXPECT_EQ(judge(q, "85 is", true), Outcome::budget);
}

TEST(Paired, KnownValues) {
  EXPECT_DOUBLE_EQ(mcnemar_p(0, 0), 1);
  EXPECT_DOUBLE_EQ(mcnemar_p(1, 1), 1);
  EXPECT_NEAR(mcnemar_p(6, 0), 2 / 64.0, 1e-12);
  EXPECT_NEAR(mcnemar_p(8, 2), 2 * 56 / 1024.0, 1e-12);
  const Interval none = tango_interval(300, 0, 0, 1.6448536269514722);
  EXPECT_NEAR(none.high, 2.70554 / (300 + 2.70554), 1e-4) << "z^2 / (n + z^2)";
  EXPECT_NEAR(none.low, -none.high, 1e-9);
  const Interval one = tango_interval(100, 10, 4, 1.959964);
  const Interval mirrored = tango_interval(100, 4, 10, 1.959964);
  EXPECT_NEAR(one.low, -mirrored.high, 1e-9);
  EXPECT_LT(one.low, 0.06);
  EXPECT_GT(one.high, 0.06);
}

TEST(Paired, Verdicts) {
  EXPECT_EQ(judge_pairs(300, 0, 0, 0.02).verdict, PairedVerdict::same);
  EXPECT_EQ(judge_pairs(300, 1, 1, 0.02).verdict, PairedVerdict::same);
  EXPECT_EQ(judge_pairs(300, 4, 2, 0.02).verdict, PairedVerdict::undecided);
  EXPECT_EQ(judge_pairs(300, 15, 1, 0.02).verdict, PairedVerdict::worse);
  EXPECT_EQ(judge_pairs(300, 1, 15, 0.02).verdict, PairedVerdict::better);
  EXPECT_EQ(judge_pairs(20, 0, 0, 0.02).verdict, PairedVerdict::undecided) << "too few questions";
  EXPECT_NEAR(judge_pairs(300, 0, 0, 0.02).smallest_drop, 0.024, 0.004);
  EXPECT_GT(judge_pairs(300, 10, 10, 0.02).smallest_drop,
            judge_pairs(300, 0, 0, 0.02).smallest_drop);
}

// The interval holds the true drop as often as it says, and the smallest drop is seen as often.
TEST(Paired, CoverageAndPowerAreMeasured) {
  PhiloxStream random(7);
  const double smallest = smallest_drop(300, 3, 3);
  int covered = 0;
  int seen = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    int lost = 0;
    int gained = 0;
    for (int i = 0; i < 300; ++i) {
      const double u = random.next_uniform();
      lost += u < smallest + 0.01 ? 1 : 0;
      gained += u > 0.99 ? 1 : 0;
    }
    const Interval interval = tango_interval(300, lost, gained, 1.6448536269514722);
    covered += interval.low <= smallest && smallest <= interval.high ? 1 : 0;
    seen += mcnemar_p(lost, gained) <= 0.1 && lost > gained ? 1 : 0;
  }
  // 90 % and 80 %, five standard deviations of 400 trials apart.
  EXPECT_GE(covered, 330);
  EXPECT_GE(seen, 280);
}

class ExamMain : public ::testing::Test {
 protected:
  ExamMain() {
    std::string lines;
    for (int i = 0; i < 160; ++i) {
      lines +=
          nlohmann::json{{"kind", "choice"}, {"q", "q" + std::to_string(i)}, {"a", "yes"}}.dump() +
          "\n";
    }
    write_file_atomically(dir_.path() / "questions.jsonl", lines);
  }

  // An endpoint that answers "no" to the first `n_wrong` questions.
  static FakeAnswers answers(int n_wrong) {
    FakeAnswers made;
    made.chat = [n_wrong](const std::string& question) {
      return std::stoi(question.substr(1)) < n_wrong ? "no" : "yes";
    };
    return made;
  }

  ProcessResult exam(const FakeAnswers& made, std::vector<std::string> more) {
    const FakeEndpoint endpoint(made);
    std::vector<std::string> argv = {kExam, endpoint.url(), "--json", "--questions",
                                     (dir_.path() / "questions.jsonl").string()};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(120));
  }

  TempDir dir_;
};

TEST_F(ExamMain, PairsWithAnEarlierRun) {
  const std::string store = (dir_.path() / "before.jsonl").string();
  const ProcessResult first = exam(answers(5), {"--store", store});
  ASSERT_EQ(first.exit_code, 0) << first.stderr_text;
  const auto json = nlohmann::json::parse(first.stdout_text);
  EXPECT_EQ(json["right"], 155);
  EXPECT_EQ(json["wrong"], 5);
  EXPECT_EQ(json["control"]["lost"], 0);
  EXPECT_EQ(json["control"]["questions"], 60);
  EXPECT_EQ(exam(answers(5), {"--against", store}).exit_code, 0);
  const ProcessResult worse = exam(answers(40), {"--against", store});
  EXPECT_EQ(worse.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(worse.stdout_text)["against"]["lost"], 35);
  const ProcessResult undecided = exam(answers(7), {"--against", store});
  EXPECT_EQ(undecided.exit_code, 3);
  EXPECT_EQ(nlohmann::json::parse(undecided.stdout_text)["against"]["verdict"], "UNDECIDED");
  EXPECT_EQ(exam(answers(5), {"--against", store, "--limit", "10"}).exit_code, 3)
      << "other questions";
}

TEST_F(ExamMain, BudgetAndUnsteadyEnginesAreCountedApart) {
  FakeAnswers made = answers(0);
  made.chat_max_tokens = 2;
  const auto json = nlohmann::json::parse(exam(made, {"--control", "0"}).stdout_text);
  EXPECT_EQ(json["budget"], 160);
  EXPECT_EQ(json["wrong"], 0);
  FakeAnswers unsteady;
  auto calls = std::make_shared<int>(0);
  unsteady.chat = [calls](const std::string&) { return ++*calls <= 160 ? "yes" : "no"; };
  EXPECT_EQ(exam(unsteady, {}).exit_code, 4);
}

// The file, the line and what is wrong with it, in no library's words.
TEST(ExamFiles, AreRefusedInPlainWords) {
  const TempDir dir;
  const std::string path = (dir.path() / "x.jsonl").string();
  const auto refusal = [&](const std::string& line, const auto& read) -> std::string {
    write_file_atomically(path, "\n" + line + "\n");
    try {
      read(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::could_not_judge);
      return error.what();
    }
    return "no error";
  };
  const auto questions = [&](const std::string& line) {
    return refusal(line, [](const std::string& file) { return read_questions(file); });
  };
  const auto store = [&](const std::string& line) {
    return refusal(line, [](const std::string& file) { return read_store(file); });
  };
  EXPECT_EQ(questions("{x"), path + ":2: not valid JSON at column 2");
  EXPECT_EQ(questions("7"), path + ":2: not a JSON object");
  EXPECT_EQ(questions(R"({"kind": "choice"})"), path + ":2: 'q' is missing");
  EXPECT_EQ(questions(R"({"kind": "choice", "q": 7, "a": "yes"})"),
            path + ":2: 'q': a value must be string, but is number");
  EXPECT_EQ(questions(R"({"kind": "code", "q": "q", "a": "", "name": "f", "tests": [[1]]})"),
            path + ":2: a list is too short");
  EXPECT_EQ(store("{}"), path + ":2: 'version' is missing");
  EXPECT_EQ(store(R"({"version": 1, "kind": "code"})"), path + ":2: 'question' is missing");
}

// Programs that are no engine.
TEST(ExamPrograms, SayHowTheyEnded) {
  const std::pair<const char*, const char*> rows[] = {
      {"/bin/false", "ended with exit code 1: /bin/false printed no reason"},
      {"/bin/true", "ended with exit code 0 without writing its results: /bin/true must take"}};
  for (const auto& [program, words] : rows) {
    const ProcessResult result = run_process(
        {kExam, program, "--questions", LOCKSTEP_GOLDEN_DIR "/oracle/exam.jsonl", "--limit", "1"},
        std::chrono::seconds(60));
    EXPECT_EQ(result.exit_code, 3) << program;
    EXPECT_NE(result.stderr_text.find(words), std::string::npos) << result.stderr_text;
  }
}

// Before the first question, not behind the last.
TEST(ExamPrograms, AreNotAskedWhenTheStoreCannotBeWritten) {
  const ProcessResult result =
      run_process({kExam, "/bin/false", "--store", "/nonexistent/store"}, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stderr_text.find("--store /nonexistent/store: /nonexistent is no folder"),
            std::string::npos)
      << result.stderr_text;
}

TEST(ExamGolden, TheEngineGivesTheRecordedAnswers) {
  const std::string golden = LOCKSTEP_GOLDEN_DIR;
  const ProcessResult result =
      run_process({kExam, std::string(LOCKSTEP_BIN_DIR) + "/lockstep-generate --precision bf16",
                   "--model", golden + "/tiny-qwen3_5", "--questions",
                   golden + "/oracle/exam.jsonl", "--limit", "12", "--control", "4", "--json"},
                  std::chrono::seconds(200));
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
  const auto json = nlohmann::json::parse(result.stdout_text);
  EXPECT_EQ(json["agreement"]["other"], 0) << json;
  EXPECT_GE(json["right"], 11);
}

// Planted: another engine's answers are neither equal nor ties.
TEST(ExamGolden, AFaultGivesOtherAnswers) {
  const std::string golden = LOCKSTEP_GOLDEN_DIR;
  const ProcessResult result =
      run_process({kExam,
                   std::string(LOCKSTEP_BIN_DIR) +
                       "/lockstep-generate --precision bf16 --fault gdn.decay-missing",
                   "--model", golden + "/tiny-qwen3_5", "--questions",
                   golden + "/oracle/exam.jsonl", "--limit", "4", "--control", "0", "--json"},
                  std::chrono::seconds(200));
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
  const auto json = nlohmann::json::parse(result.stdout_text);
  EXPECT_GE(json["agreement"]["other"], 3) << json;
}

// The same questions over HTTP, to the server of this project.
TEST(ExamGolden, AServerGivesTheRecordedAnswers) {
  const testing::RunningServer server(LOCKSTEP_BIN_DIR, LOCKSTEP_GOLDEN_DIR, {"--precision=fp32"});
  const ProcessResult result =
      run_process({kExam, server.url(), "--questions", LOCKSTEP_GOLDEN_DIR "/oracle/exam.jsonl",
                   "--limit", "6", "--control", "2", "--json"},
                  std::chrono::seconds(200));
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
  const auto json = nlohmann::json::parse(result.stdout_text);
  EXPECT_EQ(json["agreement"]["equal"], 6) << json;
  EXPECT_GT(json["tokens"].get<int64_t>(), 6) << json;
}

}  // namespace
}  // namespace lockstep

// Each rule sees its planted violation, at its line, and leaves clean text alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ci/tidy/code_view.h"
#include "ci/tidy/rules.h"
#include "engine/base/error.h"
#include "engine/base/process.h"

namespace lockstep::tidy {
namespace {

const RuleData& data() {
  static const RuleData rules = load_rule_data(LOCKSTEP_SOURCE_DIR "/ci/tidy/rules.json");
  return rules;
}

Tree make_tree(std::vector<std::pair<std::string, std::string>> files) {
  std::sort(files.begin(), files.end());
  Tree tree;
  for (auto& [path, text] : files) tree.files.push_back(make_file(path, text));
  return tree;
}

std::string run(Findings (*check)(const Tree&, const RuleData&),
                const std::vector<std::pair<std::string, std::string>>& files) {
  return to_text(check(make_tree(files), data()));
}

// A folder that is gone at the end of the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-tidy-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail("{}: cannot be made", name);
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

TEST(Planted, IncludeUpTheLayers) {
  const std::string ops = "#pragma once\n";
  EXPECT_EQ(run(check_include_matrix,
                {{"engine/base/a.h", "\n#include \"engine/ops/b.h\"\n"}, {"engine/ops/b.h", ops}}),
            "engine/base/a.h:2: engine/base may not include engine/ops/b.h: includes go down the "
            "layers\n");
  EXPECT_EQ(run(check_include_matrix,
                {{"engine/ops/b.h", "#include \"engine/base/a.h\"\n"}, {"engine/base/a.h", ""}}),
            "");
}

TEST(Planted, IncludeOfTheEnginesInsides) {
  const std::string target = "engine/rank/engine.h";
  for (const char* judge : {"validation/x.cpp", "hardware-probe/x.cpp", "faultinject/x.cpp"}) {
    const std::string report =
        run(check_include_matrix, {{judge, "#include \"" + target + "\"\n"}, {target, ""}});
    EXPECT_TRUE(report.starts_with(std::string(judge) + ":1: ")) << report;
  }
  EXPECT_EQ(run(check_include_matrix, {{"validation/x.cpp", "#include \"engine/model/config.h\"\n"},
                                       {"engine/model/config.h", ""}}),
            "");
}

TEST(Planted, IncludeOfNoFileAndOfAFolderWithoutARow) {
  EXPECT_EQ(run(check_include_matrix, {{"engine/base/a.cpp", "#include \"a.h\"\n"}}),
            "engine/base/a.cpp:1: \"a.h\" is no file of this repository; name it from the root\n");
  EXPECT_EQ(run(check_include_matrix,
                {{"extras/a.cpp", "#include \"engine/base/a.h\"\n"}, {"engine/base/a.h", ""}}),
            "extras/a.cpp:1: extras/a.cpp has no row in the include matrix (ci/tidy/rules.json)\n");
}

TEST(Planted, IncludeOfAGeneratedHeader) {
  const std::string text = "#include \"made.h\"\n";
  RuleData rules = data();
  EXPECT_NE(to_text(check_include_matrix(make_tree({{"engine/base/a.cpp", text}}), rules)), "");
  rules.generated_headers = {"made.h"};
  EXPECT_EQ(to_text(check_include_matrix(make_tree({{"engine/base/a.cpp", text}}), rules)), "");
}

TEST(Planted, IncludeInALiteralIsText) {
  EXPECT_EQ(
      run(check_include_matrix, {{"engine/base/a.cpp", "auto s = R\"(\n#include \"x.h\"\n)\";\n"}}),
      "");
}

TEST(Planted, HeavyHeaderOutsideItsFiles) {
  EXPECT_EQ(run(check_pinned_headers, {{"engine/model/a.h", "#include <nlohmann/json.hpp>\n"}}),
            "engine/model/a.h:1: <nlohmann/json.hpp> may not be included here\n");
  EXPECT_EQ(run(check_pinned_headers, {{"engine/model/a.cpp", "#include <nlohmann/json.hpp>\n"}}),
            "");
  for (const char* header : {"nlohmann/json.hpp", "httplib.h"}) {
    const std::string text = std::string("#include <") + header + ">\n";
    EXPECT_NE(run(check_pinned_headers, {{"engine/ops/a.cu", text}}), "") << header;
    EXPECT_NE(run(check_pinned_headers, {{"engine/ops/a.cuh", text}}), "") << header;
  }
  EXPECT_NE(run(check_pinned_headers, {{"engine/base/a.cpp", "#include <gtest/gtest.h>\n"}}), "");
  EXPECT_NE(run(check_pinned_headers, {{"engine/rank/a.cpp", "#include <hwy/highway.h>\n"}}), "");
  EXPECT_NE(run(check_pinned_headers, {{"engine/rank/a.cpp", "#  include <random>\n"}}), "");
}

TEST(Planted, HeaderWithoutPragmaOnce) {
  EXPECT_EQ(run(check_pragma_once, {{"engine/a.h", "// #pragma once\nint f();\n"}}),
            "engine/a.h:1: a header without #pragma once\n");
  EXPECT_EQ(run(check_pragma_once, {{"engine/a.h", "// A.\n#pragma once\n"}}), "");
}

TEST(Planted, BannedWords) {
  for (const char* word : {"TODO", "fixme", "XXX", "hack", "Stub", "placeholder", "for now",
                           "dummy", "not implemented"}) {
    const std::string report =
        run(check_bans, {{"engine/a.cpp", std::string("int a;\n// ") + word + ": b\n"}});
    EXPECT_TRUE(report.starts_with("engine/a.cpp:2: ")) << word << ": " << report;
  }
  EXPECT_EQ(run(check_bans, {{"engine/a.cpp", "// A stubborn hacksaw. mkdtemp(\"a-XXXXXX\")\n"}}),
            "");
}

TEST(Planted, RandomNumbersOfTheLibrary) {
  for (const char* name :
       {"std::rand()", "std::random_device", "std::uniform_int_distribution<int>",
        "std::normal_distribution", "std::regex", "std::regex_match"}) {
    const std::string text = std::string("auto x = ") + name + ";\n";
    EXPECT_NE(run(check_bans, {{"engine/base/a.cpp", text}}), "") << name;
    EXPECT_EQ(run(check_bans, {{"engine/base/a.cpp", "// " + text}}), "") << name;
  }
  EXPECT_EQ(run(check_bans, {{"engine/base/a.cpp", "int my_std::random;\nint std::range;\n"}}), "");
}

TEST(Planted, LibmInAnOp) {
  for (const char* name :
       {"std::exp", "expf", "std::log", "std::sin", "std::cos", "std::pow", "std::tanh", "tanhf"}) {
    const std::string text = std::string("float y = ") + name + "(x);\n";
    EXPECT_TRUE(
        run(check_bans, {{"engine/ops/a/a.cpp", text}}).starts_with("engine/ops/a/a.cpp:1: "))
        << name;
    EXPECT_NE(run(check_bans, {{"engine/rank/a.cpp", text}}), "") << name;
    EXPECT_EQ(run(check_bans, {{"engine/ops/a/a_oracle.cpp", text}}), "") << name;
    EXPECT_EQ(run(check_bans, {{"engine/ops/a/a_test.cpp", text}}), "") << name;
  }
  EXPECT_EQ(run(check_bans, {{"engine/ops/a.cpp", "y = std::exponent(x); // not std::exp(x)\n"}}),
            "");
}

TEST(Planted, OtherBans) {
  EXPECT_NE(run(check_bans, {{"engine/rank/a.cpp", "std::chrono::system_clock::now();\n"}}), "");
  EXPECT_NE(run(check_bans, {{"engine/rank/a.cpp", "kernel<<<1, 2>>>();\n"}}), "");
  EXPECT_EQ(run(check_bans, {{"engine/ops/a.cu", "kernel<<<1, 2>>>();\n"}}), "");
  EXPECT_NE(run(check_bans, {{"validation/a.cpp", "throw std::runtime_error(\"x\");\n"}}), "");
  EXPECT_EQ(run(check_bans, {{"validation/a.cpp", "throw Error(\"x\");\n"}}), "");
  EXPECT_NE(run(check_bans, {{"validation/a.cpp", "} catch (...) {\n"}}), "");
  EXPECT_NE(run(check_bans, {{"CMakeLists.txt", "add_compile_options(-march=native)\n"}}), "");
  EXPECT_NE(run(check_bans, {{"ci/a.sh", "curl https://pypi.org/simple\n"}}), "");
}

TEST(Planted, PathOfOneMachine) {
  EXPECT_EQ(run(check_bans, {{"ci/a.sh", "#!/bin/sh\ncd /home/someone/x\n"}}),
            "ci/a.sh:2: '/home/': no path of one machine\n");
  EXPECT_EQ(run(check_bans, {{"ci/receipts/a.json", "{\"path\": \"/home/someone/x\"}\n"}}),
            "ci/receipts/a.json:1: '/home/': no path of one machine\n");
  EXPECT_EQ(run(check_bans, {{"ci/a.sh", "cd ./work/ && cd build/home/x\n"}}), "");
}

TEST(Planted, LoopThroughAPartOfATemporary) {
  EXPECT_TRUE(run(check_loop_lifetimes,
                  {{"a.cpp", "int a;\nfor (const Json& x : parse(f(1), 2)[\"a\"]) {\n"}})
                  .starts_with("a.cpp:2: walks through a part"));
  for (const char* clean :
       {"for (const Json& x : json[\"a\"]) {\n", "for (auto& x : (*list)[j]) {\n",
        "for (auto& x : list.items()) {\n", "for (auto& x : files()[0]->tensors()) {\n",
        "for (int i = 0; i < f(a)[0]; ++i) {\n", "// for (auto& x : f()[0])\n"}) {
    EXPECT_EQ(run(check_loop_lifetimes, {{"a.cpp", clean}}), "") << clean;
  }
}

TEST(Planted, LongLine) {
  const std::string fits(100, 'x');
  EXPECT_EQ(run(check_line_length, {{"a.cpp", fits + "\n" + fits + "x\n"}}),
            "a.cpp:2: 101 columns, the limit is 100\n");
  EXPECT_EQ(run(check_line_length, {{"a.md", fits + fits}, {"a.json", fits + fits}}), "");
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\u00e4";
  EXPECT_EQ(run(check_line_length, {{"a.cpp", umlauts + "\n"}}), "");
}

TEST(Planted, LongFile) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "\n";
  EXPECT_EQ(run(check_file_length, {{"a.cpp", text}}), "");
  EXPECT_EQ(run(check_file_length, {{"a.cpp", text + "\n"}}),
            "a.cpp:501: 501 lines, the limit is 500: split it by job\n");
}

std::string function_of_lines(int n_lines) {
  std::string text = "namespace n {\n\nint f(int a) {\n";
  for (int i = 2; i < n_lines; ++i) text += "  a += 1;\n";
  return text + "}\n\n}  // namespace n\n";
}

TEST(Planted, LongFunction) {
  RuleData plain = data();
  plain.long_functions.clear();
  EXPECT_EQ(to_text(check_function_length(make_tree({{"a.cpp", function_of_lines(71)}}), plain)),
            "a.cpp:3: f has 71 lines, the limit is 70\n");
  EXPECT_EQ(to_text(check_function_length(make_tree({{"a.cpp", function_of_lines(70)}}), plain)),
            "");
  RuleData listed = plain;
  listed.long_functions = {{"a.cpp:f", 80}};
  EXPECT_EQ(to_text(check_function_length(make_tree({{"a.cpp", function_of_lines(80)}}), listed)),
            "");
  EXPECT_NE(to_text(check_function_length(make_tree({{"a.cpp", function_of_lines(81)}}), listed)),
            "");
  EXPECT_EQ(to_text(check_function_length(make_tree({{"a.cpp", function_of_lines(60)}}), listed)),
            "ci/tidy/rules.json:1: a.cpp:f no longer has 80 lines: lower or drop its entry\n");
}

TEST(Planted, Documents) {
  const std::string map = "# Map\n\n[a](a.md), `docs/a.md`, `docs/<x>/y`, `build/bin/z`\n";
  EXPECT_EQ(
      run(check_document_links,
          {{"docs/README.md", map}, {"docs/a.md", "# A\n[b](b.md)\n"}, {"docs/b.md", "# B\n"}}),
      "");
  EXPECT_EQ(run(check_document_links,
                {{"docs/README.md", map}, {"docs/a.md", "# A\n"}, {"docs/b.md", "# B\n"}}),
            "docs/b.md:1: no link leads here from docs/README.md\n");
  EXPECT_EQ(run(check_document_links, {{"docs/README.md", "\n[a](a.md)\n"}}),
            "docs/README.md:2: link to docs/a.md: no such file\n");
  EXPECT_EQ(run(check_document_paths, {{"docs/README.md", map}, {"docs/a.md", "# A\n"}}), "");
  EXPECT_EQ(run(check_document_paths, {{"docs/README.md", "\nsee `docs/gone.md`\n"}}),
            "docs/README.md:2: `docs/gone.md` does not exist\n");
  EXPECT_EQ(run(check_document_paths, {{"README.md", "`./gone --help`\n"}}),
            "README.md:1: `./gone` does not exist\n");
  EXPECT_EQ(run(check_document_headings, {{"docs/README.md", map}}), "");
  EXPECT_EQ(run(check_document_headings, {{"a.md", "# A\n```\n# comment\n```\n# B\n"}}),
            "a.md:5: 2 first-level headings, want 1\n");
  EXPECT_EQ(run(check_document_headings, {{"a.md", "text\n"}}),
            "a.md:1: 0 first-level headings, want 1\n");
}

TEST(Planted, DeadSource) {
  const std::string list =
      "lockstep_library(a SOURCES a.cpp sub/b.cpp\n  ${CMAKE_SOURCE_DIR}/c.cpp)\n";
  const std::vector<std::pair<std::string, std::string>> clean = {
      {"m/CMakeLists.txt", list},
      {"m/a.cpp", "#include \"m/a.h\"\n"},
      {"m/a.h", ""},
      {"m/sub/b.cpp", ""},
      {"c.cpp", ""}};
  EXPECT_EQ(run(check_sources_listed, clean), "");
  auto planted = clean;
  planted.push_back({"m/dead.cpp", ""});
  planted.push_back({"m/dead.h", ""});
  EXPECT_EQ(run(check_sources_listed, planted),
            "m/dead.cpp:1: no CMakeLists.txt lists this source\n"
            "m/dead.h:1: no file includes this header\n");
}

TEST(Planted, TestWithoutAnAssertion) {
  EXPECT_EQ(run(check_tests_assert, {{"a_test.cpp", "TEST(A, B) { f(); }  // EXPECT_EQ\n"}}),
            "a_test.cpp:1: a test file without an assertion\n");
  EXPECT_EQ(run(check_tests_assert, {{"a_test.cpp", "TEST(A, B) { EXPECT_EQ(f(), 1); }\n"}}), "");
}

TEST(Planted, FaultNamesApart) {
  const std::string points = "points = {\n  {\"a.b\", \"effect\"},\n  {\"c.d\", \"effect\"},\n};\n";
  EXPECT_EQ(run(check_fault_names, {{"engine/base/fault_points.cpp", points},
                                    {"engine/rank/a.cpp",
                                     "fault_fires(\"a.b\");\nfault_fires(\n"
                                     "    \"c.d\", {});\n"}}),
            "");
  EXPECT_EQ(run(check_fault_names,
                {{"engine/base/fault_points.cpp", points},
                 {"engine/rank/a.cpp", "\nfault_fires(\"a.b\");fault_fires(\"e\");\n"}}),
            "engine/base/fault_points.cpp:3: no code asks for fault 'c.d'\n"
            "engine/rank/a.cpp:2: fault 'e' is not in engine/base/fault_points.cpp\n");
}

TEST(Planted, ToolsReport) {
  const ScratchFolder folder;
  folder.write("engine/a.cpp", "int a;\nint   b;\n");
  folder.write("engine/b.cpp", "int a;\n");
  folder.write(".clang-format", "BasedOnStyle: Google\n");
  folder.write("a.sh", "#!/bin/sh\ncd somewhere\n");
  folder.write("b.sh", "#!/bin/sh\necho hello\n");
  Tree tree = make_tree({{"engine/a.cpp", "int a;\nint   b;\n"},
                         {"engine/b.cpp", "int a;\n"},
                         {"a.sh", "#!/bin/sh\ncd somewhere\n"},
                         {"b.sh", "#!/bin/sh\necho hello\n"}});
  tree.root = folder.path();
  const std::string format = to_text(check_clang_format(tree, data()));
  EXPECT_TRUE(format.starts_with("engine/a.cpp:2: ")) << format;
  EXPECT_EQ(format.find("b.cpp"), std::string::npos) << format;
  const std::string shell = to_text(check_shell_scripts(tree, data()));
  EXPECT_TRUE(shell.starts_with("a.sh:2: ")) << shell;
  EXPECT_EQ(shell.find("b.sh"), std::string::npos) << shell;
}

TEST(Planted, ToolsWithoutFilesAreNoPass) {
  EXPECT_NE(to_text(check_clang_format(Tree{}, data())), "");
  EXPECT_NE(to_text(check_shell_scripts(Tree{}, data())), "");
}

TEST(Planted, AScanOfNoFilesFails) {
  const ScratchFolder folder;
  EXPECT_THROW(load_tree(folder.path()), Error);
  ASSERT_EQ(run_process({"git", "init", "-q", folder.path().string()}).exit_code, 0);
  EXPECT_THROW(load_tree(folder.path()), Error);
  folder.write("a.cpp", "int a;\n");
  const Tree tree = load_tree(folder.path());
  ASSERT_EQ(tree.files.size(), 1u);
  EXPECT_EQ(tree.files[0].text, "int a;\n");
}

TEST(CodeView, BlanksCommentsAndLiterals) {
  EXPECT_EQ(code_view("a /* b */ c; // d\ne"), "a         c;     \ne");
  EXPECT_EQ(code_view("f(\"a\\\"b\", 'c', 1'000);"), "f(\"    \", ' ', 1'000);");
  EXPECT_EQ(code_view("R\"x(a\n\")x\" b"), "R\"   \n   \" b");
}

TEST(CodeView, FindsFunctions) {
  const std::string text =
      "namespace n {\nstruct S {\n  int get() const { return a; }\n  int a = 1;\n};\n"
      "const int kTable[] = {1, 2};\nS::S(int b) : a{b} { use(b); }\n"
      "template <class T>\nvoid g(T t) {\n  if (t) { h(); }\n}\nTEST(A, B) { g(1); }\n}\n";
  std::string names;
  for (const FunctionBody& body : find_functions(code_view(text))) names += body.name + " ";
  EXPECT_EQ(names, "get S g A.B ");
}

}  // namespace
}  // namespace lockstep::tidy

// Who may include whom inside the probe. The checks must not be able to see the synthetic machine.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::map<std::string, std::set<std::string>> table = {
      {"cards", {}},
      {"observe", {}},
      {"kernels", {}},
      {"backend", {"observe"}},
      {"checks", {"cards", "observe"}},
      {"collect", {"backend", "kernels", "observe"}},
      {"sim", {"backend", "cards", "kernels", "observe"}},
      {"real", {"backend", "collect", "kernels", "observe"}},
      {"report", {"cards", "checks", "collect", "kernels", "observe"}},
  };
  return table;
}

std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> out;
  std::ifstream text(file);
  std::string line;
  const std::string prefix = "#include \"";
  while (std::getline(text, line)) {
    if (line.compare(0, prefix.size(), prefix) == 0)
      out.push_back(line.substr(prefix.size(), line.rfind('"') - prefix.size()));
  }
  return out;
}

TEST(IncludeMatrix, EveryFolderSeesOnlyWhatItMay) {
  const fs::path root = fs::path(LOCKSTEP_SOURCE_DIR) / "hardware-probe";
  int seen = 0;
  for (const auto& [folder, may] : allowed()) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      for (const std::string& include : includes_of(entry.path())) {
        const std::string own = "hardware-probe/";
        if (include.compare(0, own.size(), own) != 0) {
          EXPECT_EQ(include.compare(0, 12, "engine/base/"), 0)
              << entry.path() << " includes " << include;
          continue;
        }
        const std::string other =
            include.substr(own.size(), include.find('/', own.size()) - own.size());
        EXPECT_TRUE(other == folder || may.count(other)) << entry.path() << " includes " << include;
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 50);
}

}  // namespace
}  // namespace lockstep::probe

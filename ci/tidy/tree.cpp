#include "ci/tidy/tree.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "ci/tidy/code_view.h"
#include "engine/base/error.h"
#include "engine/base/process.h"

namespace lockstep::tidy {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail("{}: cannot be read", path.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Binary golden files are listed, so that links to them resolve, but no rule reads them.
bool is_binary(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".png") || path.ends_with(".jpg") ||
         path.ends_with(".webp");
}

}  // namespace

int File::line_of(size_t offset) const {
  const auto after = std::upper_bound(line_starts.begin(), line_starts.end(), offset);
  return static_cast<int>(after - line_starts.begin());
}

std::string_view File::line(int number) const {
  const size_t begin = line_starts.at(static_cast<size_t>(number) - 1);
  const size_t end = std::min(text.find('\n', begin), text.size());
  return std::string_view(text).substr(begin, end - begin);
}

const File* Tree::find(std::string_view path) const {
  const auto at =
      std::lower_bound(files.begin(), files.end(), path,
                       [](const File& file, std::string_view p) { return file.path < p; });
  return at != files.end() && at->path == path ? &*at : nullptr;
}

bool Tree::exists(std::string_view path) const {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string folder = std::string(path) + "/";
  return std::any_of(files.begin(), files.end(), [&](const File& file) {
    return file.path == path || file.path.starts_with(folder);
  });
}

bool is_cpp(std::string_view path) {
  return path.ends_with(".cpp") || path.ends_with(".h") || path.ends_with(".cu") ||
         path.ends_with(".cuh");
}

File make_file(std::string path, std::string text) {
  File file;
  file.path = std::move(path);
  file.text = std::move(text);
  if (is_cpp(file.path)) file.code = code_view(file.text);
  for (size_t at = 0; at < file.text.size(); at = file.text.find('\n', at) + 1) {
    file.line_starts.push_back(at);
    if (file.text.find('\n', at) == std::string::npos) break;
  }
  return file;
}

Tree load_tree(const std::filesystem::path& root) {
  const std::string folder = root.string();
  const ProcessResult listed =
      run_process({"git", "-c", "safe.directory=" + folder, "-C", folder, "ls-files", "-z",
                   "--cached", "--others", "--exclude-standard"});
  if (listed.exit_code != 0) fail("{}: git cannot list it: {}", folder, listed.stderr_text);
  std::set<std::string> paths;
  for (size_t at = 0; at < listed.stdout_text.size();) {
    const size_t end = listed.stdout_text.find('\0', at);
    paths.insert(listed.stdout_text.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  Tree tree;
  tree.root = root;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_regular_file(root / path)) continue;
    tree.files.push_back(make_file(path, is_binary(path) ? "" : read_text(root / path)));
  }
  if (tree.files.empty()) fail("{}: git tracks no file here", folder);
  return tree;
}

}  // namespace lockstep::tidy

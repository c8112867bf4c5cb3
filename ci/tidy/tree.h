// The repository's own files, as the rules see them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

struct File {
  std::string path;  // from the repository root, with '/'
  std::string text;
  std::string code;  // C++ sources: text with comments and literals blanked, else empty
  std::vector<size_t> line_starts;  // offsets into text

  int line_of(size_t offset) const;  // counts from 1
  std::string_view line(int number) const;
  int n_lines() const { return static_cast<int>(line_starts.size()); }
};

struct Tree {
  std::filesystem::path root;
  std::vector<File> files;  // sorted by path

  const File* find(std::string_view path) const;
  // True for a file or a folder that holds one.
  bool exists(std::string_view path) const;
};

File make_file(std::string path, std::string text);

// What git tracks under `root`, and new files that it does not ignore. Throws Error when git gives
// nothing: a scan of no files proves nothing.
Tree load_tree(const std::filesystem::path& root);

bool is_cpp(std::string_view path);

}  // namespace lockstep::tidy

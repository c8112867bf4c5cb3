// The files of the web page, inside the program.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::serve {

struct PageFile {
  std::string_view path;  // as a browser asks for it
  std::string_view content_type;
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace lockstep::serve

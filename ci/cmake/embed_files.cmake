# Writes OUTPUT, a source that holds the files of the web page in FOLDER (cmake -P, at build time).
set(entries "")
foreach(entry "index.html|/|text/html; charset=utf-8"
    "app.js|/app.js|text/javascript; charset=utf-8"
    "style.css|/style.css|text/css; charset=utf-8" "favicon.svg|/favicon.svg|image/svg+xml")
  string(REPLACE "|" ";" parts "${entry}")
  list(GET parts 0 file)
  list(GET parts 1 path)
  # The content type may hold a ';', which parts a list.
  string(REGEX REPLACE "^[^|]*[|][^|]*[|]" "" type "${entry}")
  file(READ ${FOLDER}/${file} text HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" text "${text}")
  # Literals next to each other become one: no compiler has to take a line of a megabyte.
  string(REGEX REPLACE "((\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..)(\\\\x..))"
    "\\1\"\n    \"" text "${text}")
  string(APPEND entries "  {\"${path}\", \"${type}\",\n    \"${text}\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "#include \"engine/serve/page_files.h\"

namespace lockstep::serve {
namespace {

constexpr PageFile kFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

}  // namespace lockstep::serve
")
file(RENAME ${OUTPUT}.new ${OUTPUT})

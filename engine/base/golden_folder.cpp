#include "engine/base/golden_folder.h"

#include "engine/base/error.h"
#include "engine/base/process.h"

namespace lockstep {

std::filesystem::path golden_folder() {
  const std::filesystem::path bin = sibling_program("").parent_path();
  for (const auto& folder : {bin / "../../golden", bin / "../share/lockstep/golden"}) {
    if (std::filesystem::is_directory(folder)) return std::filesystem::canonical(folder);
  }
  fail_with(ExitCode::could_not_judge, "no golden model near {}: give --model and --oracle",
            bin.string());
}

}  // namespace lockstep

// lockstep-rank serve: the HTTP server of one rank (docs/formats/rank-api.md).
#pragma once

namespace lockstep {

// argv[0] is "serve".
int serve_rank_main(const char* program, int argc, char** argv);

}  // namespace lockstep

// The program of one rank: lockstep-rank, and lockstep-rank-faulty with fault points alive.
#pragma once

namespace lockstep {

int rank_main(const char* program, int argc, char** argv);

}  // namespace lockstep

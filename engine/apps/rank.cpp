#include "engine/apps/rank_program.h"

int main(int argc, char** argv) {
  return lockstep::rank_main("lockstep-rank", argc, argv);
}

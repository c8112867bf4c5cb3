// lockstep serve: two ranks in lockstep behind a proxy.
#include "engine/base/cli.h"
#include "engine/serve/serve_command.h"

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-serve",
                            [&] { return lockstep::serve::serve_command(argc, argv); });
}

// The flags of lockstep serve.
#pragma once

namespace lockstep::serve {

// Parses the command line and serves. Returns the exit code; throws Error.
int serve_command(int argc, char** argv);

}  // namespace lockstep::serve

// The shared-memory mailbox: two ranks of one host exchange through one mapped file.
//
// Each rank owns two buffers and a published counter. For operation k a rank writes its message
// into buffer k mod 2, publishes k + 1 and waits until the peer has published k + 1; it then reads
// the peer's buffer. A buffer is written again for operation k + 2, which a rank starts only after
// the peer has published k + 2 - 1, that is, after the peer has read operation k. Long messages go
// in pieces.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/comm/communicator.h"

namespace lockstep {

struct MailboxOptions {
  std::chrono::milliseconds deadline = std::chrono::seconds(60);  // of one wait
  bool spin = false;  // spin before sleeping: only while cores >= ranks x threads
};

// Prepares an empty mailbox of the right size for 2 ranks in an anonymous memory file and returns
// its descriptor; ranks open it as "/proc/PID/fd/N" of the process that made it.
int create_mailbox_file();

// Joins as `rank`. Throws Error when the file is not a mailbox or the peer does not come in time.
std::unique_ptr<Communicator> join_mailbox(const std::filesystem::path& path, int rank,
                                           const MailboxOptions& options);

}  // namespace lockstep

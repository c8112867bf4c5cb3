// serve --record: the request log (docs/formats/request-log.md), from what ranks log of a request.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::serve {

class Recorder {
 public:
  // Appends to `path`; begins it with `header` when it is new. Throws Error when it cannot be
  // written, or is the log of another model or of other flags.
  Recorder(const std::string& path, const std::string& header);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A line of a rank's log. One that holds a job goes into the request log (rank 0's; rank 1's is
  // the same) and is returned without it; every other line is returned as it is.
  std::string take(int rank, const std::string& line);

 private:
  int fd_ = -1;
  int64_t n_lines_ = 0;  // numbers the jobs: ids that clients choose need not be unique
};

}  // namespace lockstep::serve

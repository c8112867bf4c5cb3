// Tells other threads of this process that a picture goes through the vision tower: the round that
// does it takes seconds for a large one.
#pragma once

namespace lockstep {

class PictureWork {
 public:
  PictureWork();
  ~PictureWork();
  PictureWork(const PictureWork&) = delete;
  PictureWork& operator=(const PictureWork&) = delete;

  static bool under_way();
};

}  // namespace lockstep

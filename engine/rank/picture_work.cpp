#include "engine/rank/picture_work.h"

#include <atomic>

namespace lockstep {
namespace {

std::atomic<int> n_under_way{0};

}  // namespace

PictureWork::PictureWork() {
  ++n_under_way;
}

PictureWork::~PictureWork() {
  --n_under_way;
}

bool PictureWork::under_way() {
  return n_under_way > 0;
}

}  // namespace lockstep

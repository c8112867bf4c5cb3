#include "engine/text/jinja/runtime.h"

namespace lockstep::jinja {

void Runtime::charge_steps(int64_t n) {
  steps_ += n;
  if (steps_ > limits_.max_steps) {
    refuse("the template takes more than {} steps", limits_.max_steps);
  }
}

void Runtime::charge_memory(size_t n_bytes) {
  charge_bytes_read(n_bytes);
  // Compared so that no sum can overflow.
  if (n_bytes > limits_.max_memory_bytes - memory_bytes_) {
    refuse("the template makes more than {} bytes of values", limits_.max_memory_bytes);
  }
  memory_bytes_ += n_bytes;
}

Value Runtime::string(std::string text) {
  charge_memory(text.size() + sizeof(std::string));
  return Value::of(arena.add(std::move(text)));
}

Value Runtime::list(List* list) {
  charge_memory(list->items.size() * sizeof(Value) + sizeof(List));
  return Value::of(list);
}

Value Runtime::undefined(std::string complaint) {
  charge_memory(complaint.size() + sizeof(std::string));
  return Value::of(arena.add(std::move(complaint)), Kind::undefined);
}

DepthGuard::DepthGuard(Runtime& runtime, int* depth, int max_depth) : depth_(depth) {
  if (*depth_ >= max_depth) runtime.refuse("nested deeper than {} levels", max_depth);
  ++*depth_;
}

}  // namespace lockstep::jinja

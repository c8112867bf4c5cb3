#include "hardware-probe/real/dynamic_library.h"

#include <dlfcn.h>

namespace lockstep::probe {

DynamicLibrary::DynamicLibrary(const char* file) : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* why = ::dlerror();
  error_ = why == nullptr ? "cannot be opened" : why;
}

void* DynamicLibrary::symbol(const std::string& name) {
  if (handle_ == nullptr) return nullptr;
  const auto [known, fresh] = symbols_.try_emplace(name, nullptr);
  if (fresh) known->second = ::dlsym(handle_, name.c_str());
  return known->second;
}

}  // namespace lockstep::probe

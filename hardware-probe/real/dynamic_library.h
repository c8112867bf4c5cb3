// A driver library opened at run time. Functions are called by name; their C signature is spelled
// by the arguments, so the argument types at every call must be exactly those of the library's
// header.
#pragma once

#include <map>
#include <string>

namespace lockstep::probe {

class DynamicLibrary {
 public:
  explicit DynamicLibrary(const char* file);
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  bool present() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  void* symbol(const std::string& name);  // null when the library does not have it

  // The function's own status; kAbsent when library or function are not there.
  static constexpr int kAbsent = 9999;
  template <typename... Args>
  int call(const char* name, Args... arguments) {
    void* function = symbol(name);
    if (function == nullptr) return kAbsent;
    return reinterpret_cast<int (*)(Args...)>(function)(arguments...);
  }

 private:
  void* handle_ = nullptr;
  std::string error_;
  std::map<std::string, void*> symbols_;
};

}  // namespace lockstep::probe

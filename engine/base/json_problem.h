// What a JSON library says of a file that it cannot use, in words for whoever wrote the file.
#pragma once

#include <exception>
#include <string>

#include "engine/base/error.h"

namespace lockstep {

// "not valid JSON at column 3", "'name' is missing", "a value must be string, but is number";
// anything else as it stands.
std::string json_problem(const std::exception& error);

// The member `key` of an object as a T. Throws Error that names the key.
template <typename T, typename Json>
T json_field(const Json& object, const char* key) {
  if (!object.is_object()) fail("not a JSON object");
  if (!object.contains(key)) fail("'{}' is missing", key);
  try {
    return object.at(key).template get<T>();
  } catch (const typename Json::exception& error) {
    fail("'{}': {}", key, json_problem(error));
  }
}

}  // namespace lockstep

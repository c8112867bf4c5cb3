// Libraries that bring GPU kernels of their own: which there are, and for which architectures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

// The NCCL that the loader would take, then those of the Python environments below `prefixes`.
std::vector<KernelLibrary> find_nccl(const std::vector<std::filesystem::path>& prefixes);
std::vector<KernelLibrary> find_torch(const std::vector<std::filesystem::path>& prefixes);

// Where Python environments of this user and machine lie: active ones, those on PATH, the system's.
std::vector<std::filesystem::path> python_prefixes();

// Version, CUDA version and architectures of one file. What cannot be read stays empty.
KernelLibrary inspect_nccl(const std::filesystem::path& file);
KernelLibrary inspect_torch(const std::filesystem::path& file);

}  // namespace lockstep::probe

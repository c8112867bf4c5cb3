#include "ci/sass/sass.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace lockstep::sass {
namespace {

struct Instruction {
  int address = 0;
  std::string opcode;
  int target = -1;  // of a branch
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

// "lockstep::cuda::(anonymous)::skinny_sm70<lockstep::Tile>(Params)" -> "skinny_sm70<Tile>".
std::string short_name(const std::string& mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  for (size_t at; (at = name.find("> >")) != std::string::npos;) name.erase(at + 1, 1);
  if (name.starts_with("void ")) name.erase(0, 5);
  const size_t parameters = name.rfind(")") == std::string::npos ? name.size() : name.rfind("(");
  name.erase(std::min(parameters, name.size()));
  // Qualifiers end in "::"; drop the word before each.
  for (size_t at; (at = name.find("::")) != std::string::npos;) {
    size_t begin = at;
    while (begin > 0 && (std::isalnum(static_cast<unsigned char>(name[begin - 1])) != 0 ||
                         name[begin - 1] == '_')) {
      --begin;
    }
    name.erase(begin, at + 2 - begin);
  }
  return name;
}

int number_after(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return 0;
  int value = 0;
  std::from_chars(line.data() + at + key.size(), line.data() + line.size(), value);
  return value;
}

// "/*0550*/  @P0 BRA 0x3cb0 ;" or nothing for lines that hold encodings alone.
bool parse_instruction(std::string_view line, Instruction& out) {
  line = trimmed(line);
  if (!line.starts_with("/*") || line.size() < 8) return false;
  const size_t close = line.find("*/");
  const auto [end, error] = std::from_chars(line.data() + 2, line.data() + close, out.address, 16);
  if (error != std::errc() || end != line.data() + close) return false;
  line = trimmed(line.substr(close + 2));
  if (line.starts_with("@")) line = trimmed(line.substr(std::min(line.find(' '), line.size())));
  size_t length = 0;
  while (length < line.size() && (std::isupper(static_cast<unsigned char>(line[length])) != 0 ||
                                  std::isdigit(static_cast<unsigned char>(line[length])) != 0)) {
    ++length;
  }
  if (length == 0) return false;
  out.opcode = std::string(line.substr(0, length));
  out.target = -1;
  const size_t target = line.find("0x");
  if (out.opcode == "BRA" && target != std::string_view::npos) {
    std::from_chars(line.data() + target + 2, line.data() + line.size(), out.target, 16);
  }
  return true;
}

void find_loop(const std::vector<Instruction>& code, Kernel& kernel) {
  const auto count_in = [&](int first, int last, std::string_view opcode) {
    return std::count_if(code.begin(), code.end(), [&](const Instruction& i) {
      return i.address >= first && i.address <= last && (opcode.empty() || i.opcode == opcode);
    });
  };
  int first = 0;
  int last = -1;
  bool with_matrix = false;
  for (const Instruction& branch : code) {
    if (branch.target < 0 || branch.target >= branch.address) continue;
    const bool matrix = count_in(branch.target, branch.address, "HMMA") > 0;
    const bool shorter = last < 0 || branch.address - branch.target < last - first;
    if (matrix > with_matrix || (matrix == with_matrix && shorter)) {
      first = branch.target;
      last = branch.address;
      with_matrix = matrix;
    }
  }
  for (const Instruction& i : code) {
    if (i.address < first || i.address > last) continue;
    ++kernel.loop_instructions;
    ++kernel.loop_opcodes[i.opcode];
  }
}

constexpr std::string_view kNeverInLoop[] = {"I2F", "F2F", "F2I", "CALL", "LDL", "STL", "ATOM"};

void judge_kernel(const Kernel& kernel, const nlohmann::json& want,
                  std::vector<std::string>& findings) {
  const auto find = [&](const std::string& text) { findings.push_back(kernel.name + ": " + text); };
  if (kernel.stack_bytes != 0 || kernel.local_bytes != 0) {
    find(fmt::format("{} bytes of stack, {} of local memory: decode kernels have none",
                     kernel.stack_bytes, kernel.local_bytes));
  }
  if (kernel.registers > want.at("registers").get<int>()) {
    find(fmt::format("{} registers, the baseline has {}", kernel.registers,
                     want.at("registers").get<int>()));
  }
  const int shared = kernel.shared_bytes + want.value("dynamic_shared", 0);
  if (shared > 96 * 1024) find(fmt::format("{} bytes of shared memory, sm_70 has 98304", shared));
  if (kernel.shared_bytes != want.at("shared").get<int>()) {
    find(fmt::format("{} bytes of static shared memory, the baseline has {}", kernel.shared_bytes,
                     want.at("shared").get<int>()));
  }
  for (const std::string_view opcode : kNeverInLoop) {
    if (kernel.loop_opcodes.contains(std::string(opcode)) &&
        !want.value("allowed", std::vector<std::string>()).empty()) {
      const auto allowed = want.at("allowed").get<std::vector<std::string>>();
      if (std::find(allowed.begin(), allowed.end(), opcode) != allowed.end()) continue;
    }
    if (kernel.loop_opcodes.contains(std::string(opcode))) {
      find(fmt::format("{} in the inner loop", opcode));
    }
  }
  const int baseline = want.at("loop_instructions").get<int>();
  if (kernel.loop_instructions * 100 > baseline * 103) {
    find(fmt::format("{} instructions in the inner loop, the baseline has {}",
                     kernel.loop_instructions, baseline));
  }
  const double per_unit =
      static_cast<double>(kernel.loop_instructions) / want.at("units_in_loop").get<double>();
  if (per_unit > want.at("ceiling").get<double>()) {
    find(fmt::format("{:.2f} instructions a unit, the ceiling is {}", per_unit,
                     want.at("ceiling").get<double>()));
  }
  const int matrix = want.value("loop_hmma", 0);
  const auto have = kernel.loop_opcodes.find("HMMA");
  if ((have == kernel.loop_opcodes.end() ? 0 : have->second) != matrix) {
    find(fmt::format("{} HMMA in the inner loop, the baseline has {}",
                     have == kernel.loop_opcodes.end() ? 0 : have->second, matrix));
  }
}

}  // namespace

std::vector<Kernel> parse_dump(std::string_view text) {
  std::map<std::string, Kernel> kernels;
  std::map<std::string, std::vector<Instruction>> code;
  std::string current;
  bool in_code = false;
  for (const std::string_view raw : lines_of(text)) {
    const std::string_view line = trimmed(raw);
    if (line.starts_with("Function : ")) {
      current = std::string(line.substr(11));
      in_code = true;
    } else if (line.starts_with("Function ")) {
      current = std::string(line.substr(9, line.size() - 10));
      in_code = false;
    } else if (line.starts_with("REG:") && !in_code) {
      Kernel& kernel = kernels[current];
      kernel.registers = number_after(line, "REG:");
      kernel.stack_bytes = number_after(line, "STACK:");
      kernel.shared_bytes = number_after(line, "SHARED:");
      kernel.local_bytes = number_after(line, "LOCAL:");
    }
    Instruction instruction;
    if (in_code && parse_instruction(raw, instruction)) code[current].push_back(instruction);
  }
  std::vector<Kernel> out;
  for (auto& [mangled, kernel] : kernels) {
    kernel.name = short_name(mangled);
    find_loop(code[mangled], kernel);
    out.push_back(kernel);
  }
  return out;
}

std::vector<std::string> judge(const std::vector<Kernel>& kernels, const std::string& baseline) {
  const nlohmann::json wanted = nlohmann::json::parse(baseline).at("kernels");
  std::vector<std::string> findings;
  std::vector<std::string> seen;
  for (const Kernel& kernel : kernels) {
    seen.push_back(kernel.name);
    if (!wanted.contains(kernel.name)) {
      findings.push_back(kernel.name + ": not in the baseline");
    } else {
      judge_kernel(kernel, wanted.at(kernel.name), findings);
    }
  }
  for (const auto& [name, unused] : wanted.items()) {
    if (std::find(seen.begin(), seen.end(), name) == seen.end()) {
      findings.push_back(name + ": in the baseline, but nothing of that name was compiled");
    }
  }
  return findings;
}

std::string with_figures(const std::vector<Kernel>& kernels, const std::string& baseline) {
  nlohmann::json all = nlohmann::json::parse(baseline);
  for (const Kernel& kernel : kernels) {
    nlohmann::json& entry = all["kernels"][kernel.name];
    entry["registers"] = kernel.registers;
    entry["shared"] = kernel.shared_bytes;
    entry["loop_instructions"] = kernel.loop_instructions;
    const auto matrix = kernel.loop_opcodes.find("HMMA");
    entry["loop_hmma"] = matrix == kernel.loop_opcodes.end() ? 0 : matrix->second;
    if (!entry.contains("units_in_loop")) entry["units_in_loop"] = 1;
    if (!entry.contains("ceiling")) entry["ceiling"] = kernel.loop_instructions;
  }
  return all.dump(1) + "\n";
}

}  // namespace lockstep::sass

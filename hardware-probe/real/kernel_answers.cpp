#include "hardware-probe/real/kernel_answers.h"

#include <cctype>
#include <cstdlib>
#include <string>

namespace lockstep::probe {
namespace {

bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

// The first "0000:3b:00" of a line as "0000:3b:00.0"; the function follows only in some lines.
std::string bus_in(std::string_view text) {
  constexpr std::string_view kShape = "xxxx:xx:xx";
  for (size_t at = 0; at + kShape.size() <= text.size(); ++at) {
    bool fits = at == 0 || !is_hex(text[at - 1]);
    for (size_t i = 0; fits && i < kShape.size(); ++i)
      fits = kShape[i] == ':' ? text[at + i] == ':' : is_hex(text[at + i]);
    if (!fits) continue;
    std::string bus(text.substr(at, kShape.size()));
    for (char& c : bus) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return bus + ".0";
  }
  return "";
}

int xid_in(std::string_view text) {
  const size_t xid = text.find("Xid (");
  if (xid == std::string_view::npos) return 0;
  const size_t end = text.find("): ", xid);
  return end == std::string_view::npos ? 0 : std::atoi(std::string(text.substr(end + 3)).c_str());
}

// Little-endian, as PCI is.
unsigned number_at(std::string_view bytes, size_t offset, int n) {
  unsigned value = 0;
  for (int i = n - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[offset + static_cast<size_t>(i)]);
  return value;
}

}  // namespace

Maybe<KernelLine> parse_kernel_line(std::string_view record) {
  const size_t message = record.find(';');
  if (message == std::string_view::npos) return {};
  std::string_view text = record.substr(message + 1);
  text = text.substr(0, text.find('\n'));
  const bool ours =
      text.find("NVRM") != std::string_view::npos || text.find("nvidia") != std::string_view::npos;
  if (!ours) return {};
  KernelLine line;
  size_t comma = record.find(',');
  if (comma != std::string_view::npos) comma = record.find(',', comma + 1);
  if (comma == std::string_view::npos || comma > message) return {};
  line.t_s = std::atof(std::string(record.substr(comma + 1, message - comma)).c_str()) * 1e-6;
  line.bus = bus_in(text);
  line.xid = xid_in(text);
  line.text = std::string(text.substr(0, 300));
  return line;
}

Maybe<int64_t> aer_total(std::string_view text) {
  const size_t total = text.rfind("TOTAL_ERR_");
  const size_t space = total == std::string_view::npos ? total : text.find(' ', total);
  if (space == std::string_view::npos) return {};
  return std::atoll(std::string(text.substr(space + 1)).c_str());
}

Maybe<bool> acs_redirects(std::string_view config) {
  constexpr size_t kExtended = 0x100, kWhole = 0x1000;
  constexpr unsigned kAccessControl = 0x000d, kRequestRedirect = 0x4, kCompletionRedirect = 0x8;
  if (config.size() < kWhole) return {};
  // A chain of capabilities: id, version, offset of the next; bounded against a chain in a circle.
  size_t at = kExtended;
  for (int i = 0; i < 64 && at >= kExtended && at + 8 <= kWhole; ++i) {
    const unsigned header = number_at(config, at, 4);
    if (header == 0 || header == 0xffffffffu) break;
    if ((header & 0xffffu) == kAccessControl)
      return (number_at(config, at + 6, 2) & (kRequestRedirect | kCompletionRedirect)) != 0;
    at = header >> 20 & ~size_t{3};
  }
  return false;
}

}  // namespace lockstep::probe

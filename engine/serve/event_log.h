// The server's log: one JSON object a line on stderr.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep::serve {

using LogValue = std::variant<std::string, int64_t, double, bool>;
using LogField = std::pair<std::string_view, LogValue>;

// {"time":"2026-01-31T12:00:00.123Z","event":EVENT,...fields}. Bytes that are not UTF-8 become
// U+FFFD.
void log_event(std::string_view event, std::initializer_list<LogField> fields);

// A line that rank `rank` wrote: its own JSON object with "rank" added, or {"event":"rank_output"}.
void log_rank_line(int rank, const std::string& line);

}  // namespace lockstep::serve

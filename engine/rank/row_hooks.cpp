#include "engine/rank/row_hooks.h"

#include <algorithm>

namespace lockstep {
namespace {

// The rows of a span that its taps record: the last prompt positions, or the first of decode.
void record(const Span& span, const std::string& name, const float* x, int64_t width) {
  if (span.taps == nullptr) return;
  const std::string tap = span.phase == Phase::decode ? "decode/" + name : name;
  if (!span.taps->wants(tap)) return;
  const bool decode = span.phase == Phase::decode;
  const int64_t n_last = std::min(span.taps->last(), span.prompt_tokens);
  const int64_t begin = decode ? span.prompt_tokens : span.prompt_tokens - n_last;
  const int64_t end = decode ? span.prompt_tokens + span.taps->last() : span.prompt_tokens;
  const int64_t first = std::max(begin, span.first_position);
  const int64_t last = std::min(end, span.first_position + span.n_tokens);
  if (first >= last) return;
  span.taps->put_rows(tap, first - begin, x + (span.column + first - span.first_position) * width,
                      last - first, width);
}

// What enters the first layer and what leaves each, at the places around the prompt's pictures.
void record_at_images(const Span& span, const std::string& name, const float* x, int64_t width) {
  if (span.taps == nullptr || span.image_tap_rows == nullptr || span.phase == Phase::decode) return;
  const std::string tap = "image/" + name;
  const bool recorded = name == "embed" || name.ends_with(".out");
  if (!recorded || !span.taps->wants(tap)) return;
  for (size_t row = 0; row < span.image_tap_rows->size(); ++row) {
    const int64_t index = (*span.image_tap_rows)[row] - span.first_position;
    if (index < 0 || index >= span.n_tokens) continue;
    span.taps->put_rows(tap, static_cast<int64_t>(row), x + (span.column + index) * width, 1,
                        width);
  }
}

// The rows of a span that its job puts in place of those just computed.
void inject(const Span& span, const std::string& name, int64_t width, Rounding rounding, float* x) {
  if (span.injection == nullptr) return;
  const bool decode = span.phase == Phase::decode;
  const Injection::Rows* rows = span.injection->find(decode ? "decode/" + name : name);
  if (rows == nullptr) return;
  const int64_t position = decode ? span.prompt_tokens : span.prompt_tokens - rows->n_rows;
  replace_rows(*rows, position, span.first_position, span.n_tokens, width, rounding,
               x + span.column * width);
}

}  // namespace

bool has_row_hooks(const Batch& batch) {
  return std::any_of(batch.spans.begin(), batch.spans.end(), [](const Span& span) {
    return span.taps != nullptr || span.injection != nullptr;
  });
}

void pass_row_hooks(const Batch& batch, const std::string& name, int64_t width, Rounding rounding,
                    float* x) {
  for (const Span& span : batch.spans) {
    record(span, name, x, width);
    record_at_images(span, name, x, width);
    inject(span, name, width, rounding, x);
  }
}

}  // namespace lockstep

#include "engine/rank/draft_vocab.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/model/weight_slices.h"

namespace lockstep {
namespace {

constexpr const char* kHeader = "lockstep draft-vocab ";
constexpr int kVersion = 1;
constexpr size_t kMaxFileBytes = size_t{64} << 20;

// Digits alone, of at most nine places.
bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

void check_header(const std::string& line, const std::string& file) {
  const std::string prefix = kHeader;
  if (!line.starts_with(prefix) || !is_number(line.substr(prefix.size()))) {
    fail_with(ExitCode::usage, "{}: is no draft vocabulary: its first line must be '{}{}'", file,
              kHeader, kVersion);
  }
  if (line.substr(prefix.size()) != std::to_string(kVersion)) {
    fail_with(ExitCode::usage, "{}: version {} is not {}, the one this build reads", file,
              line.substr(prefix.size()), kVersion);
  }
}

std::vector<int32_t> read_ids(const std::string& file, int64_t n_live) {
  std::istringstream lines(read_text_file(file, kMaxFileBytes));
  std::vector<int32_t> ids;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string text = trimmed(line);
    if (number == 1) {
      check_header(text, file);
      continue;
    }
    if (text.empty() || text.front() == '#') continue;
    if (!is_number(text)) {
      fail_with(ExitCode::usage, "{}:{}: '{}' is no token id", file, number, text.substr(0, 40));
    }
    const int64_t id = std::stoll(text);
    if (id >= n_live) {
      fail_with(ExitCode::usage, "{}:{}: token {} is outside the vocabulary of {}", file, number,
                id, n_live);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  if (ids.empty()) fail_with(ExitCode::usage, "{}: holds no token id", file);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Block scales of one row (fp8_block: of 128 rows).
int64_t scale_row_bytes(const WeightMatrix& matrix) {
  if (matrix.block_scales == nullptr) return 0;
  return matrix.block_scale_stride *
         (matrix.codec == Codec::nvfp4 ? 1 : static_cast<int64_t>(sizeof(float)));
}

void append(std::vector<std::byte>& to, const void* from, int64_t n_bytes) {
  const auto* bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + n_bytes);
}

}  // namespace

std::vector<int32_t> read_draft_vocab(const std::string& flag, int64_t n_live) {
  if (flag.empty()) return {};
  if (!is_number(flag)) return read_ids(flag, n_live);
  const int64_t n = std::stoll(flag);
  if (n > n_live) {
    fail_with(ExitCode::usage, "--draft-vocab {}: the vocabulary has {} rows", n, n_live);
  }
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

DraftHead::DraftHead(const Model& model, Backend& backend, std::vector<int32_t> ids, int64_t n_live)
    : model_(model), backend_(backend) {
  const RankDims& dims = model.weights.dims;
  const int64_t first = int64_t{dims.rank} * dims.vocab_rows;
  if (!ids.empty()) {
    std::vector<int32_t> local;
    for (const int32_t id : ids) {
      LOCKSTEP_CHECK(id >= 0 && id < n_live);
      if (id >= first && id < first + dims.vocab_rows) {
        local.push_back(static_cast<int32_t>(id - first));
      }
    }
    gather_rows(local);
  } else {
    matrix_ = model.weights.lm_head;
    for (int64_t row = 0; row < dims.vocab_rows; ++row) {
      row_ids_.push_back(first + row < n_live ? static_cast<int32_t>(first + row) : -1);
    }
  }
  const bool dense = ids.empty() || row_cut_granule(model.weights.lm_head.front()) == 1;
  backend_.set_draft_head(matrix_, row_ids_, dense);
}

// Copies the rows `local_ids` (ascending, of this rank's part), or the blocks of rows that share
// their scales with one of them.
void DraftHead::gather_rows(const std::vector<int32_t>& local_ids) {
  const RankDims& dims = model_.weights.dims;
  LOCKSTEP_CHECK(model_.weights.lm_head.size() == 1);
  const WeightMatrix& head = model_.weights.lm_head.front();
  const int64_t granule = row_cut_granule(head);
  WeightMatrix compact = head;
  compact.n_rows = 0;
  for (size_t i = 0; i < local_ids.size();) {
    const int64_t begin = local_ids[i] / granule * granule;
    const int64_t end = std::min(begin + granule, head.n_rows);
    append(codes_, head.codes + begin * head.row_bytes, (end - begin) * head.row_bytes);
    const int64_t scale_bytes = scale_row_bytes(head);
    append(scales_,
           static_cast<const std::byte*>(head.block_scales) + begin / granule * scale_bytes,
           scale_bytes);
    if (head.zero_points != nullptr) {
      const uint8_t* zeros = head.zero_points + begin * head.block_scale_stride;
      zero_points_.insert(zero_points_.end(), zeros, zeros + head.block_scale_stride);
    }
    if (head.row_scale != nullptr) {
      row_scales_.insert(row_scales_.end(), head.row_scale + begin, head.row_scale + end);
    }
    for (int64_t row = begin; row < end; ++row) {
      const bool listed = i < local_ids.size() && local_ids[i] == row;
      row_ids_.push_back(listed ? static_cast<int32_t>(int64_t{dims.rank} * dims.vocab_rows + row)
                                : -1);
      if (listed) ++i;
    }
    compact.n_rows += end - begin;
  }
  if (compact.n_rows == 0) return;
  compact.codes = codes_.data();
  if (head.block_scales != nullptr) compact.block_scales = scales_.data();
  if (head.zero_points != nullptr) compact.zero_points = zero_points_.data();
  if (head.row_scale != nullptr) compact.row_scale = row_scales_.data();
  matrix_ = {compact};
}

int64_t DraftHead::n_scored_rows() const {
  return static_cast<int64_t>(row_ids_.size());
}

DraftHead::Candidate DraftHead::best_of(const float* logits) const {
  Candidate best{-std::numeric_limits<float>::infinity(), -1};
  for (size_t row = 0; row < row_ids_.size(); ++row) {
    if (row_ids_[row] < 0) continue;
    if (best.id < 0 || logits[row] > best.logit) best = {logits[row], row_ids_[row]};
  }
  return best;
}

std::vector<int32_t> DraftHead::best_tokens(const float* rows, int64_t n) {
  const int64_t n_rows = n_scored_rows();
  const float* logits = backend_.draft_logits(rows, n);
  std::vector<Candidate> mine;
  for (int64_t i = 0; i < n; ++i) mine.push_back(best_of(logits + i * n_rows));
  const auto n_ranks = static_cast<size_t>(model_.comm.n_ranks());
  std::vector<Candidate> all(mine.size() * n_ranks);
  model_.comm.all_gather_bytes(std::as_bytes(std::span(mine)),
                               std::as_writable_bytes(std::span(all)));
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < mine.size(); ++i) {
    Candidate best = all[i];
    for (size_t rank = 1; rank < n_ranks; ++rank) {
      const Candidate& other = all[rank * mine.size() + i];
      if (other.id >= 0 && (best.id < 0 || other.logit > best.logit)) best = other;
    }
    tokens.push_back(std::max(best.id, 0));
  }
  return tokens;
}

}  // namespace lockstep

#include "engine/model/convert/convert.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/model/checkpoint_writer.h"
#include "engine/model/convert/storage_formats.h"
#include "engine/model/inspect.h"
#include "engine/model/shard_plan.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct MatrixJob {
  std::string base;
  const StorageFormat* format = nullptr;  // null: its tensors are copied
  int64_t n_rows = 0;
  int64_t n_cols = 0;
};

MatrixParts parts_of(const Checkpoint& source, const std::string& base) {
  MatrixParts parts;
  for (const std::string& suffix : matrix_suffixes()) {
    if (const TensorInfo* part = source.find(base + "." + suffix)) parts[suffix] = part;
  }
  return parts;
}

bool is_matrix(const MatrixParts& parts) {
  const auto weight = parts.find("weight");
  return !parts.empty() && (weight == parts.end() || weight->second->shape.size() == 2);
}

// Copied when it is stored this way already. Of the int4 formats the group must be the same too.
bool is_stored_as(const StoredMatrix& stored, const StorageFormat& format) {
  if (stored.format != format.read_as) return false;
  if (format.name == "bf16") return stored.view.codec == Codec::bf16;
  return stored.view.codec != Codec::int4 || stored.view.group == format.column_granule;
}

class Conversion {
 public:
  Conversion(const Checkpoint& source, const ConvertTarget& target)
      : source_(source), target_(target) {
    std::set<std::string> bases;
    for (const auto& [name, tensor] : source.tensors()) {
      const auto [base, suffix] = split_tensor_name(name);
      if (!suffix.empty() && is_matrix(parts_of(source, base))) {
        bases.insert(base);
      } else {
        copied_.push_back(name);
      }
    }
    for (const std::string& base : bases) jobs_.push_back(plan(base));
  }

  std::vector<std::string> matrices() const {
    std::vector<std::string> bases;
    for (const MatrixJob& job : jobs_) bases.push_back(job.base);
    return bases;
  }

  std::vector<ConvertError> run(const fs::path& out) {
    CheckpointWriter writer(out, index());
    Progress progress("converting", static_cast<uint64_t>(source_.n_bytes()), "B");
    for (const std::string& name : copied_) {
      copy(name, writer);
      progress.advance(static_cast<uint64_t>(source_.find(name)->n_bytes()));
    }
    for (const MatrixJob& job : jobs_) {
      convert(job, writer);
      for (const auto& [suffix, part] : parts_of(source_, job.base)) {
        source_.release(*part);
        progress.advance(static_cast<uint64_t>(part->n_bytes()));
      }
    }
    writer.finish();
    std::vector<ConvertError> report;
    for (auto& [key, sum] : sums_) {
      sum.row.relative_error = sum.norm > 0.0 ? std::sqrt(sum.error / sum.norm) : 0.0;
      report.push_back(sum.row);
    }
    return report;
  }

 private:
  struct Sum {
    ConvertError row;
    double error = 0.0;
    double norm = 0.0;
  };

  MatrixJob plan(const std::string& base) const {
    const StoredMatrix stored = source_.matrix(base);
    const StorageFormat& format = storage_format(target_format(target_, base));
    MatrixJob job{base, &format, stored.view.n_rows, stored.view.n_cols};
    if (is_stored_as(stored, format)) {
      job.format = nullptr;
    } else {
      check_storage_shape(format, base, job.n_rows, job.n_cols);
    }
    return job;
  }

  std::vector<TensorInfo> index() const {
    std::vector<TensorInfo> index;
    const auto add_copy = [&](const std::string& name) {
      const TensorInfo& tensor = *source_.find(name);
      index.push_back({name, tensor.dtype, tensor.shape, {}});
    };
    for (const MatrixJob& job : jobs_) {
      if (job.format == nullptr) {
        for (const auto& [suffix, part] : parts_of(source_, job.base)) {
          add_copy(job.base + "." + suffix);
        }
        continue;
      }
      for (const PartSpec& part : job.format->parts(*job.format, job.n_rows, job.n_cols)) {
        index.push_back({job.base + "." + part.suffix, part.dtype, part.shape, {}});
      }
    }
    for (const std::string& name : copied_) add_copy(name);
    return index;
  }

  void copy(const std::string& name, CheckpointWriter& writer) const {
    constexpr int64_t kPieceBytes = int64_t{4} << 20;
    const TensorInfo& tensor = *source_.find(name);
    std::vector<std::byte> piece;
    for (int64_t done = 0; done < tensor.n_bytes(); done += kPieceBytes) {
      piece.resize(static_cast<size_t>(std::min(kPieceBytes, tensor.n_bytes() - done)));
      source_.read(tensor, done, piece);
      writer.append(name, piece);
    }
  }

  void convert(const MatrixJob& job, CheckpointWriter& writer) {
    const std::string group = tensor_class(job.base);
    if (job.format == nullptr) {
      for (const auto& [suffix, part] : parts_of(source_, job.base)) {
        copy(job.base + "." + suffix, writer);
      }
      ++sum_of(group, std::string(target_format(target_, job.base))).row.n_copied;
      return;
    }
    const StoredMatrix stored = source_.matrix(job.base);
    const bool same_codes =
        stored.view.codec == Codec::nvfp4 && job.format->name.rfind("nvfp4", 0) == 0;
    const MatrixSource rows{job.n_rows, job.n_cols, [&](int64_t row, float* values) {
                              decode_row(stored.view, row, values);
                            }};
    const PartBuffers buffers =
        same_codes ? other_nvfp4(stored.view, job) : encode_matrix(*job.format, job.base, rows);
    for (const auto& [suffix, bytes] : buffers) writer.append(job.base + "." + suffix, bytes);
    measure(job, stored.view, buffers, sum_of(group, std::string(job.format->name)));
  }

  // The two NVFP4 serialisations hold the same codes and block scales; only the global scale is
  // written as a multiplier in one and as a divisor in the other.
  static PartBuffers other_nvfp4(const WeightMatrix& view, const MatrixJob& job) {
    const auto* codes = view.codes;
    const auto* scales = static_cast<const std::byte*>(view.block_scales);
    const float multiplier = view.row_scale[0];
    const bool divides = job.format->name == "nvfp4-ct";
    const float global = divides ? 1.0f / multiplier : multiplier;
    PartBuffers buffers;
    buffers[divides ? "weight_packed" : "weight"].assign(codes,
                                                         codes + view.n_rows * view.row_bytes);
    buffers["weight_scale"].assign(scales, scales + view.n_rows * view.block_scale_stride);
    std::vector<std::byte>& stored = buffers[divides ? "weight_global_scale" : "weight_scale_2"];
    stored.resize(sizeof global);
    std::memcpy(stored.data(), &global, sizeof global);
    return buffers;
  }

  Sum& sum_of(const std::string& group, const std::string& format) {
    Sum& sum = sums_[{group, format}];
    sum.row.tensor_class = group;
    sum.row.format = format;
    return sum;
  }

  // Reads back what was encoded, as a rank would, and adds up its distance from the source.
  void measure(const MatrixJob& job, const WeightMatrix& before, const PartBuffers& buffers,
               Sum& sum) const {
    std::map<std::string, TensorInfo> infos;
    for (const PartSpec& part : job.format->parts(*job.format, job.n_rows, job.n_cols)) {
      infos[part.suffix] = {part.suffix, part.dtype, part.shape, buffers.at(part.suffix)};
    }
    MatrixParts parts;
    for (const auto& [suffix, info] : infos) parts[suffix] = &info;
    const StoredMatrix after = find_weight_format(job.base, parts).open(job.base, parts);
    std::vector<float> old_row(static_cast<size_t>(job.n_cols));
    std::vector<float> new_row(static_cast<size_t>(job.n_cols));
    double error = 0.0;
    double norm = 0.0;
    for (int64_t n = 0; n < job.n_rows; ++n) {
      decode_row(before, n, old_row.data());
      decode_row(after.view, n, new_row.data());
      for (size_t k = 0; k < old_row.size(); ++k) {
        const double difference = static_cast<double>(new_row[k]) - old_row[k];
        error += difference * difference;
        norm += static_cast<double>(old_row[k]) * old_row[k];
      }
    }
    ++sum.row.n_encoded;
    sum.error += error;
    sum.norm += norm;
    const double relative = norm > 0.0 ? std::sqrt(error / norm) : 0.0;
    if (relative >= sum.row.worst) {
      sum.row.worst = relative;
      sum.row.worst_matrix = job.base;
    }
  }

  const Checkpoint& source_;
  const ConvertTarget& target_;
  std::vector<MatrixJob> jobs_;
  std::vector<std::string> copied_;
  std::map<std::pair<std::string, std::string>, Sum> sums_;
};

}  // namespace

std::vector<ConvertError> convert_checkpoint(const Checkpoint& source,
                                             const CompanionFiles& companions,
                                             const ConvertTarget& target, const fs::path& out) {
  Conversion conversion(source, target);
  CompanionFiles files = companions;
  files["config.json"] = converted_config(files.at("config.json"), target, conversion.matrices());
  std::vector<ConvertError> report = conversion.run(out);
  write_companion_files(files, out);
  return report;
}

}  // namespace lockstep

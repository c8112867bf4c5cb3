// The serialisations of a weight matrix that checkpoints use, as a table of rows (one file each in
// engine/model/formats/). A matrix called BASE is a set of tensors BASE.suffix; the suffixes,
// dtypes and shapes present decide the row, never the config. Every matrix is a unit of its own:
// projections that engines like to fuse (q, k, v; gate, up) keep their own scales, so nothing has
// to be made equal.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/checkpoint.h"

namespace lockstep {

// Tensors of one matrix by suffix ("weight", "weight_scale", ...).
using MatrixParts = std::map<std::string, const TensorInfo*>;

// How a cut of the logical matrix along an axis falls on one stored tensor.
struct PartCut {
  int axis = -1;        // dimension of the stored tensor that is cut; -1: kept whole on every rank
  int64_t granule = 1;  // logical rows (or columns) in one step of that dimension
};

enum class MatrixAxis : uint8_t { rows, columns };

struct WeightFormat {
  std::string_view name;
  // True when these parts are this format. Looks at dtypes, suffixes and shapes, never at bytes.
  bool (*matches)(const MatrixParts& parts);
  // Checks every shape and value that could be wrong and builds the view. Throws Error naming BASE.
  StoredMatrix (*open)(const std::string& base, const MatrixParts& parts);
  // How a cut along `axis` falls on the part `suffix`. Looks at shapes alone.
  PartCut (*cut)(const MatrixParts& parts, const std::string& suffix, MatrixAxis axis);
};

const std::vector<WeightFormat>& weight_formats();

// The row that matches, or throws Error that lists what was found.
const WeightFormat& find_weight_format(const std::string& base, const MatrixParts& parts);

// Suffixes that can belong to a matrix.
const std::vector<std::string>& matrix_suffixes();

}  // namespace lockstep

// A rank's state as JSON and for Prometheus.
#pragma once

#include <cstdint>
#include <string>

#include "engine/rank/api/served_model.h"
#include "engine/rank/http/scheduler.h"

namespace lockstep {

// The body of GET /lockstep/status (docs/formats/rank-api.md).
std::string status_json(const ServedModel& model, const SchedulerStatus& status);

// The body of GET /metrics in Prometheus' text format.
std::string metrics_text(const ServedModel& model, const SchedulerStatus& status,
                         int64_t requests_refused);

}  // namespace lockstep

// C25 xid.watch.
#include <algorithm>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

// Xids that speak of the hardware (NVIDIA's Xid catalogue): memory, page retirement, NVLink, bus.
constexpr int kHardwareXids[] = {48, 63, 64, 74, 79, 94, 95};

bool contains(const std::vector<KernelLine>& lines, const KernelLine& line) {
  return std::any_of(lines.begin(), lines.end(), [&](const KernelLine& other) {
    return other.t_s == line.t_s && other.text == line.text;
  });
}

// The driver hands an Xid only to a process that waits for it; the kernel log keeps them all.
std::vector<int> logged_xids(const Context& context, int gpu) {
  const HostFacts& host = context.seen.host;
  std::vector<int> out;
  if (!host.kernel_log.has_value() || !host.kernel_log_end.has_value()) return out;
  for (const KernelLine& line : *host.kernel_log_end) {
    if (line.xid == 0 || line.bus != context.gpu(gpu).identity.bus_id) continue;
    const bool reported =
        std::any_of(context.seen.events.begin(), context.seen.events.end(),
                    [&](const Event& event) { return event.gpu == gpu && event.xid == line.xid; });
    if (!reported && !contains(*host.kernel_log, line)) out.push_back(line.xid);
  }
  return out;
}

void report_xid(int xid, Report& report) {
  report
      .add(is_hardware_xid(xid) ? Status::fail : Status::warn,
           say("Xid {} during the run", "运行中出现 Xid {}", xid))
      .value = xid;
}

}  // namespace

bool is_hardware_xid(int xid) {
  return std::find(std::begin(kHardwareXids), std::end(kHardwareXids), xid) !=
         std::end(kHardwareXids);
}

void check_events(const Context& context, int gpu, Report& report) {
  for (const Event& event : context.seen.events) {
    if (event.gpu != gpu) continue;
    if (event.kind == "lost") {
      report.add(Status::fail, say("the card stopped answering during the run", "运行中掉卡"),
                 say("power, slot, heat; then the card is bad: do not buy",
                     "查供电、插槽、温度；都正常就是卡坏：不要买"));
      continue;
    }
    report_xid(event.xid, report);
  }
  for (const int xid : logged_xids(context, gpu)) report_xid(xid, report);
  if (report.empty()) report.add(Status::pass, say("no Xid, no loss", "没有 Xid，没有掉卡"));
}

}  // namespace lockstep::probe

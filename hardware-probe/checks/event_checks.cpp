// C25 xid.watch.
#include <algorithm>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

// Xids that speak of the hardware (NVIDIA's Xid catalogue): memory, page retirement, NVLink, bus.
constexpr int kHardwareXids[] = {48, 63, 64, 74, 79, 94, 95};

}  // namespace

void check_events(const Context& context, int gpu, Report& report) {
  for (const Event& event : context.seen.events) {
    if (event.gpu != gpu) continue;
    if (event.kind == "lost") {
      report.add(Status::fail, say("the card stopped answering during the run", "运行中掉卡"),
                 say("power, slot, heat; then the card is bad: do not buy",
                     "查供电、插槽、温度；都正常就是卡坏：不要买"));
      continue;
    }
    const bool hardware = std::find(std::begin(kHardwareXids), std::end(kHardwareXids),
                                    event.xid) != std::end(kHardwareXids);
    report
        .add(hardware ? Status::fail : Status::warn,
             say("Xid {} during the run", "运行中出现 Xid {}", event.xid))
        .value = event.xid;
  }
  if (report.empty()) report.add(Status::pass, say("no Xid, no loss", "没有 Xid，没有掉卡"));
}

}  // namespace lockstep::probe

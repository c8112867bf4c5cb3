// C01 host.environment, C03 gpu.visible_to_driver, C24 stack.compat.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

bool in_container(const HostFacts& host) {
  return host.virtualization.find("container") != std::string::npos;
}

std::string bus_of(const std::string& entry) {
  return entry.substr(0, entry.find(' '));
}

std::string id_of(const std::string& entry) {
  const size_t space = entry.find(' ');
  return space == std::string::npos ? "" : entry.substr(space + 1);
}

bool listed(const std::vector<std::string>& list, const std::string& bus) {
  return std::find(list.begin(), list.end(), bus) != list.end();
}

int branch_of(const std::string& driver) {
  return std::atoi(driver.c_str());
}

// What the kernel log says last of a card.
std::string last_words(const Context& context, const std::string& bus) {
  if (!context.seen.host.kernel_log.has_value()) return "";
  std::string out;
  for (const KernelLine& line : *context.seen.host.kernel_log) {
    if (line.bus == bus) out = fmt::format(" [{}]", line.text);
  }
  return out;
}

void report_missing_gpu(const Context& context, const std::string& entry, Report& report) {
  const int branch = branch_of(context.seen.stack.driver_version);
  const Card* card = context.cards.match(id_of(entry), std::nullopt);
  const std::string name = card == nullptr ? id_of(entry) : card->name;
  if (card != nullptr && card->last_driver != 0 && branch > card->last_driver) {
    report.add(Status::fail,
               say("{} ({}) is in the machine but driver branch {} no longer supports it",
                   "{}（{}）插在机器上，但驱动分支 {} 已不再支持它", name, bus_of(entry), branch),
               say("install driver branch {}", "安装 {} 分支的驱动", card->last_driver));
    return;
  }
  if (in_container(context.seen.host)) {
    report.add(Status::info, say("{} ({}) is not handed to this container",
                                 "{}（{}）没有分配给这个容器", name, bus_of(entry)));
    return;
  }
  const std::string logged = last_words(context, bus_of(entry));
  report.add(Status::fail,
             say("{} ({}) is on the bus but the driver does not list it{}",
                 "{}（{}）在总线上，但驱动没有列出它{}", name, bus_of(entry), logged),
             say("look at the kernel log; try another slot, then another driver",
                 "查看内核日志；换插槽，再换驱动"));
}

std::string named(const KernelLibrary& library) {
  return fmt::format("{} ({})", library.version.empty() ? "?" : library.version, library.path);
}

void check_nccl(const StackFacts& stack, int arch, Report& report) {
  const KernelLibrary* usable = nullptr;
  std::string lacking;
  bool default_lacks = false;
  for (const KernelLibrary& library : stack.nccl) {
    if (has_kernels_for(library, arch)) {
      if (usable == nullptr) usable = &library;
      continue;
    }
    lacking += (lacking.empty() ? "" : ", ") + named(library);
    default_lacks = default_lacks || library.loader;
  }
  if (lacking.empty()) return;
  if (usable == nullptr) {
    report.add(Status::fail,
               say("NCCL {} holds no kernels for sm_{}: engines that use it die at start",
                   "NCCL {} 不含 sm_{} 的内核：用到它的引擎一启动就会崩溃", lacking, arch),
               say("use nvidia-nccl-cu12 2.21.5, or another build made with CUDA 12",
                   "改用 nvidia-nccl-cu12 2.21.5，或用 CUDA 12 编译的版本"));
    return;
  }
  report.add(default_lacks ? Status::warn : Status::info,
             say("NCCL {} holds no kernels for sm_{}; NCCL {} does",
                 "NCCL {} 不含 sm_{} 的内核；NCCL {} 含有", lacking, arch, named(*usable)),
             default_lacks
                 ? say("engines take the first one unless LD_LIBRARY_PATH names the other",
                       "引擎默认用前者，除非 LD_LIBRARY_PATH 指向后者")
                 : Text{});
}

void check_torch(const StackFacts& stack, int arch, Report& report) {
  for (const KernelLibrary& library : stack.torch) {
    if (has_kernels_for(library, arch)) continue;
    report.add(Status::warn,
               say("PyTorch {} holds no kernels for sm_{}", "PyTorch {} 不含 sm_{} 的内核",
                   named(library), arch),
               say("install a build made with CUDA 12.6, the last one with Volta",
                   "安装 CUDA 12.6 编译的版本，它是最后支持 Volta 的"));
  }
}

void check_last_driver(const Card& card, int branch, Report& report) {
  if (branch > card.last_driver) {
    report.add(
        Status::fail,
        say("driver branch {} is newer than the last one for {} ({})",
            "驱动分支 {} 比 {} 最后支持的分支（{}）还新", branch, card.name, card.last_driver),
        say("install driver branch {}", "安装 {} 分支的驱动", card.last_driver));
    return;
  }
  report.add(
      Status::info,
      say("{}: driver branch {} is the last one, CUDA 12 the last toolkit that builds for it",
          "{}：驱动最后支持到 {} 分支，CUDA 12 是最后能为它编译的工具链", card.name,
          card.last_driver));
}

void report_unread(const Context& context, Report& report) {
  const HostFacts& host = context.seen.host;
  std::string en, zh;
  if (host.acs == "unknown") en += "PCIe ACS", zh += "PCIe ACS";
  if (!host.kernel_log.has_value()) {
    en += std::string(en.empty() ? "" : " and ") + "the kernel log";
    zh += std::string(zh.empty() ? "" : "和") + "内核日志";
  }
  if (en.empty()) return;
  report.add(Status::info,
             Text{fmt::format("{} could not be read{}", en, host.root ? "" : "; root could"),
                  fmt::format("{}读不到{}", zh, host.root ? "" : "；用 root 可以读")});
}

}  // namespace

void check_environment(const Context& context, int, Report& report) {
  const HostFacts& host = context.seen.host;
  if (!host.virtualization.empty()) {
    report.add(Status::info,
               say("this host is virtual ({}): links and heat may belong to others too",
                   "这台主机是虚拟的（{}）：链路和散热可能与别人共用", host.virtualization));
  }
  if (host.iommu == "translated") {
    report.add(
        Status::warn,
        say("the IOMMU translates addresses: peer copies may be dropped or mirrored",
            "IOMMU 处于地址转换模式：卡间直连可能丢数据"),
        say("boot with iommu=pt, or switch the IOMMU off", "启动参数加 iommu=pt，或关闭 IOMMU"));
  }
  if (host.acs == "redirecting" && context.seen.gpus.size() > 1) {
    report.add(
        Status::warn,
        say("PCIe ACS sends peer traffic through the root ({}): peer copies are slow or lost",
            "PCIe ACS 让卡间数据绕道根端口（{}）：直连会变慢或丢失",
            fmt::join(host.acs_bridges, ", ")),
        say("switch ACS off in the firmware", "在固件里关闭 ACS"));
  }
  report_unread(context, report);
  report.conclude(say("{}, kernel {}", "{}，内核 {}", host.os, host.kernel));
}

void check_visibility(const Context& context, int, Report& report) {
  const Visibility& visible = context.seen.visible;
  if (!visible.cuda_present) {
    report.add(Status::inconclusive,
               say("no CUDA driver: {}", "没有 CUDA 驱动：{}", visible.cuda_error),
               say("install the NVIDIA driver (branch 580 or older for Volta)",
                   "安装 NVIDIA 驱动（Volta 用 580 或更早的分支）"));
  }
  if (!visible.nvml_present) {
    report.add(
        Status::inconclusive, say("no NVML: {}", "没有 NVML：{}", visible.nvml_error),
        say("install libnvidia-ml of the driver's own version", "安装与驱动同版本的 libnvidia-ml"));
  }
  if (visible.sysfs.empty() && visible.cuda.empty() && context.seen.gpus.empty()) {
    report.add(Status::inconclusive, say("no NVIDIA GPU found", "没有找到 NVIDIA 显卡"),
               say("check power and seating; --sim CARD shows what a report looks like",
                   "检查供电和插槽；用 --sim CARD 可以看报告的样子"));
  }
  if (!visible.nvml_present || !visible.cuda_present) return;
  for (const std::string& entry : visible.sysfs) {
    if (!listed(visible.nvml, bus_of(entry))) report_missing_gpu(context, entry, report);
  }
  for (const std::string& bus : visible.nvml) {
    if (listed(visible.cuda, bus)) continue;
    report.add(
        Status::fail,
        say("{} answers NVML but CUDA cannot open it", "{} 能被 NVML 看到，但 CUDA 打不开", bus),
        say("look at the kernel log for Xid lines", "查看内核日志里的 Xid"));
  }
  if (report.empty()) {
    report.add(Status::pass, say("{} GPU(s), the same in bus, NVML and CUDA",
                                 "{} 张卡，总线、NVML、CUDA 三处一致", visible.cuda.size()));
  }
}

void check_stack(const Context& context, int, Report& report) {
  const StackFacts& stack = context.seen.stack;
  if (stack.driver_version.empty()) {
    report.add(Status::inconclusive, say("the driver's version is unknown", "驱动版本未知"));
    return;
  }
  const int branch = branch_of(stack.driver_version);
  if (branch < kOldestDriver.value) {
    report.add(Status::warn, kOldestDriver, branch,
               say("driver branch {} is very old", "驱动分支 {} 太旧", branch),
               say("install branch 535 to 580", "安装 535 到 580 分支"));
  }
  // Two equal cards have one compatibility.
  std::set<std::string> models;
  std::set<int> archs;
  for (int gpu = 0; gpu < static_cast<int>(context.seen.gpus.size()); ++gpu) {
    const Card* card = context.row(gpu);
    if (card != nullptr && card->last_driver != 0 && models.insert(card->name).second)
      check_last_driver(*card, branch, report);
    const auto& capability = context.gpu(gpu).identity.compute_capability;
    if (capability.has_value())
      archs.insert(static_cast<int>(std::atof(capability->c_str()) * 10.0 + 0.5));
  }
  for (const int arch : archs) {
    check_nccl(stack, arch, report);
    check_torch(stack, arch, report);
  }
  if (stack.nccl.empty()) {
    report.add(Status::info, say("no NCCL on this machine", "这台机器没有 NCCL"));
  }
  report.conclude(say("driver {}", "驱动 {}", stack.driver_version));
}

}  // namespace lockstep::probe

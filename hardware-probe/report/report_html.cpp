// One self-contained page: no script from elsewhere, no font, no image.
#include <algorithm>
#include <cmath>
#include <map>

#include "hardware-probe/report/html_plots.h"
#include "hardware-probe/report/report.h"

namespace lockstep::probe {
namespace {

constexpr const char* kStyle = R"css(
:root{--ink:#1c2430;--mute:#5c6878;--line:#dfe4ea;--bg:#f5f7f9;--card:#fff;--pass:#1d7f4e;
  --warn:#a86400;--fail:#c0261f;--info:#23639c;--skip:#7545a8}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
  font:15px/1.5 system-ui,"Noto Sans","Noto Sans CJK SC","Microsoft YaHei",sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;
  padding:16px 20px;margin:0 0 16px}
h1{font-size:20px;margin:0}
h2{font-size:16px;margin:0 0 10px}
header{display:flex;justify-content:space-between;align-items:center;gap:12px;margin:0 0 16px}
button{border:1px solid var(--line);background:#fff;padding:5px 14px;font:inherit;
  cursor:pointer;color:var(--mute)}
button+button{border-left:0}
button:first-child{border-radius:6px 0 0 6px}
button:last-child{border-radius:0 6px 6px 0}
html[lang=en] .zh,html[lang=zh] .en{display:none}
html[lang=en] #en,html[lang=zh] #zh{background:var(--ink);color:#fff}
.verdict{color:#fff;border:0}
.verdict b{font-size:26px;display:block;line-height:1.3}
.accept{background:var(--pass)}
.notes,.inconclusive{background:var(--warn)}
.reject{background:var(--fail)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{color:var(--mute);font-weight:500;text-align:left;font-size:13px}
td,th{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
.tag{display:inline-block;min-width:46px;text-align:center;border-radius:4px;color:#fff;
  font-size:12px;padding:1px 7px}
.t-pass{background:var(--pass)}
.t-warn{background:var(--warn)}
.t-fail{background:var(--fail)}
.t-info{background:var(--info)}
.t-skip,.t-inconclusive{background:var(--skip)}
.mute{color:var(--mute);font-size:13px}
.remedy{color:var(--mute)}
.remedy::before{content:"→ "}
ol,ul{margin:0;padding-left:20px}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--mute)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:14px}
figure{margin:0}
figcaption{font-size:13px;color:var(--mute);margin:0 0 4px}
.matrix td,.matrix th,.matrix tr:last-child td{padding:8px 12px;border:1px solid var(--line)}
.good{background:#e3f4ea}
.bad{background:#fbe4e2}
.doubt{background:#fdf1dc}
.mono{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}
)css";

// The page follows the reader's language; #zh or #en in the address picks one.
constexpr const char* kScript = R"js(
function pick(l){document.documentElement.lang=l}
const asked=location.hash.slice(1);
const own=(navigator.language||'').startsWith('zh')?'zh':'en';
pick(asked==='zh'||asked==='en'?asked:own);
)js";

std::string both(const Text& text) {
  return "<span class=en>" + html_escape(text.en) + "</span><span class=zh>" +
         html_escape(text.zh) + "</span>";
}

std::string both(const char* en, const char* zh) {
  return both(Text{en, zh});
}

Text status_text(Status status) {
  switch (status) {
    case Status::pass:
      return {"pass", "通过"};
    case Status::info:
      return {"info", "说明"};
    case Status::warn:
      return {"note", "注意"};
    case Status::fail:
      return {"fail", "不通过"};
    case Status::skip:
      return {"skipped", "没测成"};
    case Status::inconclusive:
      return {"unclear", "不确定"};
  }
  return {};
}

Text mode_text(Mode mode) {
  if (mode == Mode::quick) return {"quick", "快速"};
  return mode == Mode::standard ? Text{"standard", "标准"} : Text{"deep", "深度"};
}

Text verdict_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::accept:
      return {"ACCEPT", "可以接受"};
    case Verdict::accept_with_notes:
      return {"ACCEPT WITH NOTES", "有保留地接受"};
    case Verdict::inconclusive:
      return {"INCONCLUSIVE", "无法判断"};
    case Verdict::reject:
      return {"REJECT", "拒收"};
  }
  return {};
}

const char* verdict_class(Verdict verdict) {
  if (verdict == Verdict::accept) return "accept";
  if (verdict == Verdict::accept_with_notes) return "notes";
  return verdict == Verdict::reject ? "reject" : "inconclusive";
}

std::string banner(const ReportInput& input) {
  const Judgement& judgement = input.judgement;
  const Text word = verdict_word(judgement.verdict);
  const Text mode = mode_text(input.seen.mode);
  const Coverage& c = judgement.coverage;
  std::string out =
      fmt::format("<section class=\"verdict {}\"><b>{}</b>{}<br>", verdict_class(judgement.verdict),
                  both({word.en + " (" + mode.en + ")", word.zh + "（" + mode.zh + "）"}),
                  both(verdict_text(judgement.verdict, input.seen.mode)));
  out += both(say("{} of {} checks ran; {:.1f} % of the memory and {:.0f} % of the SMs tested",
                  "{1} 项检查做了 {0} 项；测了 {2:.1f} % 的显存和 {3:.0f} % 的 SM", c.checks_run,
                  c.checks_total, 100 * c.memory_share, 100 * c.sm_share));
  if (input.seen.backend != "real") {
    out += "<br><b>" +
           both("SIMULATED: these figures are of no real card", "模拟结果：不是真卡的数据") +
           "</b>";
  }
  return out + "</section>";
}

std::string problem_list(const ReportInput& input) {
  std::string items;
  for (const Status wanted : {Status::fail, Status::skip, Status::inconclusive, Status::warn}) {
    for (const Finding& finding : input.judgement.findings) {
      if (finding.status != wanted) continue;
      items += fmt::format(
          "<li><span class=\"tag t-{}\">{}</span> <b>{}</b> <span class=mute>{}</span> {}",
          status_name(finding.status), both(status_text(finding.status)),
          html_escape(finding.target), html_escape(finding.name), both(finding.reason));
      if (!finding.remedy.en.empty())
        items += "<br><span class=remedy>" + both(finding.remedy) + "</span>";
      items += "</li>";
    }
  }
  if (items.empty())
    return "<section><h2>" + both("What is wrong", "有什么问题") + "</h2>" +
           both("Nothing was found.", "没有发现问题。") + "</section>";
  return "<section><h2>" + both("What is wrong", "有什么问题") + "</h2><ul>" + items +
         "</ul></section>";
}

std::string optional_cell(const Maybe<int>& value) {
  return value.has_value() ? std::to_string(*value) : "–";
}

std::string card_table(const ReportInput& input) {
  std::string out =
      "<section><h2>" + both("What it is", "这是什么卡") +
      "</h2><div class=scroll><table><tr><th>GPU</th><th>" + both("card", "型号") + "</th><th>" +
      both("driver's name", "驱动名称") + "</th><th>PCI</th><th>SM</th><th>" +
      both("max MHz", "最高 MHz") + "</th><th>" + both("memory MHz", "显存 MHz") + "</th><th>" +
      both("memory", "显存") + "</th><th>" + both("theory GB/s", "理论 GB/s") + "</th><th>" +
      both("measured GB/s", "实测 GB/s") + "</th><th>" + both("serial", "序列号") + "</th></tr>";
  for (size_t i = 0; i < input.seen.gpus.size(); ++i) {
    const GpuIdentity& id = input.seen.gpus[i].identity;
    const CardSummary& card = input.profile.cards[i];
    const std::string& row = input.judgement.rows[i];
    out += fmt::format(
        "<tr><td>gpu{}</td><td><b>{}</b></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
        "td><td>{} MiB</td><td>{:.0f}</td><td>{}</td><td>{}</td></tr>",
        i, row.empty() ? both("not in the database", "不在数据库里") : html_escape(row),
        html_escape(id.name.value_or("?")), html_escape(id.pci_id), optional_cell(id.sm_count),
        optional_cell(id.max_sm_mhz), optional_cell(id.max_memory_mhz), id.fb_mib.value_or(0),
        card.theory_gbps, card.read_gbps > 0 ? fmt::format("{:.0f}", card.read_gbps) : "–",
        html_escape(id.serial.value_or("–")));
  }
  return out + "</table></div></section>";
}

std::string ranking_list(const ReportInput& input) {
  std::string out = "<section><h2>" +
                    both("What decides the speed of language models", "跑大模型快慢由什么决定") +
                    "</h2>";
  for (const Text& line : input.judgement.ranking) out += "<div>" + both(line) + "</div>";
  return out + "</section>";
}

std::string findings_table(const ReportInput& input) {
  std::string out = "<section><h2>" + both("All checks", "全部检查") +
                    "</h2><div class=scroll><table><tr><th>" + both("check", "检查") + "</th><th>" +
                    both("target", "对象") + "</th><th></th><th>" + both("finding", "结果") +
                    "</th><th>" + both("threshold and its source", "阈值及来源") + "</th></tr>";
  for (const Finding& finding : input.judgement.findings) {
    std::string bar;
    if (finding.threshold.has_value())
      bar = fmt::format("{:g} {}: {}", *finding.threshold, finding.unit, finding.source);
    out += fmt::format(
        "<tr><td>{} <span class=mute>{}</span></td><td>{}</td><td><span class=\"tag "
        "t-{}\">{}</span></td><td>{}</td><td class=mute>{}</td></tr>",
        finding.check, html_escape(finding.name), html_escape(finding.target),
        status_name(finding.status), both(status_text(finding.status)), both(finding.reason),
        html_escape(bar));
  }
  return out + "</table></div></section>";
}

const char* pair_class(const ReportInput& input, int from, int to) {
  const std::vector<Finding>& findings = input.judgement.findings;
  if (!pair_is_trusted(findings, from, to)) return "bad";
  const bool noted = std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
    return f.target == pair_target(from, to) && f.status == Status::warn;
  });
  return noted ? "doubt" : "good";
}

// "stores by kernels ok": one step of the ladder and what became of it.
Text rung_text(const std::string& name, const std::string& outcome) {
  static const std::map<std::string, Text> names = {{"copy", {"copies", "复制引擎"}},
                                                    {"store", {"stores", "内核写"}},
                                                    {"load", {"loads", "内核读"}},
                                                    {"pingpong", {"two kernels", "两内核对话"}},
                                                    {"atomics", {"atomics", "原子操作"}}};
  static const std::map<std::string, Text> outcomes = {{"ok", {"ok", "正确"}},
                                                       {"wrong", {"WRONG", "出错"}},
                                                       {"hang", {"HANG", "卡死"}},
                                                       {"unsupported", {"not offered", "不提供"}},
                                                       {"error", {"error", "报错"}}};
  const auto known = [](const std::map<std::string, Text>& table, const std::string& key) {
    const auto found = table.find(key);
    return found == table.end() ? Text{key, key} : found->second;
  };
  const Text what = known(names, name), how = known(outcomes, outcome);
  return {what.en + " " + how.en, what.zh + how.zh};
}

std::string matrix_cell(const ReportInput& input, int from, int to) {
  if (from == to) return "<td>–</td>";
  for (const PairObservations& pair : input.seen.pairs) {
    if (pair.from != from || pair.to != to) continue;
    if (!pair.can_access.value_or(false))
      return "<td class=doubt>" + both("no peer access", "不能直连") + "</td>";
    Text rungs;
    for (const auto& [name, rung] : pair.rungs) {
      const Text step = rung_text(name, rung.outcome);
      rungs.en += (rungs.en.empty() ? "" : ", ") + step.en;
      rungs.zh += (rungs.zh.empty() ? "" : "，") + step.zh;
    }
    const auto flag = pair.latency_us.find("flag");
    const std::string latency =
        flag == pair.latency_us.end() ? "" : fmt::format(", {:.2f} µs", flag->second);
    const std::string rate =
        pair.copy_gbps.empty() ? "–" : fmt::format("{:.1f} GB/s", median(pair.copy_gbps));
    return fmt::format("<td class={}><b>{}</b>{}<br><span class=mute>{}</span></td>",
                       pair_class(input, from, to), rate, latency, both(rungs));
  }
  return "<td class=doubt>" + both("not tested", "没测") + "</td>";
}

std::string peer_matrix(const ReportInput& input) {
  const int n = static_cast<int>(input.seen.gpus.size());
  if (n < 2) return "";
  std::string out = "<section><h2>" +
                    both("Between the cards (row sends to column)", "卡间直连（行发往列）") +
                    "</h2><div class=scroll><table class=matrix><tr><th></th>";
  for (int to = 0; to < n; ++to) out += fmt::format("<th>gpu{}</th>", to);
  out += "</tr>";
  for (int from = 0; from < n; ++from) {
    out += fmt::format("<tr><th>gpu{}</th>", from);
    for (int to = 0; to < n; ++to) out += matrix_cell(input, from, to);
    out += "</tr>";
  }
  return out + "</table></div></section>";
}

std::string plot_section(const ReportInput& input) {
  const std::string plots = soak_plots(input.seen);
  if (plots.empty()) return "";
  return "<section><h2>" + both("Under load", "负载下") + "</h2>" + plots + "</section>";
}

std::string map_section(const ReportInput& input) {
  std::string maps;
  for (size_t i = 0; i < input.seen.gpus.size(); ++i) {
    const auto& map = input.seen.gpus[i].memory_map;
    if (map.has_value() && !map->empty())
      maps += memory_map_plot(fmt::format("gpu{}", i), *map, input.seen.gpus[i]);
  }
  if (maps.empty()) return "";
  return "<section><h2>" + both("Memory map: read speed by address", "显存地图：各地址的读速") +
         "</h2>" + maps + "<p class=mute>" +
         both(
             "Green is within 5 % of the median, amber slower, red slower than 90 %; a black mark "
             "is a wrong word.",
             "绿色与中位数相差 5 % 以内，黄色偏慢，红色低于 90 %；黑线是错字。") +
         "</p></section>";
}

std::string footer(const ReportInput& input) {
  return fmt::format(
      "<section class=mute>lockstep-probe {} · {} · nonce <span class=mono>{}</span> · "
      "{}<br>{}</section>",
      html_escape(input.program_version), html_escape(input.seen.backend),
      html_escape(input.seen.nonce), html_escape(input.seen.started),
      both("This page is for reading. The JSON report carries the signature; it proves that "
           "nothing was changed and when it was made (the nonce), not that the machine was honest.",
           "本页供阅读。签名在 JSON "
           "报告里：它证明内容未被改动、以及是何时做的（nonce），不能证明机器本身诚实。"));
}

}  // namespace

std::string report_to_html(const ReportInput& input) {
  std::string out =
      "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\"><title>lockstep probe</title><style>";
  out += kStyle;
  out += "</style></head><body><main><header><h1>" + both("Hardware acceptance", "显卡验收报告") +
         "</h1><div><button id=en onclick=\"pick('en')\">English</button><button id=zh "
         "onclick=\"pick('zh')\">中文</button></div></header>";
  out += banner(input) + problem_list(input) + card_table(input) + ranking_list(input) +
         peer_matrix(input) + plot_section(input) + map_section(input) + findings_table(input) +
         footer(input);
  out += "</main><script>";
  out += kScript;
  return out + "</script></body></html>\n";
}

}  // namespace lockstep::probe

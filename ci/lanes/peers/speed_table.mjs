// Medians of peers.sh --speed, side by side. Usage: speed_table.mjs FOLDER, with peer-N.json of
// llama_speed.mjs, and lockstep-N.json and lockstep16-N.json of 'lockstep bench cpu --json' with the
// checkpoint's own codes and with 16-bit weights.
import fs from "node:fs";
import path from "node:path";
import process from "node:process";

const folder = process.argv[2];
const read = (prefix) => fs.readdirSync(folder)
  .filter((name) => name.startsWith(prefix) && name.endsWith(".json"))
  .map((name) => JSON.parse(fs.readFileSync(path.join(folder, name), "utf8")));

// Every measurement under "engine | phase | tokens | threads".
const values = new Map();
function add(engine, phase, tokens, threads, value) {
  const key = [engine, phase, tokens, threads].join("|");
  values.set(key, [...(values.get(key) ?? []), value]);
}
for (const report of read("peer-")) {
  for (const row of report) {
    add("llama.cpp f16 (Node)", "prefill", row.tokens, row.threads, row.prefill);
    add("llama.cpp f16 (Node)", "decode", row.tokens, row.threads, row.decode);
  }
}
for (const [prefix, name] of [["lockstep-", "Lockstep"], ["lockstep16-", "Lockstep bf16"]]) {
  for (const report of read(prefix)) {
    for (const series of report.engine) {
      const [phase, drafts] = series.name.split(" ");
      add(`${name} TP=${series.tp} ${drafts}`, phase, series.tokens, series.tp * series.threads,
        series.value.median);
    }
  }
}

function cell(list) {
  if (!list) return "";
  const sorted = [...list].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  const median = sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  return `${median.toFixed(0)} (${sorted[0].toFixed(0)}-${sorted.at(-1).toFixed(0)})`;
}

const columns = [["prefill", 184], ["prefill", 2462], ["decode", 184], ["decode", 2462]];
const row = (cells) => console.log(cells[0].padEnd(24) + cells[1].padStart(8) +
  cells.slice(2).map((text) => text.padStart(22)).join(""));
row(["tokens/s", "threads", ...columns.map(([phase, tokens]) => `${phase} ${tokens}`)]);
const names = [...new Set([...values.keys()].map((key) => key.split("|")[0]))];
for (const engine of names) {
  for (const threads of [1, 2]) {
    const lists = columns.map(([phase, tokens]) =>
      values.get([engine, phase, tokens, threads].join("|")));
    if (lists.some(Boolean)) row([engine, String(threads), ...lists.map(cell)]);
  }
}

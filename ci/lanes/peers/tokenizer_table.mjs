// Medians of peers_tokenizer.sh --speed, side by side. Usage: tokenizer_table.mjs SPEED.jsonl
// Fails where the two did not give the same ids.
import fs from "node:fs";
import process from "node:process";

const rows = fs.readFileSync(process.argv[2], "utf8").trimEnd().split("\n")
  .map((line) => JSON.parse(line));
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const megabytes = (one) => one.bytes / 1e6 / one.seconds;

let failed = 0;
console.log("text      MB    chunk bytes   Lockstep MB/s   tokenizers MB/s   ratio (each run)");
for (const key of new Set(rows.map((row) => `${row.file} ${row.chunk}`))) {
  const runs = rows.filter((row) => `${row.file} ${row.chunk}` === key);
  for (const {own, peer} of runs) {
    if (own.tokens === peer.tokens && own.digest === peer.digest) continue;
    console.error(`${key}: ids differ: ${own.tokens} and ${peer.tokens} tokens`);
    failed = 1;
  }
  const [file, chunk] = key.split(" ");
  const ratios = runs.map(({own, peer}) => megabytes(own) / megabytes(peer));
  console.log(file.padEnd(8) + (runs[0].own.bytes / 1e6).toFixed(2).padStart(5) +
    chunk.padStart(14) + median(runs.map((run) => megabytes(run.own))).toFixed(1).padStart(16) +
    median(runs.map((run) => megabytes(run.peer))).toFixed(1).padStart(18) +
    `${median(ratios).toFixed(1)} (${ratios.map((r) => r.toFixed(1)).join(" ")})`.padStart(34));
}
process.exit(failed);

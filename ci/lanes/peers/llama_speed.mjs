// Prefill and decode speed of llama.cpp (npm package node-llama-cpp) on two prompts of an oracle.
// Usage: llama_speed.mjs MODEL.gguf ORACLE.json; prints a JSON list of
// {threads, tokens, prefill, decode}, both in tokens/s.
import fs from "node:fs";
import path from "node:path";
import process from "node:process";
import {pathToFileURL} from "node:url";

const kDecodeTokens = 64;
const [modelPath, oraclePath] = process.argv.slice(2);
// The package lies where the lane put it, not beside this file.
const packagePath = path.join(process.cwd(), "node_modules", "node-llama-cpp");
const {getLlama} = await import(pathToFileURL(path.join(packagePath, "dist", "index.js")).href);

const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});
const model = await llama.loadModel({modelPath});
const prompts = JSON.parse(fs.readFileSync(oraclePath, "utf8")).prompts
  .filter((prompt) => ["code-short", "code-3k"].includes(prompt.name));

async function measure(ids, threads) {
  const context = await model.createContext({
    contextSize: ids.length + kDecodeTokens + 64, batchSize: 512, threads, flashAttention: true});
  const sequence = context.getSequence();
  const start = performance.now();
  await sequence.evaluateWithoutGeneratingNewTokens(ids);
  const prefillS = (performance.now() - start) / 1000;
  // The clock of decode starts at its first token: starting the loop is not decode.
  let begin = 0;
  let n = -1;
  for await (const _ of sequence.evaluate([ids.at(-1)], {temperature: 0, yieldEogToken: true})) {
    if (++n === 0) begin = performance.now();
    if (n === kDecodeTokens) break;
  }
  const decodeS = (performance.now() - begin) / 1000;
  await context.dispose();
  return {threads, tokens: ids.length, prefill: ids.length / prefillS, decode: n / decodeS};
}

const report = [];
for (const threads of [1, 2]) {
  await measure(prompts[0].ids, threads);
  for (const prompt of prompts) report.push(await measure(prompt.ids, threads));
}
console.log(JSON.stringify(report));
process.exit(0);

// Greedy tokens of llama.cpp (npm package node-llama-cpp) on an oracle's text prompts.
// Usage: llama_greedy.mjs MODEL.gguf ORACLE.json
// Prints one JSON object: matches, tokens, and where each prompt forks.
import fs from "node:fs";
import path from "node:path";
import process from "node:process";
import {pathToFileURL} from "node:url";

const [modelPath, oraclePath] = process.argv.slice(2);
// The package lies where the lane put it, not beside this file.
const entry = path.join(process.cwd(), "node_modules", "node-llama-cpp", "dist", "index.js");
const {getLlama} = await import(pathToFileURL(entry).href);

const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});
const model = await llama.loadModel({modelPath});
const prompts = JSON.parse(fs.readFileSync(oraclePath, "utf8")).prompts
  .filter((prompt) => !prompt.image && !prompt.images);

const report = {matches: 0, tokens: 0, forks: {}};
for (const prompt of prompts) {
  const context = await model.createContext({
    contextSize: prompt.ids.length + prompt.greedy.length + 8, batchSize: 64, threads: 1});
  const sequence = context.getSequence();
  let step = 0;
  for await (const token of sequence.evaluate(prompt.ids, {temperature: 0, yieldEogToken: true})) {
    const same = token === prompt.greedy[step];
    report.tokens += 1;
    report.matches += same ? 1 : 0;
    if (!same && !(prompt.name in report.forks)) report.forks[prompt.name] = step;
    if (++step === prompt.greedy.length) break;
  }
  await context.dispose();
}
console.log(JSON.stringify(report));
process.exit(0);

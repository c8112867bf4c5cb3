// Ids and decoded texts of 'lockstep tokenize' beside Hugging Face tokenizers (npm).
// Usage: tokenizer_check.mjs MODEL CASES.jsonl PROGRAM SEED
// The peer must first give the recorded cases; then both read new texts made from SEED. A peer
// without normalisation must be told apart on the same texts: a check that cannot fail proves
// nothing.
import {execFileSync} from "node:child_process";
import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";
import process from "node:process";
import {makeTexts} from "./tokenizer_texts.mjs";

const kNewTexts = 2000;
const [model, casesPath, program, seed] = process.argv.slice(2);
// The package lies where the lane put it, not beside this file.
const require = createRequire(path.join(process.cwd(), "package.json"));
const {Tokenizer} = require("tokenizers");
const tokenizerJson = fs.readFileSync(path.join(model, "tokenizer.json"), "utf8");

async function peerResults(tokenizer, texts) {
  const results = [];
  for (const text of texts) {
    const ids = (await tokenizer.encode(text, null, {addSpecialTokens: false})).getIds();
    results.push({ids, decoded: await tokenizer.decode(ids, false)});
  }
  return results;
}

function ownResults(texts) {
  const input = texts.map((text) => JSON.stringify({text}) + "\n").join("");
  const output = execFileSync(program, ["--model", model, "--jsonl", "-"],
    {input, maxBuffer: 1 << 28});
  return output.toString("utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
}

function countDifferent(a, b) {
  if (a.length !== b.length) throw new Error(`${a.length} results for ${b.length} texts`);
  return a.filter((one, i) => one.decoded !== b[i].decoded ||
    one.ids.join() !== b[i].ids.join()).length;
}

const cases = fs.readFileSync(casesPath, "utf8").trimEnd().split("\n")
  .map((line) => JSON.parse(line));
const peer = Tokenizer.fromString(tokenizerJson);
const texts = makeTexts(kNewTexts, Number(seed));
const expected = await peerResults(peer, texts);
const withoutRule = JSON.parse(tokenizerJson);
withoutRule.normalizer = null;
const faulty = await peerResults(Tokenizer.fromString(JSON.stringify(withoutRule)), texts);

const report = {
  recorded: cases.length,
  recorded_peer_differs: countDifferent(await peerResults(peer, cases.map((one) => one.text)),
    cases),
  new: texts.length,
  new_differ: countDifferent(ownResults(texts), expected),
  planted_differ: countDifferent(ownResults(texts), faulty),
};
console.log(JSON.stringify(report));
const good = report.recorded === 5000 && report.recorded_peer_differs === 0 &&
  report.new_differ === 0 && report.planted_differ > 20;
process.exit(good ? 0 : 1);

// Encode speed of Hugging Face tokenizers (npm) on one file, as engine/text/bench/encode_speed.cpp
// measures ours. Usage: tokenizer_speed.mjs TOKENIZER.json FILE CHUNK_BYTES
// Prints {bytes, tokens, digest, seconds}; one untimed pass comes first.
import fs from "node:fs";
import {createRequire} from "node:module";
import path from "node:path";
import process from "node:process";

const [tokenizerPath, file, chunkBytes] = process.argv.slice(2);
const require = createRequire(path.join(process.cwd(), "package.json"));
const {Tokenizer} = require("tokenizers");
const tokenizer = Tokenizer.fromFile(tokenizerPath);

// Chunks end at the first line end behind CHUNK_BYTES bytes.
function chunksOf(bytes, least) {
  const chunks = [];
  for (let begin = 0; begin < bytes.length;) {
    const line = bytes.indexOf(10, Math.min(begin + least, bytes.length));
    const end = line < 0 ? bytes.length : line + 1;
    chunks.push(bytes.subarray(begin, end).toString("utf8"));
    begin = end;
  }
  return chunks;
}

const bytes = fs.readFileSync(file);
const chunks = chunksOf(bytes, Number(chunkBytes));
const encodeAll = async () => {
  const encodings = [];
  for (const chunk of chunks) {
    encodings.push(await tokenizer.encode(chunk, null, {addSpecialTokens: false}));
  }
  return encodings;
};
await encodeAll();
const start = performance.now();
const encodings = await encodeAll();
const seconds = (performance.now() - start) / 1000;
// FNV-1a over the ids.
let digest = 0x811c9dc5;
let tokens = 0;
for (const encoding of encodings) {
  for (const id of encoding.getIds()) {
    digest = Math.imul(digest ^ id, 0x01000193) >>> 0;
    ++tokens;
  }
}
console.log(JSON.stringify({bytes: bytes.length, tokens, digest, seconds}));

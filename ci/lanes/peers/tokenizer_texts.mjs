// Texts as in golden/tokenizer, from a seed: every Unicode plane, white space of all kinds,
// line ends, combining marks, added tokens whole and broken, contractions, random bytes.

// mulberry32: small, and the same everywhere.
function makeRandom(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % limit;
  };
}

const kWords = ["we've", "I'LL", "'\u017f", "'re", "don'T", "def", "f(x):", "==", "{{}}", "3.14",
  "1_000", "\u6e29\u5ea6", "\u5168\u89d2\uff01", "\u05e2\u05d1\u05e8\u05d9\u05ea",
  "\u0939\u093f\u0928\u094d\u0926\u0940", "\u{1f642}", "\u{1f468}\u200d\u{1f469}", "e\u0301",
  "\u00c5", "A\u030a", "\u1112\u1161\u11ab", "\u0958", "\u00b2", "\u2460", "//", "\\n", "...",
  "\u00a0", "http", "://", "camelCase", "SNAKE_CASE"];
const kSpaces = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\u000b", "\u000c", "\u001c",
  "\u001f", "\u0085", "\u00a0", "\u1680", "\u180e", "\u2003", "\u200b", "\u2028", "\u2029",
  "\u202f", "\u205f", "\u3000", "\ufeff"];
const kAdded = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>",
  "<tool_call>", "</tool_call>", "<|image_pad|>", "<|im_", "im_end|>", "<think", "<|", "|>"];

function codePoint(random, begin, end) {
  const code = begin + random(end - begin);
  return code >= 0xd800 && code < 0xe000 ? "z" : String.fromCodePoint(code);
}

function repeat(random, most, make) {
  let text = "";
  for (let n = 1 + random(most); n > 0; --n) text += make();
  return text;
}

const kKinds = [
  (random) => repeat(random, 20, () => kWords[random(kWords.length)] + kSpaces[random(8)]),
  (random) => repeat(random, 20, () => codePoint(random, 0, 0x110000)),
  (random) => repeat(random, 30, () => codePoint(random, 0, 0x3000)),
  (random) => repeat(random, 30, () => codePoint(random, 0x20, 0x7f)),
  (random) => repeat(random, 12, () => codePoint(random, 0x41, 0x250) +
    repeat(random, 4, () => codePoint(random, 0x300, 0x370))),
  // Scripts whose marks have combining classes, compositions or exclusions.
  (random) => repeat(random, 20, () => codePoint(random, ...[[0x590, 0x900], [0x900, 0xe00],
    [0xe00, 0x1100], [0x1100, 0x1200], [0x1ab0, 0x2000], [0x20d0, 0x2100], [0x3040, 0x3100],
    [0xac00, 0xd7a4], [0xf900, 0xfb50], [0x10a00, 0x11a00], [0x1d150, 0x1d200],
    [0x1e000, 0x1e900]][random(12)])),
  (random) => repeat(random, 15, () => random(3) === 0 ? codePoint(random, 0x30, 0x7b)
    : kSpaces[random(kSpaces.length)]),
  (random) => repeat(random, 12, () => {
    const list = [kAdded, kWords, kSpaces][random(3)];
    return list[random(list.length)];
  }),
  (random) => Buffer.from(Array.from({length: 1 + random(40)}, () => random(256)))
    .toString("utf8"),
];

export function makeTexts(n, seed) {
  const random = makeRandom(seed);
  return Array.from({length: n}, (_, i) => kKinds[i % kKinds.length](random));
}

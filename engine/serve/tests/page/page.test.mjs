// The page as its users meet it.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {Browser} from './browser.mjs';

const DESK = {width: 1280, height: 800};
const PHONE = {width: 390, height: 844, phone: true};
const LONG = 'Count to a thousand: one, two, three, four, five';
let browser;
let server;
let url;
let folder;
const log = [];

function screenshot(name) {
  return join(process.env.LOCKSTEP_SCREENSHOTS, name + '.png');
}

function rankPids() {
  return log.join('').split('\n').filter((line) => line.includes('"event":"rank_started"'))
    .map((line) => JSON.parse(line).pid);
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'lockstep-page-server-'));
  server = spawn(process.env.LOCKSTEP_SERVE, ['--model=' + process.env.LOCKSTEP_GOLDEN_DIR +
    '/tiny-qwen3_5', '--port=0', '--threads=1', '--halt-dir=' + folder],
  {stdio: ['ignore', 'pipe', 'pipe']});
  server.stderr.on('data', (text) => log.push(String(text)));
  const said = await new Promise((resolve, reject) => {
    server.stdout.once('data', resolve);
    server.once('exit', () => reject(new Error(log.join(''))));
  });
  url = 'http://127.0.0.1:' + JSON.parse(String(said).split('\n')[0]).port + '/';
  browser = await Browser.start(process.env.CHROMIUM);
});

after(async () => {
  await browser.close();
  const ended = new Promise((resolve) => server.once('exit', resolve));
  server.kill();
  await ended;
  rmSync(folder, {recursive: true, force: true});
});

const SENDS = 'document.getElementById("send").textContent === "Send"';
const STOPS = 'document.getElementById("send").textContent === "Stop"';
const count = (what) => `document.querySelectorAll("#messages ${what}").length`;
const text = (what) =>
  `([...document.querySelectorAll("#messages ${what}")].pop()?.textContent ?? "")`;

async function open(size) {
  const tab = await browser.open(url, size);
  await tab.until('document.getElementById("state").textContent === "ready"');
  return tab;
}

// The golden model soon says that it has finished: goes on to max tokens instead.
async function openEndless(size) {
  const tab = await open(size);
  await tab.value(`(() => {
    const plain = window.fetch;
    window.fetch = (path, options) => plain(path, options?.body ?
      {...options, body: options.body.replace('{', '{"ignore_eos":true,')} : options);
  })()`);
  return tab;
}

async function send(tab, words, maxTokens = 32) {
  await tab.value(`document.getElementById("max-tokens").value = ${maxTokens}`);
  await tab.type('#prompt', words);
  await tab.click('#send');
}

for (const [name, size] of [['desk', DESK], ['phone', PHONE]]) {
  test('a chat, as on a ' + name, async () => {
    const tab = await open(size);
    await tab.until('document.getElementById("model").textContent === "tiny-qwen3_5"');
    await tab.type('#prompt', 'What is two and two?');
    await tab.press('Enter', 13);
    await tab.until(count('li.assistant .note') + ' === 1');
    await tab.until(SENDS);
    assert.match(await tab.value(text('li.assistant')), /\d+ tokens/);
    assert.equal(await tab.value(text('li.user')), 'What is two and two?');
    await send(tab, 'And three?');
    await tab.until(count('li.assistant .note') + ' === 2');
    await tab.screenshot(screenshot(name + '-chat'));
    assert.equal(await tab.value('document.documentElement.scrollWidth'), size.width,
      'nothing lies beyond the right edge');
    assert.ok(await tab.value(
      'parseFloat(getComputedStyle(document.getElementById("prompt")).fontSize) >= 16'),
    'below 16 px a phone zooms in on the field');
    assert.deepEqual(browser.errors, []);
  });

  test('Stop and New chat, as on a ' + name, async () => {
    const tab = await openEndless(size);
    await send(tab, LONG, 20000);
    await tab.until(STOPS);
    await tab.until(`${count('li.assistant')} === 1 && ${text('li.assistant')} !== ""`);
    await tab.click('#send');
    await tab.until(SENDS);
    const answer = await tab.value(text('li.assistant'));
    assert.match(answer, /stopped$/);
    await tab.until(`fetch("/lockstep/status").then((r) => r.json()).then((s) =>
      s.in_flight.length === 0 && s.requests.cancelled > 0)`);
    assert.equal(await tab.value(text('li.assistant')), answer, 'nothing comes behind a stop');
    await send(tab, LONG, 20000);
    await tab.until(STOPS);
    await tab.click('#new-chat');
    await tab.until(SENDS);
    await tab.until(count('li') + ' === 0');
    assert.equal(await tab.value('document.getElementById("hint").hidden'), false);
    await send(tab, 'hello');
    await tab.until(count('li.assistant .note') + ' === 1');
    assert.equal(await tab.value(count('li')), 2, 'the old chat is gone');
    assert.equal(await tab.value('history.map((turn) => turn.role).join()'), 'user,assistant',
      'what was stopped is no part of the new chat');
    assert.deepEqual(browser.errors, []);
  });

  test('the end of a long answer stays in view, as on a ' + name, async () => {
    const tab = await open(size);
    // In pieces, as a stream brings them.
    await tab.value(`(() => {
      window.view = answerView();
      for (let i = 0; i < 200; ++i) view.say('line ' + i + '\\n');
    })()`);
    const below = 'hiddenBelow(document.querySelector("#messages li:last-child"))';
    assert.ok(await tab.value(below) <= 0, 'the last line is seen');
    await tab.screenshot(screenshot(name + '-long'));
    await tab.value('(document.scrollingElement.scrollTop = 0, $("messages").scrollTop = 0)');
    await tab.value('view.say("more")');
    assert.ok(await tab.value(below) > 100, 'a reader who has scrolled up is left there');
  });
}

test('a halt is shown, and the chat goes on', async () => {
  const tab = await openEndless(DESK);
  await send(tab, LONG, 20000);
  await tab.until(`${count('li.assistant')} === 1 && ${text('li.assistant')} !== ""`);
  process.kill(rankPids()[1], 'SIGKILL');
  await tab.until(count('li.error') + ' === 1');
  await tab.until('document.getElementById("halt-count").textContent === "1"');
  await tab.until('document.getElementById("state").textContent === "ready"');
  assert.match(await tab.value('document.getElementById("halts").textContent'), /rank 1 was killed/);
  assert.equal(await tab.value('document.getElementById("prompt").value'), LONG,
    'the question may be sent again');
  await tab.screenshot(screenshot('desk-halt'));
  await send(tab, 'hello');
  await tab.until(count('li.assistant:not(.error) .note') + ' === 1');
});

// The reports for people on a phone: nothing lies beyond the right edge.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {pathToFileURL} from 'node:url';
import {Browser} from '../../engine/serve/tests/page/browser.mjs';

const PHONE = {width: 390, height: 844, phone: true};
const GOLDEN = process.env.LOCKSTEP_GOLDEN_DIR;
const ENGINE = join(process.env.LOCKSTEP_PROGRAMS, 'lockstep-generate');
let browser;
let folder;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'lockstep-reports-'));
  browser = await Browser.start(process.env.CHROMIUM);
});

after(async () => {
  await browser.close();
  rmSync(folder, {recursive: true, force: true});
});

// A red verdict is an exit code too, and a red report is the longest.
function run(program, ...options) {
  try {
    execFileSync(join(process.env.LOCKSTEP_PROGRAMS, 'lockstep-' + program), options,
      {stdio: 'ignore'});
  } catch (error) {
    assert.equal(error.status, 1, program + ': ' + error.message);
  }
}

async function keepsTheWidth(name, file) {
  const tab = await browser.open(pathToFileURL(file).href, PHONE);
  await tab.screenshot(join(process.env.LOCKSTEP_SCREENSHOTS, name + '-report.png'));
  assert.equal(await tab.value('innerWidth'), PHONE.width, 'the page is not zoomed out');
  const beyond = `[...document.querySelectorAll("body *")].filter((one) =>
    !one.parentElement.closest("table, .scroll, svg") && !one.matches("tbody, tr, td, th") &&
    one.getBoundingClientRect().right > ${PHONE.width}).map((one) => one.outerHTML.slice(0, 120))`;
  assert.deepEqual(await tab.value(beyond), []);
  assert.equal(await tab.value('document.documentElement.scrollWidth'), PHONE.width);
}

test('the report of the gate', async () => {
  run('gate', '--out', folder, '--fault', 'mlp.rows-permuted', '--prompts', 'utf8-mixed,chat-code',
    '--only', 'oracle-tp1-fp32,oracle-tp2-fp32,i3-fp32,empty-run');
  await keepsTheWidth('gate', join(folder, 'report.html'));
});

test('the report of diverge', async () => {
  const file = join(folder, 'diverge.html');
  run('diverge', ENGINE + ' --precision fp32', ENGINE + ' --precision fp32 --fault ' +
    'mlp.rows-permuted', '--model', GOLDEN + '/tiny-qwen3_5', '--prompts',
  GOLDEN + '/oracle/public', '--prompt', 'utf8-mixed', '--local', '1', '--html', file);
  await keepsTheWidth('diverge', file);
});

test('the page of the probe', async () => {
  const file = join(folder, 'probe.html');
  run('probe', '--sim', 'V100-SXM2-32GB,p2p-mirror', '--standard', '--html', file);
  await keepsTheWidth('probe', file);
});

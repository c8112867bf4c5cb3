// Chromium, driven through the pipe of its DevTools protocol: no package is needed.
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const FLAGS = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
  '--no-first-run', '--hide-scrollbars', '--remote-debugging-pipe'];

export class Browser {
  static async start(program) {
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), 'lockstep-page-'));
    browser.child = spawn(program, [...FLAGS, '--user-data-dir=' + browser.profile, 'about:blank'],
      {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
    browser.waiting = new Map();
    browser.errors = [];
    browser.last = 0;
    let rest = '';
    browser.child.stdio[4].setEncoding('utf8');
    browser.child.stdio[4].on('data', (text) => {
      const messages = (rest + text).split('\0');
      rest = messages.pop();
      for (const message of messages) browser.take(JSON.parse(message));
    });
    browser.child.on('exit', () => {
      for (const {reject} of browser.waiting.values()) reject(new Error('the browser ended'));
    });
    return browser;
  }

  take(message) {
    if (message.method === 'Runtime.exceptionThrown') {
      const details = message.params.exceptionDetails;
      this.errors.push(details.exception?.description || details.text);
    }
    const waiting = this.waiting.get(message.id);
    if (!waiting) return;
    this.waiting.delete(message.id);
    if (message.error) waiting.reject(new Error(waiting.method + ': ' + message.error.message));
    else waiting.resolve(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.last;
    this.child.stdio[3].write(JSON.stringify({id, method, params, sessionId}) + '\0');
    return new Promise((resolve, reject) => this.waiting.set(id, {method, resolve, reject}));
  }

  // A fresh tab of `width` x `height` CSS pixels.
  async open(url, {width, height, phone = false}) {
    const {targetId} = await this.send('Target.createTarget', {url: 'about:blank'});
    const {sessionId} = await this.send('Target.attachToTarget', {targetId, flatten: true});
    const tab = new Tab(this, sessionId);
    await tab.send('Runtime.enable');
    await tab.send('Emulation.setDeviceMetricsOverride',
      {width, height, deviceScaleFactor: phone ? 2 : 1, mobile: phone});
    if (phone) await tab.send('Emulation.setTouchEmulationEnabled', {enabled: true});
    await tab.send('Page.navigate', {url});
    await tab.until('document.readyState === "complete"');
    return tab;
  }

  async close() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.send('Browser.close').catch(() => {});
    await ended;
    rmSync(this.profile, {recursive: true, force: true, maxRetries: 20, retryDelay: 100});
  }
}

class Tab {
  constructor(browser, sessionId) {
    this.browser = browser;
    this.sessionId = sessionId;
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  async value(expression) {
    const {result, exceptionDetails} = await this.send('Runtime.evaluate',
      {expression, returnByValue: true, awaitPromise: true});
    if (exceptionDetails) throw new Error(expression + ': ' + exceptionDetails.text);
    return result.value;
  }

  // Waits until the page says so; the bound is for a test that would otherwise hang.
  async until(expression, bound_ms = 180000) {
    const end = Date.now() + bound_ms;
    while (!await this.value(expression)) {
      if (Date.now() > end) throw new Error('never: ' + expression);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  // A click where the element is seen: fails when something else lies over it.
  async click(selector) {
    const at = await this.value(`(() => {
      const element = document.querySelector(${JSON.stringify(selector)});
      const box = element.getBoundingClientRect();
      const x = box.x + box.width / 2;
      const y = box.y + box.height / 2;
      const hit = document.elementFromPoint(x, y);
      return {x, y, free: hit !== null && (hit === element || element.contains(hit))};
    })()`);
    if (!at.free) throw new Error(selector + ' cannot be clicked at ' + JSON.stringify(at));
    for (const type of ['mousePressed', 'mouseReleased']) {
      await this.send('Input.dispatchMouseEvent',
        {type, x: at.x, y: at.y, button: 'left', clickCount: 1});
    }
  }

  async type(selector, text) {
    await this.value(`document.querySelector(${JSON.stringify(selector)}).focus()`);
    await this.value(`document.querySelector(${JSON.stringify(selector)}).select()`);
    await this.send('Input.insertText', {text});
  }

  async press(key, code) {
    for (const type of ['keyDown', 'keyUp']) {
      await this.send('Input.dispatchKeyEvent',
        {type, key, code: key, windowsVirtualKeyCode: code, text: key === 'Enter' ? '\r' : ''});
    }
  }

  async screenshot(path) {
    const {data} = await this.send('Page.captureScreenshot', {format: 'png'});
    writeFileSync(path, Buffer.from(data, 'base64'));
  }
}

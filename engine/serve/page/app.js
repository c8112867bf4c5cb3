'use strict';
const $ = (id) => document.getElementById(id);
let history = [];  // of the chat on the page; a new chat gets its own
let key = sessionStorage.getItem('key') || '';
let running = null;  // AbortController of the answer that streams in
let model = null;
let last = null;  // previous state, for rates

function headers() {
  const all = {'content-type': 'application/json'};
  if (key) all.authorization = 'Bearer ' + key;
  return all;
}

let asking = null;
function askForKey() {
  if (!asking) {
    asking = new Promise((resolve) => {
      $('key-dialog').showModal();
      $('key-dialog').addEventListener('close', () => {
        key = $('key').value.trim();
        sessionStorage.setItem('key', key);
        asking = null;
        resolve();
      }, {once: true});
    });
  }
  return asking;
}

async function get(path) {
  const response = await fetch(path, {headers: headers()});
  if (response.status === 401) {
    await askForKey();
    throw new Error('wants a key');
  }
  if (!response.ok) throw new Error(path + ': ' + response.status);
  return response.json();
}

// Chat

// How far an item reaches below what is seen of the chat. The list scrolls, or on a phone the page.
function hiddenBelow(item) {
  return item.getBoundingClientRect().bottom - $('ask').getBoundingClientRect().top;
}

// Lets `change` make an item longer; its end stays in view if it was.
function grow(item, change) {
  const follow = hiddenBelow(item) < 60;
  change();
  const below = hiddenBelow(item) + 12;
  if (!follow || below <= 0) return;
  const list = $('messages');
  const scroller = list.scrollHeight > list.clientHeight ? list : document.scrollingElement;
  scroller.scrollTop += below;
}

function show(role, text) {
  $('hint').hidden = true;
  const item = document.createElement('li');
  item.className = role;
  $('messages').append(item);
  item.scrollIntoView({block: 'nearest'});
  grow(item, () => { item.textContent = text; });
  return item;
}

// One answer as it grows: thinking apart, then the text, then a note.
function answerView() {
  const item = show('assistant', '');
  let thinking = null;
  const text = document.createTextNode('');
  item.append(text);
  return {
    think(piece) {
      if (!thinking) {
        const box = document.createElement('details');
        box.open = true;
        const summary = document.createElement('summary');
        summary.textContent = 'Thinking';
        thinking = document.createTextNode('');
        box.append(summary, thinking);
        item.prepend(box);
      }
      grow(item, () => { thinking.data += piece; });
    },
    say(piece) {
      grow(item, () => { text.data += piece; });
    },
    note(words) {
      const note = document.createElement('span');
      note.className = 'note';
      note.textContent = words;
      grow(item, () => item.append(note));
    },
    fail(words) {
      item.classList.add('error');
      this.note(words);
    },
    get text() { return text.data; },
  };
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split('\n').filter((line) => line.startsWith('data: '))
        .map((line) => line.slice(6)).join('\n');
      if (data === '[DONE]') return;
      if (data) yield JSON.parse(data);
    }
  }
}

async function readAnswer(response, view) {
  let finish = null;
  let usage = null;
  const begin = performance.now();
  let first = null;
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) usage = event.usage;
    const choice = event.choices && event.choices[0];
    if (!choice) continue;
    if (choice.delta.reasoning_content) view.think(choice.delta.reasoning_content);
    if (choice.delta.content) view.say(choice.delta.content);
    if ((choice.delta.content || choice.delta.reasoning_content) && first === null) {
      first = performance.now();
    }
    if (choice.finish_reason) finish = choice.finish_reason;
  }
  if (!finish) throw new Error('the stream broke off');
  const tokens = usage ? usage.completion_tokens : 0;
  const seconds = (performance.now() - (first || begin)) / 1000;
  // A moment is too short to measure.
  const rate = tokens > 1 && seconds > 0.3 ? ', ' + (tokens / seconds).toFixed(1) + ' tokens/s' : '';
  view.note(tokens + ' tokens' + rate + (finish === 'length' ? ', cut at max tokens' : ''));
}

async function ask(text) {
  const chat = history;
  chat.push({role: 'user', content: text});
  show('user', text);
  const view = answerView();
  running = new AbortController();
  $('send').textContent = 'Stop';
  try {
    const response = await fetch('/v1/chat/completions', {
      method: 'POST',
      headers: headers(),
      signal: running.signal,
      body: JSON.stringify({
        model: model || 'default',
        messages: chat,
        stream: true,
        stream_options: {include_usage: true},
        temperature: Number($('temperature').value),
        max_tokens: Number($('max-tokens').value),
        chat_template_kwargs: {enable_thinking: $('thinking').checked},
      }),
    });
    if (response.status === 401) await askForKey();
    if (!response.ok) {
      const body = await response.json().catch(() => null);
      throw new Error(body && body.error ? body.error.message : 'status ' + response.status);
    }
    await readAnswer(response, view);
    chat.push({role: 'assistant', content: view.text});
  } catch (error) {
    if (error.name === 'AbortError') {
      view.note('stopped');
      chat.push({role: 'assistant', content: view.text});
    } else {
      // The question may be asked again: an answer that failed is no part of the chat.
      chat.pop();
      view.fail(error.message);
      if (chat === history && !$('prompt').value) $('prompt').value = text;
    }
  }
  running = null;
  $('send').textContent = 'Send';
}

$('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  if (running) {
    running.abort();
    return;
  }
  const text = $('prompt').value.trim();
  if (!text) return;
  $('prompt').value = '';
  ask(text);
});

$('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) $('ask').requestSubmit();
  }
});

// While an answer streams in, the button stops it, also with an empty field.
$('send').addEventListener('click', (event) => {
  if (!running) return;
  event.preventDefault();
  running.abort();
});

$('new-chat').addEventListener('click', () => {
  if (running) running.abort();
  history = [];
  $('messages').replaceChildren();
  $('hint').hidden = false;
  $('prompt').focus();
});

// Engine

function rankView(rank, index, state) {  // as of its last round
  const box = document.createElement('div');
  box.className = 'rank';
  const name = document.createElement('b');
  const line = document.createElement('span');
  if (!rank) {
    name.textContent = 'Rank ' + index + ': no answer';
    if (state.state === 'ready') box.classList.add('bad');
  } else {
    name.textContent = 'Rank ' + index + ': round ' + rank.round;
    const busy = state.in_flight.length > 0;
    const slots = (busy ? rank.slots || [] : []).map((slot) => slot.phase === 'decode' ?
      'decode, tokens: ' + slot.tokens : 'prefill').join('; ');
    line.textContent = slots || 'idle';
  }
  box.append(name, line);
  return box;
}

function generated(state) {
  const rank = state.ranks[0];
  if (!rank) return null;
  const live = (rank.slots || []).reduce((sum, slot) => sum + (slot.tokens || 0), 0);
  return (rank.tokens ? rank.tokens.generated : 0) + live;
}

function showState(state) {
  const badge = $('state');
  badge.textContent = state.state;
  badge.className = 'badge ' + (state.state === 'ready' ? 'good' : 'bad');
  const rank = state.ranks[0];
  const now = performance.now();
  const tokens = generated(state);
  if (last && tokens !== null && last.tokens !== null && last.starts === state.starts) {
    const rate = Math.max(0, (tokens - last.tokens) / ((now - last.now) / 1000));
    $('rate').textContent = rate.toFixed(1);
  }
  last = {now, tokens, starts: state.starts};
  $('acceptance').textContent =
    rank && rank.drafted ? Math.round(100 * rank.accepted / rank.drafted) + ' %' : '–';
  $('round').textContent = rank ? rank.round : '–';
  $('running').textContent = state.in_flight.length + ' of ' + state.slots;
  $('queue').textContent = state.queued;
  $('halt-count').textContent = state.halts.length;
  $('ranks').replaceChildren(...state.ranks.map((r, i) => rankView(r, i, state)));
  const r = state.requests;
  $('counts').textContent = r.finished + ' finished, ' + r.cancelled + ' cancelled, ' +
    r.failed + ' lost to a halt, ' + r.refused + ' refused';
  $('halts-box').hidden = state.halts.length === 0;
  $('halts').replaceChildren(...state.halts.slice().reverse().map((halt) => {
    const item = document.createElement('li');
    const time = document.createElement('time');
    time.textContent = new Date(halt.unix_time * 1000).toLocaleString();
    item.append(time, halt.reason);
    return item;
  }));
}

async function watch() {
  try {
    showState(await get('/lockstep/status'));
    if (!model) {
      const models = await get('/v1/models').catch(() => null);
      if (models && models.data.length) model = models.data[0].id;
      $('model').textContent = model || 'loading';
    }
  } catch (error) {
    $('state').textContent = 'no connection';
    $('state').className = 'badge bad';
  }
  setTimeout(watch, document.hidden ? 5000 : 1000);
}
watch();

// The official OpenAI client against a rank (or a proxy) at LOCKSTEP_URL.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';

import OpenAI from 'openai';

const client =
    new OpenAI({baseURL: `${process.env.LOCKSTEP_URL}/v1`, apiKey: 'none', maxRetries: 0});
const golden = process.env.LOCKSTEP_GOLDEN_DIR;
const model = 'tiny-qwen3_5';
const noThinking = {chat_template_kwargs: {enable_thinking: false}};

const tools = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'Weather of a city',
      parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
    },
  },
  {
    type: 'function',
    function: {
      name: 'search',
      description: 'Search the web',
      parameters: {
        type: 'object',
        properties: {query: {type: 'string'}, limit: {type: 'integer'}},
        required: ['query'],
      },
    },
  },
];
const weather = [{role: 'user', content: 'What is the weather in Berlin?'}];

test('chat', async () => {
  const answer = await client.chat.completions.create({
    model,
    messages: [
      {role: 'user', content: 'My name is Bob and my number is 66.'},
      {role: 'assistant', content: 'Hello, Bob.'},
      {role: 'user', content: 'What is my name?'},
    ],
    temperature: 0,
    max_completion_tokens: 20,
    ...noThinking,
  });
  assert.equal(answer.choices[0].message.content, 'Bob');
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.usage.prompt_tokens, 45);
  assert.equal(answer.model, model);
});

test('a stream adds up to the whole answer', async () => {
  const body = {
    model,
    messages: [{role: 'user', content: 'What is 42 + 34?'}],
    seed: 7,
    temperature: 0.8,
    max_tokens: 60,
  };
  const whole = await client.chat.completions.create(body);
  const stream = await client.chat.completions.create(
      {...body, stream: true, stream_options: {include_usage: true}});
  let reasoning = '';
  let content = '';
  let finish = null;
  let usage = null;
  for await (const chunk of stream) {
    const choice = chunk.choices[0];
    reasoning += choice?.delta.reasoning_content ?? '';
    content += choice?.delta.content ?? '';
    finish = choice?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  const message = whole.choices[0].message;
  assert.equal(reasoning, message.reasoning_content ?? '');
  assert.equal(content, message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test('reasoning is apart from the answer', async () => {
  const answer = await client.chat.completions.create({
    model,
    messages: [{role: 'user', content: 'What is 42 + 34?'}],
    temperature: 0,
    max_tokens: 80,
  });
  const {message} = answer.choices[0];
  assert.equal(message.reasoning_content, '2 + 4 = 6, carry 0. 4 + 3 + 0 = 7. So 76.');
  assert.equal(message.content, '76');
  assert.ok(answer.usage.completion_tokens_details.reasoning_tokens > 5);
});

test('a tool call there and back', async () => {
  const first = await client.chat.completions.create(
      {model, messages: weather, tools, temperature: 0, max_tokens: 60, ...noThinking});
  assert.equal(first.choices[0].finish_reason, 'tool_calls');
  const call = first.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.function.arguments), {city: 'Berlin'});
  const second = await client.chat.completions.create({
    model,
    messages: [
      ...weather,
      first.choices[0].message,
      {role: 'tool', tool_call_id: call.id, content: 'Sunny, 20 degrees.'},
    ],
    tools,
    temperature: 0,
    max_tokens: 40,
    ...noThinking,
  });
  assert.equal(typeof second.choices[0].message.content, 'string');
  assert.ok(second.usage.prompt_tokens > first.usage.prompt_tokens);
});

test('a tool call in a stream', async () => {
  const stream = client.beta.chat.completions.stream(
      {model, messages: weather, tools, temperature: 0, max_tokens: 60, ...noThinking});
  const final = await stream.finalChatCompletion();
  const call = final.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.function.arguments), {city: 'Berlin'});
});

test('a forced call', async () => {
  const answer = await client.chat.completions.create({
    model,
    messages: [{role: 'user', content: 'Hello!'}],
    tools,
    tool_choice: {type: 'function', function: {name: 'get_weather'}},
    temperature: 0,
    max_tokens: 60,
  });
  assert.equal(answer.choices[0].message.tool_calls[0].function.name, 'get_weather');
});

test('a picture', async () => {
  const png = readFileSync(`${golden}/oracle/public-image-square.png`).toString('base64');
  const answer = await client.chat.completions.create({
    model,
    messages: [{
      role: 'user',
      content: [
        {type: 'image_url', image_url: {url: `data:image/png;base64,${png}`}},
        {type: 'text', text: 'What colour is the square?'},
      ],
    }],
    temperature: 0,
    max_tokens: 10,
    ...noThinking,
  });
  assert.equal(answer.choices[0].message.content, 'yellow');
  assert.equal(answer.usage.prompt_tokens, 28);
});

test('log-probabilities', async () => {
  const answer = await client.chat.completions.create({
    model,
    messages: [{role: 'user', content: 'What is 42 + 34?'}],
    logprobs: true,
    top_logprobs: 3,
    temperature: 0,
    max_tokens: 5,
  });
  const {content} = answer.choices[0].logprobs;
  assert.equal(content.length, 5);
  for (const entry of content) {
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.logprob, entry.top_logprobs[0].logprob);
    assert.ok(entry.logprob <= 0);
  }
});

test('completions', async () => {
  const body = {model, prompt: 'def add(', temperature: 0, max_tokens: 12};
  const whole = await client.completions.create(body);
  let text = '';
  for await (const chunk of await client.completions.create({...body, stream: true})) {
    text += chunk.choices[0].text;
  }
  assert.equal(text, whole.choices[0].text);
  assert.equal(whole.choices[0].finish_reason, 'length');
});

test('responses', async () => {
  const body = {model, input: 'What is 42 + 34?', temperature: 0, max_output_tokens: 80};
  const whole = await client.responses.create(body);
  assert.equal(whole.output_text, '76');
  let text = '';
  for await (const event of await client.responses.create({...body, stream: true})) {
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  assert.equal(text, '76');
});

test('models', async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((one) => one.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
});

test('errors name the field', async () => {
  const ask = (more) => client.chat.completions.create(
      {model, messages: [{role: 'user', content: 'hi'}], max_tokens: 4, ...more});
  await assert.rejects(ask({temperature: 9}), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.type, 'invalid_request_error');
    return true;
  });
  await assert.rejects(ask({response_format: {type: 'json_object'}}),
                       (error) => error.param === 'response_format');
  await assert.rejects(ask({max_tokens: 10000000}),
                       (error) => error.code === 'context_length_exceeded');
  await assert.rejects(ask({n: 3}), (error) => error.param === 'n');
});

test('cancel', async () => {
  const before = await (await fetch(`${process.env.LOCKSTEP_URL}/metrics`)).text();
  const stream = await client.chat.completions.create({
    model,
    messages: [{role: 'user', content: 'count'}],
    max_tokens: 20000,
    ignore_eos: true,
    stream: true,
  });
  let chunks = 0;
  for await (const chunk of stream) {
    if (++chunks > 5) break;
  }
  stream.controller.abort();
  const cancelled = (text) => Number(/lockstep_requests_cancelled_total (\d+)/.exec(text)[1]);
  let now = before;
  while (cancelled(now) === cancelled(before)) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    now = await (await fetch(`${process.env.LOCKSTEP_URL}/metrics`)).text();
  }
  assert.equal(cancelled(now), cancelled(before) + 1);
});

// The official Anthropic client against a rank (or a proxy) at LOCKSTEP_URL.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';

import Anthropic from '@anthropic-ai/sdk';

const client =
    new Anthropic({baseURL: process.env.LOCKSTEP_URL, apiKey: 'none', maxRetries: 0});
const golden = process.env.LOCKSTEP_GOLDEN_DIR;
const model = 'tiny-qwen3_5';

const tools = [
  {
    name: 'get_weather',
    description: 'Weather of a city',
    input_schema: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
  },
  {
    name: 'search',
    description: 'Search the web',
    input_schema: {
      type: 'object',
      properties: {query: {type: 'string'}, limit: {type: 'integer'}},
      required: ['query'],
    },
  },
];
const weather = [{role: 'user', content: 'What is the weather in Berlin?'}];

test('a message', async () => {
  const message = await client.messages.create({
    model,
    max_tokens: 20,
    temperature: 0,
    messages: [
      {role: 'user', content: 'My name is Bob and my number is 66.'},
      {role: 'assistant', content: 'Hello, Bob.'},
      {role: 'user', content: 'What is my name?'},
    ],
  });
  assert.deepEqual(message.content, [{type: 'text', text: 'Bob'}]);
  assert.equal(message.stop_reason, 'end_turn');
  const {usage} = message;
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens, 45);
});

test('a stream adds up to the whole message', async () => {
  const body = {
    model,
    max_tokens: 1100,
    temperature: 0,
    thinking: {type: 'enabled', budget_tokens: 1024},
    messages: [{role: 'user', content: 'What is 42 + 34?'}],
  };
  const whole = await client.messages.create(body);
  const streamed = await client.messages.stream(body).finalMessage();
  assert.deepEqual(streamed.content, whole.content);
  assert.equal(whole.content[0].type, 'thinking');
  assert.equal(whole.content[0].thinking, '2 + 4 = 6, carry 0. 4 + 3 + 0 = 7. So 76.');
  assert.equal(whole.content[1].text, '76');
  assert.equal(streamed.stop_reason, whole.stop_reason);
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
});

test('a tool call there and back', async () => {
  const body = {model, max_tokens: 60, temperature: 0, tools, messages: weather};
  const first = await client.messages.create(body);
  assert.equal(first.stop_reason, 'tool_use');
  const call = first.content.find((block) => block.type === 'tool_use');
  assert.equal(call.name, 'get_weather');
  assert.deepEqual(call.input, {city: 'Berlin'});
  const streamed = await client.messages.stream(body).finalMessage();
  assert.deepEqual(
      streamed.content.find((block) => block.type === 'tool_use').input, {city: 'Berlin'});
  const second = await client.messages.create({
    ...body,
    messages: [
      ...weather,
      {role: 'assistant', content: first.content},
      {
        role: 'user',
        content: [{type: 'tool_result', tool_use_id: call.id, content: 'Sunny, 20 degrees.'}],
      },
    ],
  });
  assert.ok(second.usage.output_tokens > 0);
});

test('a forced call', async () => {
  const message = await client.messages.create({
    model,
    max_tokens: 60,
    temperature: 0,
    tools,
    tool_choice: {type: 'tool', name: 'get_weather'},
    messages: [{role: 'user', content: 'Hello!'}],
  });
  assert.equal(message.content[0].name, 'get_weather');
});

test('a picture', async () => {
  const data = readFileSync(`${golden}/oracle/public-image-square.png`).toString('base64');
  const message = await client.messages.create({
    model,
    max_tokens: 10,
    temperature: 0,
    messages: [{
      role: 'user',
      content: [
        {type: 'image', source: {type: 'base64', media_type: 'image/png', data}},
        {type: 'text', text: 'What colour is the square?'},
      ],
    }],
  });
  assert.equal(message.content[0].text, 'yellow');
});

test('stop sequences and the token limit', async () => {
  const body = {
    model,
    max_tokens: 60,
    temperature: 0,
    messages: [{
      role: 'user',
      content: 'Write a Python function calc(xs) that returns the items of xs greater than 35.',
    }],
  };
  const stopped = await client.messages.create({...body, stop_sequences: ['return']});
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, 'return');
  assert.ok(stopped.content[0].text.includes('def calc'));
  const cut = await client.messages.create({...body, max_tokens: 3});
  assert.equal(cut.stop_reason, 'max_tokens');
});

test('count tokens', async () => {
  const body = {model, messages: weather, tools};
  const counted = await client.messages.countTokens(body);
  assert.equal(counted.input_tokens, 166);
});

test('errors name the field', async () => {
  await assert.rejects(
      client.messages.create({model, max_tokens: 5, temperature: 3, messages: weather}),
      (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError);
        assert.equal(error.error.error.type, 'invalid_request_error');
        assert.match(error.error.error.message, /^temperature: /);
        return true;
      });
  await assert.rejects(
      client.messages.create(
          {model, max_tokens: 5, messages: [{role: 'user', content: [{type: 'document'}]}]}),
      (error) => error.error.error.message.startsWith('messages.0.content.0.type: '));
});

test('cancel', async () => {
  const stream = client.messages.stream({
    model,
    max_tokens: 200,
    messages: [{role: 'user', content: 'Write a Python function calc(xs).'}],
  });
  stream.on('text', () => stream.abort());
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  const after = await client.messages.create({model, max_tokens: 5, messages: weather});
  assert.ok(after.usage.output_tokens > 0);
});

#!/usr/bin/env python3
"""Writes template cases with what Jinja2 makes of them, one JSON object a line.

    template_oracle.py CHAT_TEMPLATE TEMPLATE_FOLDER OUTPUT

Jinja2 is set up as Hugging Face sets it up for chat templates. A line is {"template": name,
"source": text}, or a case {"template": name, "chat": body} or {"template": name, "context":
variables}, both as JSON text (so that no reader on the way changes a number), with "text" or
"error" as the expectation.
"""
import datetime
import functools
import json
import sys
from pathlib import Path
from random import Random

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1764500000  # seconds since 1970: the date that both sides print


def make_environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


ENVIRONMENT = make_environment()


@functools.lru_cache(maxsize=8)
def compiled(source):
    return ENVIRONMENT.from_string(source)


def expectation(source, variables):
    try:
        return {"text": compiled(source).render(**variables)}
    except Exception as error:  # whatever fails in the oracle must fail in the product
        return {"error": f"{type(error).__name__}: {error}"}


def chat_variables(body):
    """What a server hands to the template."""
    body = json.loads(json.dumps(body))
    for message in body["messages"]:
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            if isinstance(function.get("arguments"), str):
                function["arguments"] = json.loads(function["arguments"] or "{}")
    variables = {"tools": body.get("tools"), "documents": None, "add_generation_prompt": True}
    variables.update(body.get("chat_template_kwargs") or {})
    variables["messages"] = body["messages"]
    return variables


TEXTS = ["Hello", " spaces around \n", "\u3000全角\u00a0", "naïve café 🙂", "line1\nline2\n\n", "",
         "  ",
         "<think>\nold\n</think>\n\nanswer", "no open</think>tail", "a</think>b</think>c",
         "\x1c\x85 x \x1f",
         "'quotes' \"double\" \\ back", "tab\tend", "{{ not a tag }} {% raw %}",
         "<tool_call>x</tool_call>",
         "ẞ Straße ΑΣ ΑΣΑ ǆ ŉ", "e\u0301", "\u202eRTL", "<b>&amp;</b>", "1_000", "42", " -7 ",
         "3.5e2"]
NUMBERS = [0, 1, -1, 2, 7, 10**6, 2**53 + 1, 12345678901234567890123, 0.0, 1.0, -0.5, 1e20, 1e-7,
           1e16,
           123456789.125, 0.1, 1e15, 5e-324, 1.7976931348623157e308]


def any_value(random, depth=0):
    kind = random.randrange(9 if depth < 3 else 6)
    if kind <= 1:
        return random.choice(TEXTS)
    if kind <= 3:
        return random.choice(NUMBERS)
    if kind == 4:
        return random.choice([True, False])
    if kind == 5:
        return None
    if kind == 6:
        return [any_value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(["a", "b", "ключ", "items", "z z", "type",
                           "x1"]): any_value(random, depth + 1)
            for _ in range(random.randrange(4))}


def any_content(random):
    kind = random.randrange(8)
    if kind < 5:
        return random.choice(TEXTS)
    if kind == 5:
        return None
    parts = []
    for _ in range(random.randrange(4)):
        parts.append(random.choice([
            {"type": "text", "text": random.choice(TEXTS)},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "image"}, {"image": "x.png"}, {"type": "video", "video": "v.mp4"},
            {"type": "audio"},
            {"text": random.choice(TEXTS)}]))
    return parts


def any_tool(random, number):
    properties = {f"p{i}": {"type": random.choice(["string", "integer", "object"]),
                            "description": random.choice(TEXTS)}
                  for i in range(random.randrange(4))}
    return {"type": "function",
            "function": {"name": f"tool_{number}", "description": random.choice(TEXTS),
                         "parameters": {"type": "object", "properties": properties, "required": []},
                         "strict": random.choice([True, False])}}


def any_call(random):
    arguments = {random.choice(["city", "n", "код",
                                "items"]): any_value(random) for _ in range(random.randrange(4))}
    form = random.randrange(3)
    call = {"name": f"tool_{random.randrange(3)}",
            "arguments": arguments if form == 0 else json.dumps(arguments, ensure_ascii=form == 1)}
    return call if random.randrange(6) == 0 else {"id": "c1", "type": "function", "function": call}


def any_message(random):
    role = random.choice(["user", "user", "assistant", "assistant", "tool", "tool", "system"])
    if random.randrange(60) == 0:
        role = "developer"
    message = {"role": role, "content": any_content(random)}
    if random.randrange(25) == 0:
        del message["content"]
    if role == "assistant":
        if random.randrange(3) == 0:
            message["reasoning_content"] = random.choice(TEXTS + [None])
        if random.randrange(2) == 0:
            lists = [[any_call(random) for _ in range(n)] for n in (1, 2, 3)]
            message["tool_calls"] = random.choice([None, [],
                                                   *lists])
    return message


def make_orderly(random, body):
    """Changes a request so that a strict template takes it: one system message of text, first, a
    question of a user, and no part that is neither text nor a picture."""
    def orderly_content(content):
        if not isinstance(content, list):
            return content
        return [part for part in content if part.get("type") != "audio"]

    messages = [m for m in body["messages"] if m["role"] in ("user", "assistant", "tool")]
    messages.insert(random.randrange(len(messages) + 1), {"role": "user",
                                                          "content": random.choice(TEXTS)})
    for message in messages:
        if "content" in message:
            message["content"] = orderly_content(message["content"])
    if random.randrange(2) == 0:
        messages.insert(0, {"role": "system", "content": random.choice(TEXTS)})
    body["messages"] = messages
    return body


def any_body(random):
    messages = [any_message(random) for _ in range(random.randrange(1, 9))]
    if random.randrange(2) == 0:
        messages.insert(0, {"role": "system", "content": any_content(random)})
    body = {"messages": messages}
    if random.randrange(2) == 0:
        body["tools"] = [any_tool(random, i) for i in range(random.randrange(4))]
    kwargs = {}
    if random.randrange(2) == 0:
        kwargs["enable_thinking"] = random.choice([True, False, None, 0, "false"])
    if random.randrange(4) == 0:
        kwargs["preserve_thinking"] = random.choice([True, False])
    if random.randrange(6) == 0:
        kwargs["add_generation_prompt"] = False
    if kwargs or random.randrange(3) == 0:
        body["chat_template_kwargs"] = kwargs
    return body


class ExpressionMaker:
    """Random expressions over a few variables: most are valid, some must fail on both sides."""

    NAMES = ["s", "t", "n", "f", "l", "d", "e", "u", "b", "o", "msgs", "missing"]
    FILTERS = ["trim", "length", "tojson", "default('x')", "default('x', true)", "join(', ')",
               "join",
               "replace('a', 'bb')", "replace('', '-')", "replace('a', 'b', 1)", "upper", "lower",
               "first",
               "last", "list", "map('upper') | list", "map(attribute='role') | list", "string",
               "int",
               "float", "abs", "reverse | list", "items | list", "dictsort", "count", "trim('ab ')",
               "selectattr('role') | list", "selectattr('role', 'equalto', 'user') | list",
               "rejectattr('role', 'in', ['user']) | list", "select('string') | list",
               "reject('none') | list",
               "map('trim') | join('|')", "map(attribute='role', default='none') | join('/')",
               "indent",
               "indent(2, true)", "tojson(indent=2)", "tojson(ensure_ascii=true)",
               "tojson(sort_keys=true)",
               "tojson(separators=(',', ':'))", "safe", "map('length') | list",
               "join('-', attribute='role')",
               "select | list", "d('q')"]
    TESTS = ["string", "mapping", "sequence", "iterable", "defined", "undefined", "none", "number",
             "integer",
             "float", "boolean", "true", "false", "not string", "not defined", "odd", "even",
             "divisibleby 3",
             "eq 1", "ne('a')", "in [1, 2]", "callable", "lt 5", "ge(2)"]
    METHODS = ["strip()", "strip('a ')", "lstrip('\\n')", "rstrip('\\n ')", "split()", "split(',')",
               "split('a', 1)",
               "split(none, 1)", "rsplit(' ', 1)", "rsplit(none, 1)", "splitlines()",
               "startswith('a')",
               "endswith(('b', ' '))", "upper()", "lower()", "replace('a', '')", "find('a')",
               "rfind('a')",
               "count('a')", "removeprefix('a')", "removesuffix('b')", "items() | list",
               "keys() | list",
               "values() | list", "get('a')", "get('q', 3)", "index(1)", "count(1)", "role",
               "content",
               "items", "join(['x', 'y'])", "a", "b.c", "nothing", "nothing.more"]
    SLICES = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[1:3]", "[-2:]", "['a']",
              "['role']", "[5]",
              "[none:2]", "[3:0:-1]", "[-100:100]", "[true]"]
    OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in",
                 "not in", "and", "or",
                 "**"]
    LITERALS = ["0", "1", "2", "-3", "2.5", "'a'", "'b, a'", "\"it's\"", "''", "'\\n'", "true",
                "false", "none",
                "[]", "[1, 'a', none]", "{}", "{'a': 1, 'b': {'c': [1]}}", "(1, 2)", "('x',)",
                "1.0", "1e3", "'\\u00e9'",
                "'x' 'y'", "range(3)", "range(5, 0, -2)", "dict(a=1)", "True", "None", "1_000"]

    def __init__(self, random):
        self.random = random

    def make(self, depth=0):
        random = self.random
        kind = random.randrange(11 if depth < 4 else 2)
        if kind == 0:
            return random.choice(self.LITERALS)
        if kind == 1 or depth >= 4:
            return random.choice(self.NAMES)
        inner = self.make(depth + 1)
        if kind in (2, 3):
            return f"{inner} | {random.choice(self.FILTERS)}"
        if kind == 4:
            return f"({inner}) is {random.choice(self.TESTS)}"
        if kind in (5, 6):
            return f"({inner}).{random.choice(self.METHODS)}"
        if kind == 7:
            # Not of literals: what Jinja2 makes of those depends on whether it folds constants.
            filtered = [f"({n} | {random.choice(self.FILTERS)})" for n in self.NAMES]
            inner = random.choice(self.NAMES + filtered)
            return f"{inner}{random.choice(self.SLICES)}"
        if kind == 8:
            return f"({inner} if {self.make(depth + 1)} else {self.make(depth + 1)})"
        if kind == 9:
            return f"{random.choice(['not ', '-', '+', ''])}({inner})"
        return f"{inner} {random.choice(self.OPERATORS)} {self.make(depth + 1)}"


def expression_context(random):
    return {"s": random.choice(TEXTS), "t": random.choice(["a,b,ca", "  aab ab b", "a", "",
                                                           "A\nb\r\nc\n"]),
            "n": random.choice([0, 1, 3, -4, 10]), "f": random.choice([0.5, -2.0, 1e20, 3.0]),
            "l": random.choice([[], [1, 2, 3], ["b", "a", None], [[1], {"a": 2}], ["x"] * 3]),
            "d": random.choice([{}, {"a": 1, "b": {"c": 2}}, {"b": [1], "A": "x", "role": "user"}]),
            "e": random.choice([{"role": "user", "content": "hi"}, {"items": 1}]),
            "u": random.choice(TEXTS),
            "b": random.choice([True, False]), "o": None,
            "msgs": [{"role": "user", "content": "q"}, {"role": "assistant"}, {"content": 3}]}


WHITE_SPACE_PARTS = ["text", " ", "\n", "  \n", "\t", "{% if true %}", "{%- if true -%}",
                     "{% if true +%}", "{%+ if true %}",
                     "{% endif %}", "{%- endif %}", "{% endif -%}", "{{ 1 }}", "{{- 2 -}}",
                     "{{ 3 -}}", "{# c #}",
                     "{#- c -#}", "{#- c #}", "{# c\n c +#}", "{% set x = 1 %}",
                     "{%- set x = 2 -%}",
                     "{% raw %} {{ r }} {% endraw %}", "{%- raw -%} {% r {%- endraw -%}",
                     "\u00a0\n", "{{ x }}", "\r\n", "}}",
                     "{% for i in [1, 2] %}", "{% endfor %}", "'", "{{ '}}' }}", "{{ {'a': {}} }}"]


def white_space_template(random):
    """Parts around tags, in an order in which most blocks match."""
    parts = []
    opened = []
    for _ in range(random.randrange(2, 14)):
        part = random.choice(WHITE_SPACE_PARTS)
        word = part.strip("{%-+} \n").split()[0] if part.startswith("{%") else ""
        if word in ("endif", "endfor"):
            if not opened or opened[-1] != word[3:]:
                continue
            opened.pop()
        if word in ("if", "for"):
            opened.append(word)
        parts.append(part)
    parts += ["{% end" + word + " %}" for word in reversed(opened)]
    return "".join(parts)


def main():
    chat_template, folder, output = (Path(argument) for argument in sys.argv[1:])
    random = Random(20250101)
    lines = []

    def add_template(name, source):
        lines.append({"template": name, "source": source})

    def add_case(name, source, key, value, variables):
        text = json.dumps(value, ensure_ascii=False)
        lines.append({"template": name, key: text, **expectation(source, variables)})

    chat_templates = {"golden": chat_template.read_bytes().decode("utf-8")}
    for path in sorted(folder.glob("chat_*.jinja")):
        chat_templates[path.stem] = path.read_bytes().decode("utf-8")
    for name, source in chat_templates.items():
        add_template(name, source)
        for _ in range(400 if name == "golden" else 150):
            body = any_body(random)
            if name == "chat_macros" and random.randrange(5) > 0:
                body = make_orderly(random, body)
            add_case(name, source, "chat", body, chat_variables(body))
    for path in sorted(folder.glob("construct_*.jinja")):
        source = path.read_bytes().decode("utf-8")
        # One template a paragraph, so that one failure hides no other.
        for number, part in enumerate(source.split("\n===\n")):
            name = f"{path.stem}.{number}"
            add_template(name, part)
            for _ in range(4):
                context = expression_context(random)
                add_case(name, part, "context", context, context)
    maker = ExpressionMaker(random)
    for number in range(3000):
        source = "{{ " + maker.make() + " }}"
        context = expression_context(random)
        add_template(f"expression.{number}", source)
        add_case(f"expression.{number}", source, "context", context, context)
    for number in range(600):
        source = white_space_template(random)
        add_template(f"white_space.{number}", source)
        add_case(f"white_space.{number}", source, "context", {}, {})
    output.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
                      encoding="utf-8")


if __name__ == "__main__":
    main()

// Values as text: str(), repr() and JSON.
#include <algorithm>
#include <cmath>

#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

constexpr int kMaxValueDepth = 200;

// Appends while it counts: shared values can print far larger than they are.
class Printer {
 public:
  explicit Printer(Runtime& runtime) : runtime_(runtime) {}

  void add(std::string_view text) {
    runtime_.charge_memory(text.size());
    out_ += text;
  }
  std::string take() { return std::move(out_); }

 protected:
  Runtime& runtime_;

 private:
  std::string out_;
};

class ReprPrinter : public Printer {
 public:
  using Printer::Printer;

  void print(const Value& value) {
    runtime_.charge_steps(1);
    const DepthGuard guard(runtime_, &runtime_.value_depth, kMaxValueDepth);
    switch (value.kind) {
      case Kind::undefined:
        return add("Undefined");
      case Kind::none:
        return add("None");
      case Kind::boolean:
        return add(value.boolean ? "True" : "False");
      case Kind::integer:
        return add(fmt::format("{}", value.integer));
      case Kind::big_integer:
        return add(*value.string);
      case Kind::real:
        return add(real_repr(value.real));
      case Kind::string:
        return print_string(value);
      case Kind::list:
        return print_list(*value.list, value);
      case Kind::dict:
        return print_dict(*value.dict);
      default:
        runtime_.refuse("printing a '{}' is not supported", type_name(value));
    }
  }

 private:
  void print_string(const Value& value) {
    if (value.is_markup) add("Markup(");
    add(string_repr(*value.string));
    if (value.is_markup) add(")");
  }

  void print_list(const List& list, const Value& value) {
    const bool is_tuple = list.flavour == List::Flavour::tuple;
    if (!is_tuple && list.flavour != List::Flavour::list) {
      runtime_.refuse("printing a '{}' is not supported; use the filter list", type_name(value));
    }
    add(is_tuple ? "(" : "[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(", ");
      print(list.items[i]);
    }
    if (is_tuple && list.items.size() == 1) add(",");
    add(is_tuple ? ")" : "]");
  }

  void print_dict(const Dict& dict) {
    add("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) add(", ");
      add(string_repr(*dict.entries[i].first));
      add(": ");
      print(dict.entries[i].second);
    }
    add("}");
  }
};

class JsonPrinter : public Printer {
 public:
  JsonPrinter(Runtime& runtime, const JsonStyle& style) : Printer(runtime), style_(style) {}

  void print(const Value& value, int64_t level) {
    runtime_.charge_steps(1);
    const DepthGuard guard(runtime_, &runtime_.value_depth, kMaxValueDepth);
    switch (value.kind) {
      case Kind::none:
        return add("null");
      case Kind::boolean:
        return add(value.boolean ? "true" : "false");
      case Kind::integer:
        return add(fmt::format("{}", value.integer));
      case Kind::big_integer:
        return add(*value.string);
      case Kind::real:
        return print_real(value.real);
      case Kind::string:
        return print_string(*value.string);
      case Kind::list:
        if (value.list->flavour == List::Flavour::list ||
            value.list->flavour == List::Flavour::tuple) {
          return print_list(*value.list, level);
        }
        break;
      case Kind::dict:
        return print_dict(*value.dict, level);
      default:
        break;
    }
    runtime_.refuse("a '{}' cannot be written as JSON", type_name(value));
  }

 private:
  void print_real(double value) {
    if (std::isnan(value)) return add("NaN");
    if (std::isinf(value)) return add(value < 0 ? "-Infinity" : "Infinity");
    add(real_repr(value));
  }

  void print_string(const std::string& text) {
    std::string out = "\"";
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const uint32_t code = next_code_point(text, &at);
      append_escaped(out, code, std::string_view(text).substr(begin, at - begin));
    }
    add(out += '"');
  }

  void append_escaped(std::string& out, uint32_t code, std::string_view bytes) const {
    static constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t special =
        code < 0x80 ? kSpecial.find(static_cast<char>(code)) : std::string_view::npos;
    if (special != std::string_view::npos) {
      out += '\\';
      out += kLetters[special];
    } else if (code < 0x20 ||
               (style_.ascii_only && code >= 0x7F && code < 0x10000 && code != 0x7F)) {
      out += fmt::format("\\u{:04x}", code);
    } else if (style_.ascii_only && code >= 0x10000) {
      const uint32_t rest = code - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out += bytes;
    }
  }

  void new_line(int64_t level) {
    if (style_.indent < 0) return;
    const auto n = static_cast<size_t>(style_.indent * level);
    runtime_.charge_memory(n);
    add("\n");
    add(std::string(n, ' '));
  }

  void print_list(const List& list, int64_t level) {
    if (list.items.empty()) return add("[]");
    add("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level + 1);
      print(list.items[i], level + 1);
    }
    new_line(level);
    add("]");
  }

  void print_dict(const Dict& dict, int64_t level) {
    if (dict.entries.empty()) return add("{}");
    auto entries = dict.entries;
    runtime_.charge_memory(entries.size() * sizeof(entries[0]));
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(),
                [](const auto& a, const auto& b) { return *a.first < *b.first; });
    }
    add("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      new_line(level + 1);
      print_string(*entries[i].first);
      add(style_.key_separator);
      print(entries[i].second, level + 1);
    }
    new_line(level);
    add("}");
  }

  const JsonStyle& style_;
};

}  // namespace

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is(Kind::undefined)) return "";
  if (value.is(Kind::string)) {
    runtime.charge_memory(value.string->size());
    return *value.string;
  }
  ReprPrinter printer(runtime);
  printer.print(value);
  return printer.take();
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(runtime, style);
  printer.print(value, 0);
  return printer.take();
}

}  // namespace lockstep::jinja

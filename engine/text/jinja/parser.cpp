#include "engine/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "engine/base/error.h"
#include "engine/text/jinja/expression_parser.h"

namespace lockstep::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)), expressions_(&tokens_, &depth_) {}

  Block run() {
    Block block = parse_until({});
    if (!tokens_.is(TokenKind::end)) tokens_.refuse_current();
    return block;
  }

 private:
  // Statements up to a tag with one of these names, whose {% and name are then taken (into
  // `end_tag_`), or to the end of the template when there are none.
  Block parse_until(std::initializer_list<std::string_view> end_tags) {
    const NestingGuard guard(&depth_, tokens_);
    const int opened = tokens_.previous_line();
    Block block;
    while (!tokens_.is(TokenKind::end)) {
      if (tokens_.is(TokenKind::text)) {
        StatementPtr text = make(StatementKind::text);
        text->text = tokens_.take().text;
        block.push_back(std::move(text));
      } else if (tokens_.is(TokenKind::variable_begin)) {
        tokens_.take();
        StatementPtr output = make(StatementKind::output);
        output->expression = expressions_.parse_tuple();
        tokens_.expect(TokenKind::variable_end, "'}}'");
        block.push_back(std::move(output));
      } else {
        tokens_.expect(TokenKind::block_begin, "'{%'");
        const std::string tag = tokens_.expect_any_name("a tag's name");
        if (std::find(end_tags.begin(), end_tags.end(), tag) != end_tags.end()) {
          end_tag_ = tag;
          return block;
        }
        block.push_back(parse_tag(tag));
      }
    }
    if (end_tags.size() != 0) {
      fail("line {}: the block has no '{}'", opened, *(end_tags.end() - 1));
    }
    return block;
  }

  StatementPtr make(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = tokens_.current().line;
    return statement;
  }

  void end_block_tag() { tokens_.expect(TokenKind::block_end, "'%}'"); }

  StatementPtr parse_tag(const std::string& tag) {
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "filter") return parse_filter_block();
    if (tag == "break" || tag == "continue") {
      if (n_loops_ == 0) tokens_.refuse(fmt::format("'{}' outside a loop", tag));
      StatementPtr jump =
          make(tag == "break" ? StatementKind::break_loop : StatementKind::continue_loop);
      end_block_tag();
      return jump;
    }
    tokens_.refuse(fmt::format("the tag '{}' is not supported", tag));
  }

  StatementPtr parse_if() {
    StatementPtr statement = make(StatementKind::if_else);
    do {
      Branch branch;
      branch.condition = expressions_.parse_tuple();
      end_block_tag();
      branch.body = parse_until({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
    } while (end_tag_ == "elif");
    if (end_tag_ == "else") {
      end_block_tag();
      Branch branch;
      branch.body = parse_until({"endif"});
      statement->branches.push_back(std::move(branch));
    }
    end_block_tag();
    return statement;
  }

  // One name or several with commas between them, also in parentheses.
  std::vector<std::string> parse_targets() {
    std::vector<std::string> names;
    const bool grouped = tokens_.skip_op("(");
    do {
      if (!names.empty() && (tokens_.is_name("in") || tokens_.is_op("=") || tokens_.is_op(")")))
        break;
      names.push_back(parse_target_name());
    } while (tokens_.skip_op(","));
    if (grouped) tokens_.expect_op(")");
    return names;
  }

  std::string parse_target_name() {
    static constexpr std::string_view kReserved[] = {"true",  "True", "false",
                                                     "False", "none", "None"};
    if (tokens_.is_op("(")) tokens_.refuse("nested targets are not supported");
    std::string name = tokens_.expect_any_name("a variable's name");
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      tokens_.refuse(fmt::format("cannot assign to '{}'", name));
    }
    return name;
  }

  StatementPtr parse_for() {
    StatementPtr loop = make(StatementKind::for_loop);
    loop->names = parse_targets();
    tokens_.expect_name("in");
    loop->expression = expressions_.parse(false);
    if (tokens_.is_op(",")) tokens_.refuse("a tuple without parentheses is not supported here");
    if (tokens_.skip_name("if")) loop->condition = expressions_.parse();
    if (tokens_.is_name("recursive")) tokens_.refuse("recursive loops are not supported");
    end_block_tag();
    ++n_loops_;
    loop->body = parse_until({"else", "endfor"});
    --n_loops_;
    if (end_tag_ == "else") {
      end_block_tag();
      loop->else_body = parse_until({"endfor"});
    }
    end_block_tag();
    return loop;
  }

  StatementPtr parse_set() {
    StatementPtr set = make(StatementKind::set);
    if (tokens_.is(TokenKind::name) && tokens_.peek().kind == TokenKind::op &&
        tokens_.peek().text == ".") {
      set->text = tokens_.take().text;
      tokens_.take();
      set->attribute = tokens_.expect_any_name("an attribute's name");
    } else {
      set->names = parse_targets();
    }
    if (tokens_.skip_op("=")) {
      set->expression = expressions_.parse_tuple();
      end_block_tag();
      return set;
    }
    if (!set->attribute.empty() || set->names.size() != 1) tokens_.refuse("expected '=' in set");
    set->kind = StatementKind::set_block;
    if (tokens_.skip_op("|")) set->expression = parse_block_filters();
    end_block_tag();
    set->body = parse_until({"endset"});
    end_block_tag();
    return set;
  }

  ExpressionPtr parse_block_filters() {
    auto input = std::make_unique<Expression>();
    input->kind = ExpressionKind::name;
    input->line = tokens_.current().line;
    input->text = kBlockText;
    return expressions_.parse_filter_chain(std::move(input));
  }

  StatementPtr parse_filter_block() {
    StatementPtr block = make(StatementKind::filter_block);
    block->expression = parse_block_filters();
    end_block_tag();
    block->body = parse_until({"endfilter"});
    end_block_tag();
    return block;
  }

  StatementPtr parse_macro() {
    StatementPtr macro = make(StatementKind::macro);
    macro->text = tokens_.expect_any_name("the macro's name");
    tokens_.expect_op("(");
    while (!tokens_.skip_op(")")) {
      if (!macro->names.empty()) tokens_.expect_op(",");
      macro->names.push_back(parse_target_name());
      if (tokens_.skip_op("=")) {
        macro->defaults.push_back(expressions_.parse());
      } else if (!macro->defaults.empty()) {
        tokens_.refuse("a parameter without a default behind one with a default");
      }
    }
    end_block_tag();
    // A loop around the macro is not the macro's.
    const int outer_loops = std::exchange(n_loops_, 0);
    macro->body = parse_until({"endmacro"});
    n_loops_ = outer_loops;
    end_block_tag();
    return macro;
  }

  TokenStream tokens_;
  int depth_ = 0;
  ExpressionParser expressions_;
  std::string end_tag_;
  int n_loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source, const WhiteSpaceRules& rules) {
  return Parser(tokenize_template(source, rules)).run();
}

}  // namespace lockstep::jinja

// A conversation turned into the text of a prompt, by the Jinja template that a model brings along.
//
// The language is that of Python's Jinja2 3.1 as the transformers library sets it up: trim_blocks and lstrip_blocks,
// the immutable sandbox (lists and dictionaries cannot be changed), break and continue, `generation` blocks, and the
// globals raise_exception and strftime_now. The engine itself is in text/jinja/; this header is all that others
// include.
//
// Where the text of a prompt came from. A prompt is cut into pieces, each trusted or not, and the tokenizer looks for
// control tokens in trusted pieces only. The rules:
//   - trusted: the template's literals; the variables named *_token (bos_token, eos_token, pad_token, ...), which the
//     caller must take from the model file and never from a request; numbers, booleans and none written as text; the
//     punctuation of tojson and of printed lists; the output of strftime_now; and the `role` of a message of `messages`
//     if it is system, user, assistant, tool, developer, function, ipython or model, because templates build control
//     tokens from it.
//   - untrusted: every other string of the variables (contents, names, arguments, tools, documents, extra arguments,
//     the keys of objects), and whatever is cut, joined, replaced, formatted or converted out of one, character for
//     character.
// Two neighbouring pieces never have the same mark. A control token that a template assembles from trusted and
// untrusted characters is not one.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tidemill {

namespace jinja {
struct Template;
}

// A run of a rendered prompt, as bytes [begin, end) of its text.
struct PromptPiece {
  size_t begin = 0;
  size_t end = 0;
  bool trusted = false;
};

// Pieces partition the text: in order, without gaps, none empty.
struct RenderedPrompt {
  std::string text;
  std::vector<PromptPiece> pieces;
};

// Why there is no prompt. `raised_by_template` says that the template refused the conversation with raise_exception,
// and `message` is then exactly what it said (for the client); otherwise the template cannot handle these variables or
// hit a limit, and `message` is one sentence about that.
struct RenderError {
  std::string message;
  bool raised_by_template = false;
};

using RenderResult = std::variant<RenderedPrompt, RenderError>;

// Limits of one rendering; exceeding one is a RenderError that names it.
struct RenderOptions {
  int64_t max_steps = 20'000'000;                // nodes evaluated plus elements visited; a second or two of work
  int64_t max_depth = 800;                       // nested calls and expressions; bounds the use of the stack
  int64_t max_output_bytes = int64_t{32} << 20;  // of the prompt, of each string in between, and of an error message
  int64_t max_built_bytes = int64_t{512} << 20;  // all strings, lists and objects made in between, together
  std::function<std::tm()> now;                  // what strftime_now formats; empty: the local time
};

// A parsed template. Immutable; render may be called from any number of threads at once. Copies share the parsed tree.
class ChatTemplate {
 public:
  // Errors: not UTF-8, longer than 1 MiB, nested too deep, a syntax error, an unknown filter, test or tag (include,
  // import, extends, block and autoescape are refused by name). The sentence names the line.
  static Result<ChatTemplate> parse(std::string source);

  // `variables` is an object; its members are the template's variables (messages, tools, documents,
  // add_generation_prompt, bos_token, eos_token, and whatever chat_template_kwargs holds, merged by the caller). As in
  // transformers, `tools` and `documents` are none where absent, and any other absent name is undefined.
  RenderResult render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

  // Whether the template reads a variable of this name anywhere; how a server learns that it handles tools or thinking.
  bool mentions(const std::string& variable) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> tree) : tree_(std::move(tree)) {}

  std::shared_ptr<const jinja::Template> tree_;
};

}  // namespace tidemill

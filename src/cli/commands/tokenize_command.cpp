// tidemill tokenize: standard input to token ids.
#include <fmt/format.h>

#include <cstdio>

#include "base/printable.h"
#include "cli/commands/command.h"
#include "cli/model_text.h"
#include "cli/terminal.h"
#include "model/model_files.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

class TokenizeCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"tokenize", "Turn standard input into token ids.",
            "A GGUF file that holds only a vocabulary is enough. Example:\n"
            "  printf 'Hello world' | tidemill tokenize --model model.gguf --ids"};
  }

  void add_options(OptionList& options) override {
    options.text("--model,-m", &path_, "PATH", "Model file or folder.");
    options.flag("--ids", &ids_only_, "Print one JSON list of ids instead of one token a line.");
    options.flag("--special-tokens", &add_special_,
                 "Add the tokens that the model wants around a text, as BOS; --no-special-tokens leaves them out.");
    options.flag("--parse-special", &parse_special_,
                 "Read the texts of control tokens in the input as control tokens; with --no-parse-special they are "
                 "ordinary text.");
  }

  Result<void> check() override {
    if (path_.empty()) return error("tokenize needs a model: --model PATH");
    return {};
  }

  Result<int> run() override {
    const Result<ModelFiles> files = open_model_files(path_);
    if (!files) return files.error();
    const Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(*files);
    if (!tokenizer) return tokenizer.error();
    const std::string text = read_all_input();
    const std::vector<TokenId> ids =
        (*tokenizer)->encode(text, {.add_special = add_special_, .parse_special = parse_special_});
    const std::string out = ids_only_ ? id_list(ids) : token_lines(**tokenizer, ids);
    if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
      return error("standard output could not be written");
    }
    return 0;
  }

 private:
  static std::string id_list(const std::vector<TokenId>& ids) { return fmt::format("[{}]\n", fmt::join(ids, ", ")); }

  static std::string token_lines(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    std::string lines;
    for (const TokenId id : ids) {
      const std::string bytes = tokenizer.is_control(id) ? tokenizer.token_text(id) : tokenizer.token_bytes(id);
      lines += fmt::format("{:>7}  '{}'\n", id, printable(bytes));
    }
    return lines;
  }

  std::string path_;
  bool ids_only_ = false;
  bool add_special_ = true;
  bool parse_special_ = true;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() {
  return std::make_unique<TokenizeCommand>();
}

}  // namespace tidemill

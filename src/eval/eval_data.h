// Texts and tasks that an evaluation reads, told apart by their content.
//
// A file is a task where its name ends with .jsonl and its lines have
//   query, choices, gold                     the likeliest choice is to be the gold one
//   context_options, continuation, gold      the context under which the continuation is likeliest
//   context, continuation (or answer)        the continuation is to be what the model would say, token by token
// or where it has the six lines a task of HellaSwag's text form (context, gold label, four endings). Anything else is a
// text. Files are UTF-8; the Error names the file and the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/machine.h"

namespace tidemill {

enum class TextKind : uint8_t { factual, creative };
inline constexpr const char* text_kind_names[] = {"factual", "creative"};
constexpr const char* text_kind_name(TextKind kind) {
  return text_kind_names[static_cast<size_t>(kind)];
}

struct EvalText {
  std::string name;  // of the file
  TextKind kind = TextKind::factual;
  std::string text;
};

// What is scored is the continuation, given the context.
struct EvalOption {
  std::string context;
  std::string continuation;  // with the blank or line end before it
};

struct EvalItem {
  std::vector<EvalOption> options;  // one: the continuation is right where every token of it is the likeliest
  int32_t gold = 0;                 // several: the one whose continuation must be likeliest, by the mean of its tokens
};

struct EvalTask {
  std::string name;
  TextKind kind = TextKind::factual;
  std::vector<EvalItem> items;
  int64_t num_items_in_file = 0;
};

struct EvalFile {
  FileDigest digest;
  TextKind kind = TextKind::factual;
  bool is_task = false;
};

struct EvalData {
  std::vector<EvalFile> files;
  std::vector<EvalText> texts;
  std::vector<EvalTask> tasks;
};

// Adds a file. Of a task at most max_items, spread evenly over the file; 0 = all.
Result<void> read_eval_file(const std::filesystem::path& path, TextKind kind, int64_t max_items, EvalData& data);

}  // namespace tidemill

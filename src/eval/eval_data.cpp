#include "eval/eval_data.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"

namespace tidemill {
namespace {

using Json = nlohmann::json;

constexpr size_t lines_of_hellaswag = 6;
constexpr size_t most_choices = 64;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_label(std::string_view line) {
  return line.size() == 1 && line[0] >= '0' && line[0] <= '3';
}

bool is_hellaswag(const std::vector<std::string_view>& lines) {
  if (lines.size() < lines_of_hellaswag || lines.size() % lines_of_hellaswag != 0) return false;
  for (size_t i = 1; i < lines.size(); i += lines_of_hellaswag) {
    if (!is_label(lines[i])) return false;
  }
  return true;
}

// A blank between, where neither side has one nor an equals sign asks for what follows at once.
std::string joined(const std::string& context, const std::string& continuation) {
  const bool apart = context.empty() || context.ends_with(' ') || context.ends_with('\n') || context.ends_with('=') ||
                     continuation.starts_with(' ') || continuation.starts_with('\n');
  return apart ? continuation : " " + continuation;
}

EvalItem hellaswag_item(const std::vector<std::string_view>& lines, size_t first) {
  EvalItem item;
  item.gold = lines[first + 1][0] - '0';
  const std::string context(lines[first]);
  for (size_t i = 2; i < lines_of_hellaswag; ++i)
    item.options.push_back({context, joined(context, std::string(lines[first + i]))});
  return item;
}

const std::string* text_of(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get_ptr<const std::string*>() : nullptr;
}

std::optional<std::vector<std::string>> texts_of(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_array() || found->size() > most_choices || found->size() < 2)
    return std::nullopt;
  std::vector<std::string> texts;
  for (const Json& each : *found) {
    if (!each.is_string()) return std::nullopt;
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

std::optional<int32_t> gold_of(const Json& line, size_t num_choices) {
  const auto found = line.find("gold");
  if (found == line.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto gold = found->get<uint64_t>();
  return gold < num_choices ? std::optional(static_cast<int32_t>(gold)) : std::nullopt;
}

std::optional<EvalItem> json_item(const Json& line) {
  EvalItem item;
  if (const auto choices = texts_of(line, "choices"); choices && text_of(line, "query")) {
    std::string context = *text_of(line, "query");
    while (context.ends_with('\n')) context.pop_back();
    context += "\nAnswer:";
    for (const std::string& choice : *choices) item.options.push_back({context, joined(context, choice)});
  } else if (const auto contexts = texts_of(line, "context_options"); contexts && text_of(line, "continuation")) {
    for (const std::string& context : *contexts)
      item.options.push_back({context, joined(context, *text_of(line, "continuation"))});
  } else if (const std::string* context = text_of(line, "context")) {
    const std::string* continuation = text_of(line, "continuation");
    const std::string* answer = text_of(line, "answer");
    if (continuation != nullptr) {
      item.options.push_back({*context, joined(*context, *continuation)});
    } else if (answer != nullptr) {
      item.options.push_back({*context + "\nAnswer:", " " + *answer});
    } else {
      return std::nullopt;
    }
    return item;
  } else {
    return std::nullopt;
  }
  const std::optional<int32_t> gold = gold_of(line, item.options.size());
  if (!gold) return std::nullopt;
  item.gold = *gold;
  return item;
}

// Every n-th of the file's items, so that a few stand for all.
template <typename Make>
Result<void> pick_items(EvalTask& task, int64_t max_items, const Make& make) {
  const int64_t wanted = max_items > 0 ? std::min(max_items, task.num_items_in_file) : task.num_items_in_file;
  for (int64_t i = 0; i < wanted; ++i) {
    Result<EvalItem> item = make(static_cast<size_t>(i * task.num_items_in_file / wanted));
    if (!item) return item.error();
    task.items.push_back(*std::move(item));
  }
  return {};
}

}  // namespace

Result<void> read_eval_file(const std::filesystem::path& path, TextKind kind, int64_t max_items, EvalData& data) {
  Result<std::vector<FileDigest>> digest = digest_model(path);
  if (!digest) return digest.error();
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  if (text.empty()) return error("{} is empty", file->name());
  const std::vector<std::string_view> lines = lines_of(text);
  const bool is_json = path.extension() == ".jsonl";
  EvalTask task{.name = path.stem().string(), .kind = kind, .items = {}, .num_items_in_file = 0};
  Result<void> done;
  if (is_json) {
    task.num_items_in_file = static_cast<int64_t>(lines.size());
    done = pick_items(task, max_items, [&](size_t i) -> Result<EvalItem> {
      const Result<Json> parsed = parse_json(lines[i]);
      const Json line = parsed ? *parsed : Json();
      std::optional<EvalItem> item = line.is_object() ? json_item(line) : std::nullopt;
      if (!item) return error("{} line {} is not an item of a task", file->name(), i + 1);
      return *std::move(item);
    });
  } else if (is_hellaswag(lines)) {
    task.num_items_in_file = static_cast<int64_t>(lines.size() / lines_of_hellaswag);
    done = pick_items(task, max_items,
                      [&](size_t i) -> Result<EvalItem> { return hellaswag_item(lines, i * lines_of_hellaswag); });
  } else {
    data.texts.push_back({file->name(), kind, sanitize_utf8(std::string(text))});
  }
  if (!done) return done.error();
  data.files.push_back({digest->front(), kind, !task.items.empty()});
  if (!task.items.empty()) data.tasks.push_back(std::move(task));
  return {};
}

}  // namespace tidemill

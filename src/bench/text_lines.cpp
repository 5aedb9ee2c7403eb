#include "bench/text_lines.h"

#include <string>

#include "base/mapped_file.h"
#include "base/printable.h"
#include "bench/workload.h"

namespace tidemill {

Result<void> for_each_line(const std::filesystem::path& path, int64_t most,
                           const std::function<Result<void>(std::string_view)>& use) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  std::string_view rest(reinterpret_cast<const char*>(file->bytes().data()), file->size_bytes());
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  int64_t num_used = 0;
  for (int64_t number = 1; !rest.empty() && num_used < most; ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (line.size() > longest_bench_prompt_bytes) {
      return error("{} line {}: has {} bytes, more than {}", file->name(), number, line.size(),
                   longest_bench_prompt_bytes);
    }
    if (Result<void> done = use(line); !done) {
      return error("{} line {}: {}", file->name(), number, done.error().message);
    }
    ++num_used;
  }
  if (num_used == 0) return error("{} has no lines to use", file->name());
  return {};
}

}  // namespace tidemill

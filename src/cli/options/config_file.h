// A YAML configuration file: one mapping from option names to values, as `tidemill serve --config FILE` reads it.
//
//   port: 8080
//   api-key: [first, second]   # a list for an option that may be given several times
//
// Keys are option names without dashes in front; "_" is as good as "-". Values are kept as texts.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tidemill {

using ConfigEntries = std::vector<std::pair<std::string, std::vector<std::string>>>;

// An Error names the file, and the line where there is one.
Result<ConfigEntries> read_config_file(const std::filesystem::path& path);

}  // namespace tidemill

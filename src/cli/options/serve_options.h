// What `tidemill serve` can be told, and the check that it makes sense together.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/options/option_list.h"
#include "cli/options/run_options.h"
#include "server/api_server.h"

namespace tidemill {

struct ServeOptions {
  RunOptions run;
  ServerConfig server;  // keys.keys and origins are filled in by finish_serve_options
  std::vector<std::string> served_names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_origins;
  std::string profile;  // its name; "" = none
  LogLevel log_level = LogLevel::info;
  bool log_requests = false;
  std::string config_file;  // read by the option parser
};

void add_serve_options(OptionList& list, ServeOptions& target);

// Reads the key file, joins lists, and refuses options that contradict each other.
Result<void> finish_serve_options(ServeOptions& options);

}  // namespace tidemill

// The options that say in which formats the KV cache stores keys and values.
#pragma once

#include <optional>
#include <vector>

#include "cli/options/option_list.h"
#include "runtime/kv_formats.h"

namespace tidemill {

// Adds to the group before it. `target` must outlive the list.
void add_kv_format_options(OptionList& list, KvFormatChoice& target);
// What a server's requests may ask for.
void add_request_format_option(OptionList& list, std::vector<KvFormat>& target);
// What its cold blocks are encoded in anew.
void add_reencode_option(OptionList& list, std::optional<KvFormat>& target);

}  // namespace tidemill

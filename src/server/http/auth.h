// API keys: who may call, and as whom.
//
// A key is kept and compared as its SHA-256. Every comparison looks at all bytes of all keys, so its time tells nothing
// about how much of a guess was right. Keys never appear in a log, a reply or a metric; a caller is named by its
// tenant.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine_config.h"
#include "server/http/http_message.h"

namespace tidemill {

// On whose behalf a request comes.
struct Caller {
  std::string tenant;                         // "" = nobody in particular
  std::optional<LatencyClass> latency_class;  // the one beside its key
};

class KeyRing {
 public:
  // Each entry is a key, or a key, a blank and the name of a latency class. Keys are 1 to 4096 visible ASCII
  // characters. An empty ring lets everybody in.
  static Result<KeyRing> make(const std::vector<std::string>& keys);
  // One key a line; blank lines and lines that begin with '#' do not count.
  static Result<std::vector<std::string>> read_file(const std::string& path);

  bool empty() const { return digests_.empty(); }

  struct Match {
    std::optional<size_t> key;      // the index of the key that fits
    size_t num_bytes_compared = 0;  // always digest bytes times keys
  };
  Match match(std::string_view presented) const;

  // Who sends a request, nobody in particular on an empty ring; nothing when it has no valid key. Taken from
  // "Authorization: Bearer KEY" (the scheme in any case), else from "x-api-key".
  std::optional<Caller> identify(const HttpRequest& request) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  std::vector<Digest> digests_;
  std::vector<Caller> callers_;
};

}  // namespace tidemill

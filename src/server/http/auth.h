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
  std::string tenant;                         // the key's own name, for fair shares and logs; "" = nobody in particular
  std::string cache_tenant;                   // whose prefix blocks it may use; keys have one in common unless told
  bool admin = false;                         // may change the cache
  std::optional<LatencyClass> latency_class;  // the one beside its key
};

struct KeyRules {
  std::vector<std::string> keys = {};
  std::vector<std::string> admin_keys = {};
  bool isolate = false;  // a key without "tenant=" is a tenant of its own
};

class KeyRing {
 public:
  // Each entry is a key, and behind it, parted by blanks, if wanted the name of a latency class and "tenant=NAME". Keys
  // are 1 to 4096 visible ASCII characters. A ring without keys of callers lets everybody in, as an administrator only
  // who presents an administrator's key.
  static Result<KeyRing> make(const KeyRules& rules);
  // One key a line; blank lines and lines that begin with '#' do not count.
  static Result<std::vector<std::string>> read_file(const std::string& path);

  bool empty() const { return !needs_key_; }
  bool has_admin() const { return has_admin_; }
  // Some callers must learn nothing of others.
  bool has_tenants() const { return has_tenants_; }

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
  Result<void> add(const std::string& entry, size_t number, const char* kind);
  std::vector<Digest> digests_;
  std::vector<Caller> callers_;
  bool needs_key_ = false, has_admin_ = false, has_tenants_ = false;
};

}  // namespace tidemill

#include "server/http/auth.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>

namespace tidemill {
namespace {

constexpr size_t max_key_bytes = 4096;
constexpr std::string_view tenant_mark = "tenant=";

bool visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

// A key, and what follows the blanks behind it.
std::pair<std::string_view, std::string_view> split_entry(std::string_view entry) {
  const size_t blank = entry.find_first_of(" \t");
  if (blank == std::string_view::npos || blank == 0) return {entry, {}};
  const size_t word = entry.find_first_not_of(" \t", blank);
  return {entry.substr(0, blank), word == std::string_view::npos ? std::string_view("?") : entry.substr(word)};
}

std::string_view presented_key(const HttpRequest& request) {
  const std::string_view authorization = request.header("Authorization");
  const size_t blank = authorization.find(' ');
  if (blank != std::string_view::npos && equal_without_case(authorization.substr(0, blank), "Bearer")) {
    const size_t begin = authorization.find_first_not_of(' ', blank);
    return begin == std::string_view::npos ? std::string_view() : authorization.substr(begin);
  }
  return authorization.empty() ? request.header("x-api-key") : std::string_view();
}

}  // namespace

Result<void> KeyRing::add(const std::string& entry, size_t number, const char* kind) {
  const auto [key, words] = split_entry(entry);
  if (key.empty() || key.size() > max_key_bytes)
    return error("{} {} has {} characters, 1 to {} are allowed", kind, number, key.size(), max_key_bytes);
  if (!visible(key)) return error("{} {} has a character outside visible ASCII", kind, number);
  Caller caller;
  for (std::string_view rest = words; !rest.empty();) {
    const auto [word, more] = split_entry(rest);
    rest = more;
    if (const auto named = latency_class_named(word); named && !caller.latency_class) {
      caller.latency_class = named;
    } else if (word.starts_with(tenant_mark) && word.size() > tenant_mark.size() && caller.cache_tenant.empty()) {
      caller.cache_tenant = word.substr(tenant_mark.size());
    } else {
      return error(
          "{} {} is followed by something else than one latency class (interactive, standard or bulk) and one "
          "tenant=NAME",
          kind, number);
    }
  }
  const Digest digest = sha256(key);
  caller.tenant = fmt::format("key-{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3],
                              digest[4], digest[5]);
  digests_.push_back(digest);
  callers_.push_back(std::move(caller));
  return {};
}

Result<KeyRing> KeyRing::make(const KeyRules& rules) {
  KeyRing ring;
  for (size_t i = 0; i < rules.keys.size(); ++i)
    if (Result<void> added = ring.add(rules.keys[i], i + 1, "API key"); !added) return added.error();
  for (Caller& caller : ring.callers_) {
    // Told apart from every name that somebody could give.
    if (caller.cache_tenant.empty() && rules.isolate) caller.cache_tenant = "key " + caller.tenant;
    ring.has_tenants_ |= !caller.cache_tenant.empty();
  }
  ring.needs_key_ = !ring.digests_.empty();
  for (size_t i = 0; i < rules.admin_keys.size(); ++i) {
    if (Result<void> added = ring.add(rules.admin_keys[i], i + 1, "administrator's key"); !added) return added.error();
    ring.callers_.back().admin = ring.has_admin_ = true;
  }
  return ring;
}

Result<std::vector<std::string>> KeyRing::read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return error("the API key file {} cannot be read", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  // Serving without keys because the file happens to be empty would be the opposite of what was asked for.
  if (keys.empty()) return error("the API key file {} has no key in it", path);
  return keys;
}

KeyRing::Match KeyRing::match(std::string_view presented) const {
  const Digest digest = sha256(presented);
  Match match;
  for (size_t i = 0; i < digests_.size(); ++i) {
    const bool equal = CRYPTO_memcmp(digest.data(), digests_[i].data(), digest.size()) == 0;
    match.num_bytes_compared += digest.size();
    if (equal && (!match.key || callers_[i].admin)) match.key = i;
  }
  return match;
}

std::optional<Caller> KeyRing::identify(const HttpRequest& request) const {
  if (digests_.empty()) return Caller{};
  if (request.count("Authorization") > 1) return empty() ? std::optional(Caller{}) : std::nullopt;
  const Match found = match(presented_key(request));
  if (found.key) return callers_[*found.key];
  return empty() ? std::optional(Caller{}) : std::nullopt;
}

}  // namespace tidemill

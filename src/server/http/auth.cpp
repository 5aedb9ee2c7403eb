#include "server/http/auth.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>

namespace tidemill {
namespace {

constexpr size_t max_key_bytes = 4096;

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

Result<KeyRing> KeyRing::make(const std::vector<std::string>& entries) {
  KeyRing ring;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto [key, word] = split_entry(entries[i]);
    if (key.empty() || key.size() > max_key_bytes)
      return error("API key {} has {} characters, 1 to {} are allowed", i + 1, key.size(), max_key_bytes);
    if (!visible(key)) return error("API key {} has a character outside visible ASCII", i + 1);
    Caller caller;
    if (!word.empty()) {
      caller.latency_class = latency_class_named(word);
      if (!caller.latency_class)
        return error("API key {} is followed by something else than a latency class: interactive, standard or bulk",
                     i + 1);
    }
    const Digest digest = sha256(key);
    caller.tenant = fmt::format("key-{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3],
                                digest[4], digest[5]);
    ring.digests_.push_back(digest);
    ring.callers_.push_back(std::move(caller));
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
    if (equal && !match.key) match.key = i;
  }
  return match;
}

std::optional<Caller> KeyRing::identify(const HttpRequest& request) const {
  if (empty()) return Caller{};
  if (request.count("Authorization") > 1) return std::nullopt;
  const Match found = match(presented_key(request));
  return found.key ? std::optional(callers_[*found.key]) : std::nullopt;
}

}  // namespace tidemill

#include "bench/prompt_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/printable.h"
#include "base/utf8.h"

namespace tidemill {
namespace {

constexpr size_t invented_bytes = 200'000;
constexpr size_t least_bytes = 1000;
constexpr size_t most_bytes = size_t{64} << 20;

// Roughly by how often English uses them; earlier ones are drawn more often.
constexpr std::array<std::string_view, 192> words = {
    "the",       "of",       "and",     "to",       "in",           "a",          "is",         "that",       "for",
    "it",        "was",      "on",      "as",       "with",         "be",         "by",         "at",         "from",
    "are",       "this",     "he",      "or",       "which",        "had",        "not",        "but",        "have",
    "they",      "you",      "were",    "his",      "one",          "all",        "we",         "can",        "her",
    "has",       "there",    "been",    "if",       "more",         "when",       "will",       "would",      "who",
    "so",        "no",       "water",   "out",      "up",           "into",       "them",       "then",       "she",
    "many",      "some",     "time",    "people",   "other",        "its",        "only",       "new",        "could",
    "these",     "two",      "may",     "first",    "any",          "like",       "now",        "such",       "make",
    "over",      "our",      "even",    "most",     "after",        "also",       "made",       "did",        "before",
    "must",      "through",  "back",    "years",    "where",        "much",       "way",        "well",       "down",
    "should",    "because",  "each",    "just",     "those",        "how",        "too",        "little",     "state",
    "good",      "very",     "world",   "still",    "own",          "see",        "men",        "work",       "long",
    "here",      "between",  "both",    "life",     "being",        "under",      "never",      "day",        "same",
    "another",   "know",     "while",   "last",     "might",        "us",         "great",      "old",        "year",
    "off",       "come",     "since",   "against",  "river",        "came",       "right",      "used",       "take",
    "three",     "house",    "machine", "during",   "without",      "again",      "place",      "around",     "however",
    "home",      "small",    "found",   "thought",  "went",         "say",        "part",       "once",       "general",
    "high",      "upon",     "school",  "every",    "don",          "does",       "got",        "united",     "left",
    "number",    "course",   "war",     "until",    "always",       "away",       "something",  "fact",       "though",
    "millstone", "harbour",  "quiet",   "carriage", "considerable", "impossible", "remembered", "understood", "letter",
    "moonlight", "engineer", "ebb",     "estuary",  "reservoir",    "sluice",     "turning",    "evening",    "nobody",
    "perhaps",   "suddenly", "tomorrow"};

// A word, the common ones more often: about Zipf's law.
std::string_view draw_word(RandomSource& random) {
  const double place = std::exp(random.unit() * std::log(static_cast<double>(words.size()))) - 1;
  return words[std::min(words.size() - 1, static_cast<size_t>(place * 1.02))];
}

void append_sentence(std::string& text, RandomSource& random) {
  const int64_t num_words = random.between(5, 24);
  const size_t begin = text.size();
  for (int64_t i = 0; i < num_words; ++i) {
    if (i > 0) text += random.unit() < 0.08 ? ", " : " ";
    text += draw_word(random);
  }
  text[begin] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[begin])));
  text += random.unit() < 0.1 ? "?" : ".";
  text += random.unit() < 0.15 ? "\n\n" : " ";
}

bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

PromptText PromptText::invented(uint64_t seed) {
  RandomSource random(seed);
  std::string text;
  while (text.size() < invented_bytes) append_sentence(text, random);
  return PromptText(std::move(text));
}

Result<PromptText> PromptText::from_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return error("{} cannot be read", printable(path.string()));
  std::string text;
  std::array<char, 65536> piece;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > most_bytes) return error("{} is longer than {} bytes", printable(path.string()), most_bytes);
  }
  if (text.size() < least_bytes) {
    return error("{} has {} bytes; a text to cut prompts from needs {}", printable(path.string()), text.size(),
                 least_bytes);
  }
  if (!is_valid_utf8(text)) return error("{} is not UTF-8", printable(path.string()));
  return PromptText(std::move(text));
}

std::string PromptText::cut(RandomSource& random, int64_t num_chars) const {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(1, num_chars));
  const size_t last_start = text_.size() > wanted + 1 ? text_.size() - wanted - 1 : 0;
  size_t start = static_cast<size_t>(random.between(0, static_cast<int64_t>(last_start)));
  const size_t blank = text_.find(' ', start);
  start = blank == std::string::npos ? 0 : blank + 1;
  std::string piece;
  while (piece.size() < wanted) {
    piece += text_.substr(start, wanted - piece.size());
    start = 0;
  }
  // What hangs over the end is an unfinished character.
  size_t end = piece.size();
  while (end > 1 && is_inside_character(piece[end - 1])) --end;
  if (end >= 1 && static_cast<unsigned char>(piece[end - 1]) >= 0xC0) piece.resize(end - 1);
  return piece.empty() ? "a" : piece;
}

}  // namespace tidemill

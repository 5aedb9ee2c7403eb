// The splitting rules behind the names of tokenizer.ggml.pre: published patterns of the models' own tokenizers.
#include <array>

#include "text/preparation/pre_tokenizer.h"

namespace tidemill {

const std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Pieces that many patterns share; string literals concatenate.
#define TM_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TM_LETTERS R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define TM_SYMBOLS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define TM_BLANKS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TM_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TM_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define TM_CASED_WORD(suffix) \
  R"([^\r\n\p{L}\p{N}]?)" TM_UPPER "*" TM_LOWER "+" suffix R"(|[^\r\n\p{L}\p{N}]?)" TM_UPPER "+" TM_LOWER "*" suffix

constexpr const char* llama3_pattern = TM_CONTRACTION "|" TM_LETTERS R"(|\p{N}{1,3}|)" TM_SYMBOLS "|" TM_BLANKS;
constexpr const char* qwen2_pattern = TM_CONTRACTION "|" TM_LETTERS R"(|\p{N}|)" TM_SYMBOLS "|" TM_BLANKS;
constexpr const char* qwen35_pattern =
    TM_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" TM_BLANKS;
constexpr const char* gpt4o = TM_CASED_WORD(TM_CONTRACTION "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TM_BLANKS;
constexpr const char* tekken_pattern = TM_CASED_WORD("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TM_BLANKS;
constexpr const char* seed_coder = TM_CONTRACTION "|" TM_LETTERS R"(|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)" TM_BLANKS;
constexpr const char* bailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* deepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|)" TM_BLANKS;
constexpr const char* han_and_kana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr const char* han_and_hangul = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr const char* bloom_pattern = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";
constexpr const char* youtu_scripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
    R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F})"
    R"(\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr const char* youtu_pattern =
    TM_CASED_WORD(TM_CONTRACTION "?") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TM_BLANKS;
constexpr const char* exaone_moe_pattern =
    TM_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
                   R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// DeepSeek's own list of cased letters.
constexpr const char* deepseek_letters =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"
    R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})"
    R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})"
    R"(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr const char* deepseek_symbols =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";

#undef TM_CONTRACTION
#undef TM_LETTERS
#undef TM_SYMBOLS
#undef TM_BLANKS
#undef TM_UPPER
#undef TM_LOWER
#undef TM_CASED_WORD

struct NamedRule {
  std::array<const char*, 14> names;
  std::array<const char*, 6> patterns;  // each one cuts what the earlier ones left; null-terminated
  bool ignore_merges = false;
  bool adds_bos = false;
};

const char* const gpt2_rule = gpt2_pattern.data();

const NamedRule named_rules[] = {
    {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "olmo",
      "exaone4", "trillion", "granite-docling", "mpt"},
     {gpt2_rule}},
    {{"jais", "modern-bert", "roberta-bpe", "jina-v1-en", "jina-v2-code", "gpt2"}, {gpt2_rule}},
    {{"starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"}, {R"(\p{N})", gpt2_rule}},
    // Words first, then digits. The published tokenizer.json and llama.cpp cut digits first; transformers, reading the
    // GGUF file, cuts words only, and the reference ids of SmolLM2's book are its. Cutting the digits afterwards keeps
    // those ids, since no token of the vocabulary holds two. The orders differ only where two or more blanks stand
    // before a digit: 7 of Moby-Dick's 320,221 tokens.
    {{"smollm"}, {gpt2_rule, R"(\p{N})"}},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
     {llama3_pattern},
     true,
     true},
    {{"dbrx", "smaug-bpe", "smaug", "chatglm-bpe"}, {llama3_pattern}},
    {{"glm4", "glm5"}, {llama3_pattern}, true},
    {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"},
     {qwen2_pattern}},
    {{"qwen35"}, {qwen35_pattern}},
    {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {gpt4o}},
    {{"tekken"}, {tekken_pattern}, true, true},
    {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", gpt4o}},
    {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_rule, "[0-9][0-9][0-9]"}},
    {{"deepseek-llm"}, {R"([\r\n])", deepseek_letters, deepseek_symbols, R"(\s+$)", han_and_hangul, R"(\p{N}+)"}},
    {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", han_and_hangul, R"(\p{N})"}},
    {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {R"(\p{N}{1,3})", han_and_kana, deepseek3}},
    {{"youtu"}, {youtu_scripts, youtu_pattern}, true},
    {{"seed-coder"}, {seed_coder}},
    {{"bailingmoe", "bailingmoe2", "llada-moe"}, {bailing}},
    {{"exaone-moe"}, {exaone_moe_pattern}},
    {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
    {{"bloom", "poro-chat", "gpt3-finnish"}, {bloom_pattern}},
    {{"viking"}, {bloom_pattern, R"(\p{N})"}},
    {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_rule, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
};

const NamedRule* find_rule(std::string_view name) {
  for (const NamedRule& rule : named_rules) {
    for (const char* known : rule.names) {
      if (known && name == known) return &rule;
    }
  }
  return nullptr;
}

}  // namespace

Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name) {
  const NamedRule* rule = find_rule(name);
  if (!rule) return error("pre-tokenizer '{}' (tokenizer.ggml.pre) is not supported", name);
  NamedPreTokenizer named;
  named.ignore_merges = rule->ignore_merges;
  named.adds_bos = rule->adds_bos;
  for (const char* pattern : rule->patterns) {
    if (!pattern) break;
    auto stage = make_regex_stage(pattern);
    if (!stage.ok()) return stage.error();
    named.pre_tokenizer.add(std::move(*stage));
  }
  return named;
}

}  // namespace tidemill

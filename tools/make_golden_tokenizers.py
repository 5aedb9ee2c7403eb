#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small tokenizer.json files of many kinds, with texts, ids and decoded texts.

    pip install tokenizers && tools/make_golden_tokenizers.py CORPUS tests/golden/tokenizers

The oracle is Hugging Face's tokenizers package; the vocabularies are trained here on CORPUS (any English text).
"""
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "", " ", "  ", "   a", "a   ", "Hello, world!", "hello  world   and    more", "\n", "\n\n", "a\n\nb \n c\t\td",
    "It's WE'LL they'Ve I'm 'S", "in 1851 or 12345678, 3.14159e+10", "x1y22z333", "snake_case CamelCase HTTPServer2go",
    "(paren) [brack] {brace} <tag> \"quote\" --- ... !!! ?!", "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m \uff21\uff22\uff23",
    "\u4e2d\u6587\u5b57\u7b26 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u0420\u0443\u0441\u0441\u043a\u0438\u0439", "\U0001F600 \U0001F468\u200D\U0001F469\u200D\U0001F467 emoji", "\u2581 mark \u2581\u2581x",
    "a <s>control</s> <|end|>text <|end|>", "a<|tool|>b <|tool|> c", "left <|l|> right <|r|> word<|w|>word <|w|> end",
    "The whale, the Whale, THE WHALE; whales' whaling.", "\u00bd \u2167 \u0663\u0664 \u1680x\u3000y\u00a0z\u180ew",
    "http://example.com/a?b=c&d=%20e#f", "    def f(x):\n        return x ** 2\n", "tabs\there\r\nand there\r\n\r\n",
    "\u0130stanbul \u00df \ufb01 \u01c5 \u2126", "supercalifragilisticexpialidocious" * 3, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<unk>", "<s>", "</s>"]


def byte_level(*before):
    return pre_tokenizers.Sequence(list(before) + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not before)])


def bpe(corpus, pre, vocab_size=400, normalizer=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<s>", "</s>"], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def sentencepiece_bpe(corpus, vocab_size=500, metaspace=None):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        train = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    keep = t.pre_tokenizer
    t.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next") if not metaspace else train
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIALS + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = json.loads(keep.__getstate__()) if metaspace else None
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in SPECIALS]
    return Tokenizer.from_str(json.dumps(j))


def unigram(corpus, vocab_size=300, byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " "), normalizers.NFKC()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=SPECIALS, unk_token="<unk>",
                                                          show_progress=False))
    return t


def make(corpus):
    llama3 = bpe(corpus, byte_level(split(LLAMA3)))
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", llama3.token_to_id("<s>"))])])
    yield "llama3_template", llama3
    flags = bpe(corpus, byte_level(), normalizer=normalizers.NFC())
    flags.add_special_tokens(["<|end|>"])
    flags.add_tokens([AddedToken("<|tool|>", normalized=False), AddedToken("<|l|>", lstrip=True, normalized=False),
                      AddedToken("<|r|>", rstrip=True, normalized=False),
                      AddedToken("<|w|>", single_word=True, normalized=False), AddedToken("whale", normalized=True)])
    yield "added_flags_nfc", flags
    yield "digits", bpe(corpus, byte_level(pre_tokenizers.Digits(individual_digits=True)))
    yield "gpt4o", bpe(corpus, byte_level(split(GPT4O)))
    prefixed = bpe(corpus, pre_tokenizers.ByteLevel(add_prefix_space=True))
    prefixed.post_processor = processors.RobertaProcessing(("</s>", prefixed.token_to_id("</s>")), ("<s>", prefixed.token_to_id("<s>")))
    yield "prefix_space_roberta", prefixed
    deepseek = [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(r"[\u4e00-\u9fa5]+"), split(r"\s+$"),
                pre_tokenizers.Digits(individual_digits=True)]
    yield "deepseek_like", bpe(corpus, byte_level(*deepseek))
    yield "superbpe_digits", bpe(corpus, byte_level(split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))")))
    yield "aya_digits", bpe(corpus, byte_level(split(r"\d{1,3}(?=(?:\d{3})*\b)")))
    yield "punctuation_behaviors", bpe(corpus, byte_level(
        pre_tokenizers.Punctuation("contiguous"), split(r" ", "merged_with_next"), split(r"[aeiou]", "merged_with_previous")))
    yield "inverted_words", bpe(corpus, byte_level(split(r"\w+|[^\w\s]+|\s+", "isolated", True)))
    yield "normalized_text", bpe(corpus, byte_level(), normalizer=normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Replace("whale", "fish"), normalizers.Replace(Regex(r"\d+"), "0")]))
    yield "sentencepiece_prepend", sentencepiece_bpe(corpus)
    yield "sentencepiece_metaspace_first", sentencepiece_bpe(corpus, metaspace="first")
    yield "unigram_metaspace", unigram(corpus)


def main():
    corpus = open(sys.argv[1], encoding="utf-8").read()[:150_000].split("\n\n")
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in make(corpus):
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True),
                          "decoded_with_special": tokenizer.decode(ids, skip_special_tokens=False)})
        data = {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        (out / f"{name}.json").write_text(json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n")


main()

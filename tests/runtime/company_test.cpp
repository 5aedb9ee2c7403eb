// The promise that an answer does not depend on who else is in the batch: real models, a real engine, random company.
//
// Every variant of batching, chunk, block size, threads, cache and memory pressure must give each request the tokens
// and log-probabilities that it gets alone, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>

#include "base/clock.h"
#include "compute/backend.h"
#include "engine/block_formats.h"
#include "engine/engine.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "runtime/kv_storage.h"
#include "runtime/model_executor.h"
#include "test_data.h"

namespace tidemill {
namespace {

constexpr int32_t max_len = 256;

struct Answer {
  std::vector<Draw> draws;
  std::optional<FinishReason> reason;
  int32_t num_preemptions = 0, num_reencoded_tokens = 0;
  bool operator==(const Answer& other) const { return draws == other.draws && reason == other.reason; }
};

class Collector final : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override {
    for (RequestEvent& event : events) {
      Answer& answer = answers[{event.request, event.choice}];
      EXPECT_FALSE(answer.reason) << "nothing follows the terminal event";
      if (event.kind == RequestEvent::Kind::token) answer.draws.push_back(std::move(event.draw));
      if (event.kind == RequestEvent::Kind::finished) {
        answer.reason = event.reason;
        answer.num_preemptions = event.timings.num_preemptions;
        answer.num_reencoded_tokens = event.usage.reencoded_tokens;
      }
    }
  }
  std::map<std::pair<RequestId, int32_t>, Answer> answers;
};

struct Variant {
  std::string name = "alone";
  int32_t threads = 1;
  int32_t block_size = 32;
  int32_t chunk = 64;
  int32_t max_num_seqs = 16;
  int32_t num_blocks = 400;
  int32_t num_host_blocks = 0;
  std::string disk_path = "";
  int32_t max_rows = 256;
  BatchingMode batching = BatchingMode::continuous;
  bool kv_cache = true;
  bool prefix_caching = true;
  KvReserve reserve = KvReserve::on_demand;
  PolicyKind policy = PolicyKind::first_come;
  uint32_t order_seed = 1;  // when each request joins
  KvFormats formats{};
  std::vector<KvFormats> extra{};  // requests say which
  std::optional<KvFormatId> reencode{};
};

struct Outcome {
  std::vector<std::vector<Answer>> answers;  // by request, by choice
  EngineStats stats;
};

std::vector<Request> make_requests(int32_t count) {
  std::mt19937 rng(7);
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    Request request;
    const int32_t length = i % 5 == 0 ? 1 + i : 1 + static_cast<int32_t>(rng() % 150);
    // A third of them begin alike, so that prefix hits happen.
    for (int32_t k = 0; k < length; ++k)
      request.prompt.push_back(i % 3 == 0 ? (k * 37 + 5) % 380 : static_cast<TokenId>(rng() % 384));
    request.max_tokens = 8 + static_cast<int64_t>(rng() % 33);
    request.sampling.logprobs = 2;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.has_seed = true;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 4 == 1) request.sampling.frequency_penalty = 1.0f;
    if (i % 4 == 3) request.sampling.top_p = 0.9f;
    if (i % 7 == 3) request.num_choices = 3;
    request.priority = i % 3;
    requests.push_back(std::move(request));
  }
  return requests;
}

Outcome run(const std::string& model_folder, const Variant& variant, const std::vector<Request>& requests, bool alone) {
  const char* kernels = std::getenv("TIDEMILL_KERNELS");  // the test run repeats this with each instruction set
  auto backend = make_cpu_backend({.num_threads = variant.threads, .kernels = kernels ? kernels : ""});
  EXPECT_TRUE(backend.ok());
  auto files = open_model_files(testing::golden_path("tiny-models/" + model_folder));
  EXPECT_TRUE(files.ok());
  auto config = read_model_config(*files);
  EXPECT_TRUE(config.ok());
  auto model = load_model(*files->weights, *config, **backend, {});
  EXPECT_TRUE(model.ok());
  const KvFormats& formats = variant.formats;
  EngineConfig engine_config;
  engine_config.groups = block_groups((*model)->kv_layout(), variant.block_size, formats);
  for (const KvFormats& extra : variant.extra) {
    engine_config.extra_formats.push_back({.groups = block_groups((*model)->kv_layout(), variant.block_size, extra),
                                           .tail_name = "tail",
                                           .sealed_name = kv_formats_text(extra),
                                           .key = kv_format_key(extra, variant.block_size)});
  }
  for (const BlockGroup& group : engine_config.groups)
    engine_config.kv_budget_bytes += group.sealed_bytes * static_cast<size_t>(variant.num_blocks);
  for (const BlockGroup& group : engine_config.groups)
    engine_config.kv_host_bytes += group.sealed_bytes * static_cast<size_t>(variant.num_host_blocks);
  engine_config.block_size_tokens = variant.block_size;
  engine_config.max_model_len_tokens = max_len;
  engine_config.max_num_seqs = variant.max_num_seqs;
  engine_config.max_num_batched_tokens = variant.chunk;
  engine_config.batching = variant.batching;
  engine_config.kv_cache = variant.kv_cache;
  engine_config.kv_reserve = variant.reserve;
  engine_config.policy = variant.policy;
  engine_config.prefix_caching = variant.prefix_caching;
  engine_config.kv_reencode = variant.reencode;
  auto storage = KvStorage::make((*model)->kv_layout(), variant.block_size, formats, engine_config.kv_budget_bytes,
                                 backend->get(), variant.extra);
  EXPECT_TRUE(storage.ok());
  auto host = HostTier::make(engine_config.kv_host_bytes, BlockFormats(engine_config).sealed_class_bytes());
  EXPECT_TRUE(host.ok());
  std::unique_ptr<DiskFile> disk;
  if (!variant.disk_path.empty()) {
    const std::vector<size_t> bytes = BlockFormats(engine_config).sealed_class_bytes();
    engine_config.kv_disk_bytes = size_t{1} << 30;
    engine_config.kv_disk_class_bytes = DiskFile::record_bytes(bytes, variant.block_size);
    auto opened = DiskFile::open({.path = variant.disk_path,
                                  .budget_bytes = engine_config.kv_disk_bytes,
                                  .identity = model_folder,
                                  .payload_bytes = bytes,
                                  .groups = BlockFormats(engine_config).class_groups(),
                                  .block_size_tokens = variant.block_size});
    EXPECT_TRUE(opened.ok());
    disk = *std::move(opened);
    engine_config.kv_hash_key = disk->hash_key();
  }
  SystemClock clock;
  Collector collector;
  Engine engine(engine_config,
                std::make_unique<ModelExecutor>(**model, **storage,
                                                ExecutorOptions{.max_num_seqs = variant.max_num_seqs,
                                                                .max_rows = variant.max_rows,
                                                                .max_logit_rows = 8,
                                                                .disk = disk.get(),
                                                                .host = host->get()}),
                clock, collector);
  std::vector<RequestId> ids(requests.size());
  const auto submit = [&](size_t i) {
    auto accepted = engine.submit(requests[i]);
    ASSERT_TRUE(std::holds_alternative<RequestId>(accepted)) << std::get<Refusal>(accepted).message;
    ids[i] = std::get<RequestId>(accepted);
  };
  std::mt19937 rng(variant.order_seed);
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), rng);
  for (size_t i : order) {
    submit(i);
    const int pause = alone ? 1 << 20 : static_cast<int>(rng() % 6);
    for (int step = 0; step < pause && engine.step_once(); ++step) {
    }
  }
  while (engine.step_once()) {
  }
  Outcome outcome;
  outcome.stats = engine.stats();
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<Answer> choices;
    for (int32_t choice = 0; choice < requests[i].num_choices; ++choice)
      choices.push_back(collector.answers[{ids[i], choice}]);
    outcome.answers.push_back(std::move(choices));
  }
  return outcome;
}

class CompanyTest : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_same_as_alone(const Variant& variant) {
    SCOPED_TRACE(variant.name);
    const Outcome outcome = run(GetParam(), variant, requests_, false);
    for (size_t i = 0; i < requests_.size(); ++i) {
      for (int32_t choice = 0; choice < requests_[i].num_choices; ++choice) {
        const Answer& answer = outcome.answers[i][choice];
        ASSERT_TRUE(answer.reason) << "request " << i << " has no terminal event";
        EXPECT_TRUE(answer == alone().answers[i][choice]) << "request " << i << " choice " << choice;
      }
    }
    EXPECT_EQ(outcome.stats.num_requests_running, 0);
    EXPECT_EQ(outcome.stats.num_requests_waiting, 0);
    EXPECT_EQ(outcome.stats.num_blocks_held, 0);
    last_stats_ = outcome.stats;
  }

  const Outcome& alone() {
    static std::map<std::string, Outcome> outcomes;
    auto& outcome = outcomes[GetParam()];
    if (outcome.answers.empty()) outcome = run(GetParam(), {.name = "alone", .prefix_caching = false}, requests_, true);
    return outcome;
  }

  const std::vector<Request> requests_ = make_requests(24);
  EngineStats last_stats_;
};

TEST_P(CompanyTest, ChoiceIIsTheOnlyChoiceOfSeedPlusI) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    for (int32_t choice = 1; choice < requests_[i].num_choices; ++choice) {
      Request single = requests_[i];
      single.num_choices = 1;
      single.sampling.seed += static_cast<uint64_t>(choice);
      const Outcome outcome = run(GetParam(), {.name = "single"}, {single}, true);
      EXPECT_TRUE(outcome.answers[0][0] == alone().answers[i][choice]);
    }
  }
}

TEST_P(CompanyTest, AnyChunk) {
  for (int32_t chunk : {16, 17, 64, 1000})
    expect_same_as_alone({.name = "chunk " + std::to_string(chunk), .chunk = chunk});
  expect_same_as_alone({.name = "one token at a time", .chunk = 1, .max_num_seqs = 1});
  expect_same_as_alone({.name = "executor slices of 5 rows", .chunk = 128, .max_rows = 5});
}

TEST_P(CompanyTest, AnyOrderBlockSizeAndThreads) {
  for (int32_t threads : {2, 3})
    expect_same_as_alone({.name = "threads " + std::to_string(threads), .threads = threads, .order_seed = 5});
  for (int32_t block_size : {16, 64})
    expect_same_as_alone(
        {.name = "block size " + std::to_string(block_size), .block_size = block_size, .order_seed = 9});
}

TEST_P(CompanyTest, AnyBatchingMode) {
  expect_same_as_alone({.name = "none", .batching = BatchingMode::none});
  expect_same_as_alone({.name = "static", .batching = BatchingMode::fixed});
  expect_same_as_alone({.name = "kv cache off", .max_num_seqs = 4, .kv_cache = false});
  expect_same_as_alone({.name = "reserved in full", .reserve = KvReserve::full});
  expect_same_as_alone({.name = "priority", .max_num_seqs = 3, .policy = PolicyKind::priority});
}

TEST_P(CompanyTest, PrefixHitsChangeNothing) {
  expect_same_as_alone({.name = "prefix caching", .block_size = 16, .prefix_caching = true});
  EXPECT_GT(last_stats_.prefix_cache_hits, 0u);
}

TEST_P(CompanyTest, PreemptionsChangeNothing) {
  for (bool prefix_caching : {true, false}) {
    // Gemma's windowed layers give blocks back, so it needs fewer before they are scarce.
    const int32_t num_blocks = GetParam() == "gemma3" ? 14 : 20;
    expect_same_as_alone(
        {.name = "scarce blocks", .block_size = 16, .num_blocks = num_blocks, .prefix_caching = prefix_caching});
    EXPECT_GT(last_stats_.num_preemptions, 0u);
  }
}

// Who does not permit it reads nothing of them; who does gets an answer that is hardly another.
TEST_P(CompanyTest, ColdBlocksThatAreEncodedAnewChangeNothingForWhoDoesNotReadThem) {
  std::vector<Request> requests = requests_;
  for (int round = 0; round < 4; ++round) requests.insert(requests.end(), requests_.begin(), requests_.end());
  for (size_t i = 0; i < requests.size(); ++i) requests[i].may_read_reencoded = i % 4 != 1;
  const Outcome outcome = run(GetParam(),
                              {.name = "encoded anew",
                               .block_size = 16,
                               .num_blocks = GetParam() == "gemma3" ? 24 : 30,
                               .extra = {{.sealed = KvFormat::int8}},
                               .reencode = 1},
                              requests, false);
  int32_t num_reencoded = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int32_t choice = 0; choice < requests[i].num_choices; ++choice) {
      const Answer& answer = outcome.answers[i][choice];
      const Answer& expected = alone().answers[i % requests_.size()][choice];
      ASSERT_TRUE(answer.reason);
      num_reencoded += answer.num_reencoded_tokens;
      if (answer.num_reencoded_tokens == 0) {
        EXPECT_TRUE(answer == expected) << "request " << i << " choice " << choice;
      } else {
        EXPECT_TRUE(requests[i].may_read_reencoded);
        if (requests[i].sampling.temperature > 0) continue;
        EXPECT_NEAR(answer.draws[0].logprob, expected.draws[0].logprob, 0.1) << "request " << i;
      }
    }
  }
  EXPECT_GT(outcome.stats.ladder.moves[static_cast<size_t>(MoveKind::reencode)].num_blocks, 0u);
  EXPECT_GT(num_reencoded, 0);
}

TEST_P(CompanyTest, BlocksThatWereMovedOutAndInChangeNothing) {
  for (bool prefix_caching : {true, false}) {
    expect_same_as_alone({.name = "scarce blocks over a host tier",
                          .block_size = 16,
                          .num_blocks = 14,
                          .num_host_blocks = 60,
                          .prefix_caching = prefix_caching});
    EXPECT_GT(last_stats_.num_preemptions, 0u);
    // Without a prefix cache what others finished is free, and may be room enough for who gave way.
    if (!prefix_caching) continue;
    EXPECT_GT(last_stats_.ladder.tokens_fetched, 0u);
    EXPECT_GT(last_stats_.ladder.moves[static_cast<size_t>(MoveKind::spill)].num_blocks, 0u);
  }
}

TEST_P(CompanyTest, BlocksOnDiskSurviveARestartAndDamageCostsOnlyWork) {
  testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "kv").string();
  const Variant variant{.name = "disk", .block_size = 16, .disk_path = path};
  expect_same_as_alone(variant);
  const LadderStats first = last_stats_.ladder;
  EXPECT_GT(first.disk.stored.num_blocks, 0u);
  EXPECT_EQ(first.disk.num_restored, 0u);

  expect_same_as_alone(variant);
  const LadderStats second = last_stats_.ladder;
  EXPECT_EQ(second.disk.num_restored, first.disk.stored.num_blocks);
  EXPECT_GT(second.disk.loaded.num_blocks, 0u);
  EXPECT_EQ(second.disk.num_failed_loads, 0u);

  // One bit in every block's bytes, whatever lies there.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  for (int64_t at = 4096 + 512; at < std::min<int64_t>(size, int64_t{64} << 20); at += 1024) {
    file.seekg(at);
    const int byte = file.get();
    if (byte == 0) continue;  // a hole, perhaps
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 4));
  }
  file.close();
  expect_same_as_alone(variant);
  EXPECT_GT(last_stats_.ladder.disk.num_failed_loads, 0u);
}

// The same of encoded blocks: what one step completes, another reads as stored, however rows are cut into steps.
class EncodedCompanyTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  KvFormats formats() const {
    const std::string& name = std::get<1>(GetParam());
    KvFormats formats;
    if (name == "int8") formats.sealed = KvFormat::int8;
    if (name == "int8_by_channel") formats.sealed = {KvFormat::int8, KvScales::per_channel, KvFormat::int8};
    if (name == "int8_int4") formats.sealed = {KvFormat::int8, KvFormat::int4};
    if (name == "fp16_q4_0") formats.sealed = {KvFormat::fp16, KvFormat::q4_0};
    if (name == "nvfp4_rotated") formats = {.sealed = KvFormat::nvfp4, .rotate = true};
    if (name == "int4_but_layer_1") formats = {.sealed = KvFormat::int4, .skipped_layers = {1}};
    return formats;
  }
  void expect_same_as_alone(Variant variant) {
    SCOPED_TRACE(variant.name);
    variant.formats = formats();
    const Outcome outcome = run(std::get<0>(GetParam()), variant, requests_, false);
    for (size_t i = 0; i < requests_.size(); ++i) {
      for (int32_t choice = 0; choice < requests_[i].num_choices; ++choice) {
        EXPECT_TRUE(outcome.answers[i][choice] == alone_.answers[i][choice]) << "request " << i << " choice " << choice;
      }
    }
    EXPECT_EQ(outcome.stats.num_blocks_held, 0);
    last_stats_ = outcome.stats;
  }

  const std::vector<Request> requests_ = make_requests(24);
  const Outcome alone_ =
      run(std::get<0>(GetParam()), {.name = "alone", .block_size = 16, .prefix_caching = false, .formats = formats()},
          requests_, true);
  EngineStats last_stats_;
};

TEST_P(EncodedCompanyTest, AnswersDependOnNobodyElse) {
  expect_same_as_alone({.name = "chunks of 17", .threads = 2, .block_size = 16, .chunk = 17, .order_seed = 3});
  expect_same_as_alone({.name = "slices of 20 rows", .block_size = 16, .chunk = 128, .max_rows = 20});
  expect_same_as_alone(
      {.name = "one token at a time", .block_size = 16, .chunk = 1, .max_num_seqs = 1, .prefix_caching = false});
  expect_same_as_alone({.name = "kv cache off", .block_size = 16, .max_num_seqs = 4, .kv_cache = false});
  expect_same_as_alone({.name = "prefix caching", .block_size = 16, .order_seed = 9});
  EXPECT_GT(last_stats_.prefix_cache_hits, 0u);
  expect_same_as_alone({.name = "scarce blocks", .block_size = 16, .num_blocks = 22});
  EXPECT_GT(last_stats_.num_preemptions, 0u);
  expect_same_as_alone({.name = "host tier", .block_size = 16, .num_blocks = 22, .num_host_blocks = 60});
  EXPECT_GT(last_stats_.ladder.moves[static_cast<size_t>(MoveKind::spill)].num_blocks, 0u);
}

TEST_P(EncodedCompanyTest, FormatsGiveAnswersOfTheirOwn) {
  const Outcome plain =
      run(std::get<0>(GetParam()), {.name = "fp16", .block_size = 16, .prefix_caching = false}, requests_, true);
  int num_different = 0;
  for (size_t i = 0; i < requests_.size(); ++i) num_different += plain.answers[i][0] != alone_.answers[i][0];
  EXPECT_GT(num_different, 0);
}

// Requests that ask for more than the cache's usual format get the answers of a server whose usual format that is.
class FormatsCompanyTest : public ::testing::TestWithParam<std::string> {
 protected:
  static KvFormatId format_of(size_t request) { return static_cast<KvFormatId>(request % 3); }

  // The requests of one format, alone on a server that has it as its usual one.
  Outcome on_own_server(size_t format) const {
    return run(GetParam(), {.name = "alone", .block_size = 16, .prefix_caching = false, .formats = formats_[format]},
               requests_, true);
  }
  void expect_same_as_alone(Variant variant) {
    SCOPED_TRACE(variant.name);
    variant.formats = formats_[0];
    variant.extra = {formats_[1], formats_[2]};
    std::vector<Request> requests = requests_;
    for (size_t i = 0; i < requests.size(); ++i) requests[i].kv_format = format_of(i);
    const Outcome outcome = run(GetParam(), variant, requests, false);
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int32_t choice = 0; choice < requests[i].num_choices; ++choice) {
        EXPECT_TRUE(outcome.answers[i][choice] == alone_[format_of(i)].answers[i][choice])
            << "request " << i << " choice " << choice;
      }
    }
    EXPECT_EQ(outcome.stats.kv_held_bytes, 0u);
    last_stats_ = outcome.stats;
  }

  const std::vector<KvFormats> formats_ = {
      {.sealed = KvFormat::int4, .rotate = true}, {.sealed = KvFormat::int8}, {.sealed = KvFormat::fp16}};
  const std::vector<Request> requests_ = make_requests(24);
  const std::vector<Outcome> alone_ = {on_own_server(0), on_own_server(1), on_own_server(2)};
  EngineStats last_stats_;
};

TEST_P(FormatsCompanyTest, AnswersAreThoseOfAServerOfTheirFormat) {
  expect_same_as_alone({.name = "together", .threads = 2, .block_size = 16, .chunk = 40});
  EXPECT_GT(last_stats_.prefix_cache_hits, 0u);
  for (size_t i = 0; i < 3; ++i) EXPECT_GT(last_stats_.kv_formats[i].cached, 0u) << i;
  expect_same_as_alone({.name = "chunks of 17", .block_size = 16, .chunk = 17, .max_rows = 20, .order_seed = 3});
  expect_same_as_alone({.name = "kv cache off", .block_size = 16, .max_num_seqs = 4, .kv_cache = false});
}

TEST_P(FormatsCompanyTest, AlsoWhereBlocksAreScarce) {
  // In blocks of int4; the longest request takes 12 of fp16, which are more than three times as large. Gemma's windowed
  // layers give blocks back.
  const int32_t num_blocks = GetParam() == "gemma3" ? 28 : 46;
  expect_same_as_alone({.name = "preempted", .block_size = 16, .num_blocks = num_blocks});
  EXPECT_GT(last_stats_.num_preemptions, 0u);
  expect_same_as_alone({.name = "host tier", .block_size = 16, .num_blocks = num_blocks, .num_host_blocks = 200});
  EXPECT_GT(last_stats_.ladder.moves[static_cast<size_t>(MoveKind::spill)].num_blocks, 0u);
}

TEST_P(FormatsCompanyTest, AlsoFromDisk) {
  testing::TemporaryFolder folder;
  const Variant variant{.name = "disk", .block_size = 16, .disk_path = (folder.path() / "kv").string()};
  expect_same_as_alone(variant);
  EXPECT_GT(last_stats_.ladder.disk.stored.num_blocks, 0u);
  expect_same_as_alone(variant);
  EXPECT_GT(last_stats_.ladder.disk.loaded.num_blocks, 0u);
  EXPECT_EQ(last_stats_.ladder.disk.num_failed_loads, 0u);
}

INSTANTIATE_TEST_SUITE_P(TinyModels, FormatsCompanyTest, ::testing::Values("llama", "gemma3"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(TinyModels, EncodedCompanyTest,
                         ::testing::Values(std::tuple{"llama", "int8"}, std::tuple{"gemma3", "int8"},
                                           std::tuple{"llama", "int8_by_channel"}, std::tuple{"gemma3", "int8_int4"},
                                           std::tuple{"llama", "fp16_q4_0"}, std::tuple{"llama", "nvfp4_rotated"},
                                           std::tuple{"llama", "int4_but_layer_1"}),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

INSTANTIATE_TEST_SUITE_P(TinyModels, CompanyTest, ::testing::Values("llama", "gemma3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tidemill

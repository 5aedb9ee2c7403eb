// The live meter over a real tiny model and a real engine: it changes no answer, keeps to its share, and finds what an
// offline replay of the same requests finds.
#include "runtime/kv_audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "engine/engine.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "test_data.h"

namespace tidemill {
namespace {

class Collector final : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override {
    for (const RequestEvent& event : events)
      if (event.kind == RequestEvent::Kind::token) draws[{event.request, event.choice}].push_back(event.draw);
  }
  std::map<std::pair<RequestId, int32_t>, std::vector<Draw>> draws;
};

// Lets a test see what it owns no longer.
class Watched final : public KvAuditor {
 public:
  Watched(std::unique_ptr<KvAudit> audit, AuditStats& seen) : audit_(std::move(audit)), seen_(seen) {}
  void offer(const EndedChoice& choice) override { audit_->offer(choice); }
  void note_step(int64_t num_rows) override { audit_->note_step(num_rows); }
  bool run() override {
    const uint64_t before = audit_->stats().computed_rows;
    const bool computed = audit_->run();
    seen_ = audit_->stats();
    EXPECT_LE(seen_.computed_rows - before, 16u) << "nobody waits for more";
    return computed;
  }
  const AuditStats& stats() const override { return audit_->stats(); }

 private:
  std::unique_ptr<KvAudit> audit_;
  AuditStats& seen_;
};

class KvAuditTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int32_t block_size = 16;

  void SetUp() override {
    auto backend = make_cpu_backend({.num_threads = 2});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto files = open_model_files(testing::golden_path("tiny-models/" + GetParam()));
    ASSERT_TRUE(files.ok());
    auto config = read_model_config(*files);
    ASSERT_TRUE(config.ok());
    auto model = load_model(*files->weights, *config, *backend_, {});
    ASSERT_TRUE(model.ok());
    model_ = *std::move(model);
    for (int32_t i = 0; i < 10; ++i) {
      Request request;
      request.label = "request " + std::to_string(i);
      for (int32_t k = 0; k < 20 + 7 * i; ++k) request.prompt.push_back((k * 37 + i * k) % 380);
      request.max_tokens = 12 + i;
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 0;
      request.has_seed = true;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.num_choices = i == 3 ? 2 : 1;
      request.kv_format = static_cast<KvFormatId>(i % 3);
      requests_.push_back(std::move(request));
    }
  }

  KvAuditOptions options(double share) const {
    return {.share = share,
            .formats = formats_,
            .reference = {KvFormat::fp32},
            .block_size_tokens = block_size,
            .max_tokens = 200,
            .seed = 1,
            .backend = backend_.get()};
  }

  // All requests at once; with share 0 nobody audits.
  Collector run(double share) {
    EngineConfig config;
    config.groups = block_groups(model_->kv_layout(), block_size, formats_.front());
    const std::span<const KvFormats> others = std::span(formats_).subspan(1);
    for (const KvFormats& each : others)
      config.extra_formats.push_back({.groups = block_groups(model_->kv_layout(), block_size, each),
                                      .tail_name = {},
                                      .sealed_name = {},
                                      .key = kv_format_key(each, block_size)});
    for (const BlockGroup& group : config.groups) config.kv_budget_bytes += group.sealed_bytes * 200;
    config.block_size_tokens = block_size;
    config.max_model_len_tokens = 256;
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 32;
    auto storage = KvStorage::make(model_->kv_layout(), block_size, formats_.front(), config.kv_budget_bytes,
                                   backend_.get(), others);
    EXPECT_TRUE(storage.ok());
    auto executor = std::make_unique<ModelExecutor>(
        *model_, **storage, ExecutorOptions{.max_num_seqs = 4, .max_rows = 64, .max_logit_rows = 8});
    std::unique_ptr<KvAuditor> auditor;
    if (share > 0) {
      auto made = KvAudit::make(*model_, options(share));
      EXPECT_TRUE(made.ok());
      auditor = std::make_unique<Watched>(*std::move(made), seen_);
    }
    Collector collector;
    SystemClock clock;
    Engine engine(config, std::move(executor), clock, collector, nullptr, std::move(auditor));
    ids_.clear();
    for (const Request& request : requests_) {
      auto accepted = engine.submit(request);
      EXPECT_TRUE(std::holds_alternative<RequestId>(accepted));
      ids_.push_back(std::get<RequestId>(accepted));
    }
    while (engine.step_once()) {
    }
    num_rows_ = 0;
    for (const auto& [id, draws] : collector.draws) num_rows_ += static_cast<int64_t>(draws.size());
    for (const Request& request : requests_) num_rows_ += static_cast<int64_t>(request.prompt.size());
    return collector;
  }

  // Every third request has the next of them.
  const std::vector<KvFormats> formats_{{KvFormat::int4}, {KvFormat::int8}, {KvFormat::bf16}};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<Request> requests_;
  std::vector<RequestId> ids_;
  AuditStats seen_;
  int64_t num_rows_ = 0;
};

TEST_P(KvAuditTest, ItChangesNoAnswer) {
  const Collector without = run(0), with = run(1);
  EXPECT_EQ(without.draws, with.draws);
  EXPECT_GT(seen_.num_done, 0u);
}

TEST_P(KvAuditTest, ItFindsWhatAnOfflineReplayFinds) {
  const Collector answers = run(1);
  ASSERT_FALSE(seen_.recent.empty());
  std::vector<std::unique_ptr<Lockstep>> replays;  // by format
  for (const KvFormats& each : formats_) {
    auto replay = Lockstep::make(*model_, {.reference = {KvFormat::fp32},
                                           .candidates = {each},
                                           .block_size_tokens = block_size,
                                           .max_tokens = 200,
                                           .max_rows = 128,
                                           .backend = backend_.get()});
    ASSERT_TRUE(replay.ok());
    replays.push_back(*std::move(replay));
  }
  std::vector<double> kl_sums(formats_.size());
  for (const AuditRecord& record : seen_.recent) {
    const auto index = static_cast<size_t>(std::ranges::find(ids_, record.request) - ids_.begin());
    ASSERT_LT(index, requests_.size());
    EXPECT_EQ(record.label, requests_[index].label);
    EXPECT_EQ(record.kv_format, requests_[index].kv_format);
    const std::vector<Draw>& draws = answers.draws.at({record.request, record.choice});
    std::vector<TokenId> tokens = requests_[index].prompt;
    for (const Draw& draw : draws) tokens.push_back(draw.token);
    double kl_sum = 0;
    size_t row_index = 0;
    replays[record.kv_format]->run(tokens, static_cast<int32_t>(requests_[index].prompt.size()) - 1,
                                   [&](size_t, int32_t, const RowDivergence& row) {
                                     kl_sum += row.kl;
                                     // The replayed row is the one that the answer was drawn from.
                                     EXPECT_FLOAT_EQ(static_cast<float>(row.logprob), draws[row_index++].logprob);
                                   });
    EXPECT_EQ(record.num_rows, static_cast<int64_t>(draws.size()));
    EXPECT_EQ(record.kl_sum, kl_sum);
    kl_sums[record.kv_format] += kl_sum;
  }
  ASSERT_EQ(seen_.recent.size(), seen_.num_done);
  for (size_t i = 0; i < formats_.size(); ++i) {
    EXPECT_GT(seen_.formats[i].num_rows, 0u) << "requests of every format are sampled";
    EXPECT_NEAR(seen_.formats[i].divergence.sum(), kl_sums[i], 1e-9 * kl_sums[i]);
  }
  EXPECT_GT(seen_.formats[0].worst_kl, seen_.formats[2].worst_kl) << "int4 is further off than bf16";
}

TEST_P(KvAuditTest, WhatReadReencodedCopiesStaysOut) {
  auto made = KvAudit::make(*model_, options(1));
  ASSERT_TRUE(made.ok());
  KvAudit& audit = **made;
  const std::vector<TokenId> tokens(40, 5);
  audit.offer({.request = 1, .tokens = tokens, .num_prompt_tokens = 20, .read_reencoded = true});
  audit.note_step(1000);
  EXPECT_FALSE(audit.run());
  EXPECT_EQ(audit.stats().num_reencoded, 1u);
  EXPECT_EQ(audit.stats().num_skipped, 0u);
  audit.offer({.request = 2, .tokens = tokens, .num_prompt_tokens = 20, .kv_format = 1});
  while (audit.run()) {
  }
  EXPECT_EQ(audit.stats().num_done, 1u);
  EXPECT_EQ(audit.stats().formats[1].num_rows, 20u);
}

TEST_P(KvAuditTest, ItKeepsToItsShare) {
  for (const double share : {0.1, 0.5, 1.0}) {
    run(share);
    EXPECT_LE(static_cast<double>(seen_.computed_rows), share * static_cast<double>(num_rows_));
    EXPECT_LE(seen_.num_done + seen_.num_skipped, 11u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KvAuditTest, ::testing::Values("llama", "gemma3"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tidemill

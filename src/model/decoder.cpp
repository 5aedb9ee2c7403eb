#include "model/decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

// Areas of the scratch begin at whole cache lines.
constexpr size_t line_floats = 16;

// Widest rows of any layer, in floats.
struct RowWidths {
  size_t query_key_value = 0;
  size_t attended = 0;
  size_t inner = 0;
  size_t branch = 0;

  void round_up() {
    for (size_t* width : {&query_key_value, &attended, &inner, &branch}) {
      *width = (*width + line_floats - 1) / line_floats * line_floats;
    }
  }
  size_t total() const { return query_key_value + attended + inner + branch; }
};

RowWidths row_widths(const DecoderSpec& spec) {
  RowWidths widths;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    const size_t query = static_cast<size_t>(attention.num_heads) * attention.head_dim;
    const size_t key = static_cast<size_t>(attention.num_kv_heads) * attention.head_dim;
    widths.query_key_value = std::max(widths.query_key_value, query + 2 * key);
    widths.attended = std::max(widths.attended, query);
    widths.inner = std::max(widths.inner, static_cast<size_t>(layer.feed_forward.inner_width));
    if (attention.post_norm || layer.feed_forward.post_norm) widths.branch = static_cast<size_t>(spec.width);
  }
  widths.round_up();
  return widths;
}

}  // namespace

KvLayout kv_layout_of(const DecoderSpec& spec) {
  KvLayout layout;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    const KvShape shape{
        .num_kv_heads = attention.num_kv_heads, .head_dim = attention.head_dim, .value_dim = attention.head_dim};
    auto group = std::find_if(layout.groups.begin(), layout.groups.end(), [&](const KvLayerGroup& candidate) {
      return candidate.window == attention.window && candidate.shape.num_kv_heads == shape.num_kv_heads &&
             candidate.shape.head_dim == shape.head_dim;
    });
    if (group == layout.groups.end()) {
      group = layout.groups.insert(group, {.layers = {}, .shape = shape, .window = attention.window});
    }
    group->layers.push_back(static_cast<int32_t>(i));
  }
  return layout;
}

Decoder::Decoder(DecoderSpec spec, Backend& backend)
    : spec_(std::move(spec)), backend_(backend), kv_layout_(kv_layout_of(spec_)) {}

Result<std::unique_ptr<Decoder>> Decoder::load(DecoderSpec spec, WeightReader& reader, Backend& backend) {
  std::unique_ptr<Decoder> decoder(new Decoder(std::move(spec), backend));
  Result<void> loaded = decoder->load_ends(reader);
  if (loaded) loaded = decoder->load_layers(reader);
  if (loaded) loaded = reader.check_all_read();
  if (!loaded) return loaded.error();
  decoder->place_layers();
  const DecoderSpec& s = decoder->spec_;
  decoder->info_ = {.family = s.family,
                    .vocab_size = s.vocab_size,
                    .context_length = s.context_length,
                    .num_layers = static_cast<int32_t>(s.layers.size()),
                    .width = s.width,
                    .num_parameters = reader.num_parameters(),
                    .weight_bytes = reader.weight_bytes(),
                    .largest_key_biases = {}};
  for (const Layer& layer : decoder->layers_)
    decoder->info_.largest_key_biases.push_back(layer.attention.largest_key_bias());
  return decoder;
}

Result<void> Decoder::load_ends(WeightReader& reader) {
  const MatrixRows table{.role = WeightRole::token_embedding, .num_rows = spec_.vocab_size, .more_rows_allowed = true};
  MatrixRows own_head = table;
  own_head.role = WeightRole::output_head;
  const VectorPart norm{WeightRole::output_norm, spec_.width, {}};
  const bool has_own_head =
      spec_.head == HeadWeights::own || (spec_.head == HeadWeights::own_or_tied && reader.has(WeightRole::output_head));

  Result<void> loaded = reader.load_matrix({&table, 1}, spec_.width, 0, MatrixLayout::stacked, embedding_);
  if (loaded && has_own_head) {
    loaded = reader.load_matrix({&own_head, 1}, spec_.width, 0, MatrixLayout::stacked, own_head_);
  }
  if (loaded) loaded = reader.load_norm(norm, 0, spec_.norm_offset, output_norm_);
  return loaded;
}

Result<void> Decoder::load_layers(WeightReader& reader) {
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const auto layer = static_cast<int32_t>(i);
    Result<AttentionLayer> attention = AttentionLayer::load(spec_, layer, reader);
    if (!attention) return attention.error();
    Result<FeedForwardLayer> feed_forward = FeedForwardLayer::load(spec_, layer, reader);
    if (!feed_forward) return feed_forward.error();
    layers_.push_back({std::move(*attention), std::move(*feed_forward)});
  }
  return {};
}

void Decoder::place_layers() {
  for (const RotarySpec& rotary : spec_.rotaries) {
    frequencies_.push_back(backend_.allocate(rotary.inverse_frequencies.size()));
    std::copy(rotary.inverse_frequencies.begin(), rotary.inverse_frequencies.end(), frequencies_.back()->data());
  }
  for (size_t g = 0; g < kv_layout_.groups.size(); ++g) {
    const std::vector<int32_t>& members = kv_layout_.groups[g].layers;
    for (size_t i = 0; i < members.size(); ++i) {
      const int32_t rotary = spec_.layers[members[i]].attention.rotary;
      const bool rotates = rotary != AttentionSpec::no_rotation;
      layers_[members[i]].attention.place({static_cast<int32_t>(g), static_cast<int32_t>(i)},
                                          rotates ? &spec_.rotaries[rotary] : nullptr,
                                          rotates ? frequencies_[rotary]->data() : nullptr);
    }
  }
}

size_t Decoder::reserve(int32_t max_rows, int32_t max_logit_rows) {
  max_rows_ = std::max(max_rows, max_rows_);
  max_logit_rows_ = std::max(max_logit_rows, max_logit_rows_);
  const auto rows = static_cast<size_t>(max_rows_);
  const auto logit_rows = static_cast<size_t>(max_logit_rows_);
  const RowWidths widths = row_widths(spec_);

  residual_ = backend_.allocate(rows * spec_.width);
  scratch_memory_ = backend_.allocate(rows * widths.total());
  wanted_ = backend_.allocate(logit_rows * spec_.width);
  logits_ = backend_.allocate(logit_rows * spec_.vocab_size);
  num_rows_ = 0;

  scratch_.query_key_value = scratch_memory_->data();
  scratch_.attended = scratch_.query_key_value + rows * widths.query_key_value;
  scratch_.inner = scratch_.attended + rows * widths.attended;
  scratch_.branch = scratch_.inner + rows * widths.inner;
  const size_t floats = rows * (spec_.width + widths.total()) +
                        logit_rows * (static_cast<size_t>(spec_.width) + static_cast<size_t>(spec_.vocab_size));
  return floats * sizeof(float);
}

void Decoder::forward(const StepInputs& inputs) {
  num_rows_ = static_cast<int32_t>(inputs.tokens.size());
  TM_CHECK(num_rows_ <= max_rows_, "a step has at most the reserved rows");
  TM_CHECK(inputs.positions.size() == inputs.tokens.size(), "every row has a position");
  TM_CHECK(inputs.groups.size() == kv_layout_.groups.size(), "a step has a view of every KV group");

  const Rows residual{residual_->data(), num_rows_, spec_.width};
  backend_.embed(*embedding_, inputs.tokens, spec_.embedding_scale, residual);
  for (const Layer& layer : layers_) {
    layer.attention.run(backend_, inputs, scratch_, residual);
    layer.feed_forward.run(backend_, scratch_, residual);
  }
}

Rows Decoder::logits(std::span<const int32_t> row_ids) {
  const auto count = static_cast<int32_t>(row_ids.size());
  TM_CHECK(count <= max_logit_rows_, "at most the reserved rows of logits are wanted");
  for (int32_t id : row_ids) TM_CHECK(id >= 0 && id < num_rows_, "logits are wanted of rows of the last step");

  const Rows wanted{wanted_->data(), count, spec_.width};
  const Rows output{logits_->data(), count, spec_.vocab_size};
  backend_.gather_rows({residual_->data(), num_rows_, spec_.width}, row_ids, wanted);
  backend_.product({.input = wanted,
                    .norm = {output_norm_->data(), spec_.norm_epsilon},
                    .matrix = &head(),
                    .scale = spec_.logit_scale,
                    .softcap = spec_.logit_softcap,
                    .output = output,
                    .label = {.name = "head"}});
  return output;
}

}  // namespace tidemill

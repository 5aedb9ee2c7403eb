// The limits within which a model's hyper-parameters are believed: far above what exists, low enough that products of
// them fit 64 bits and that loops over them end. Shared by the readers of both kinds of configuration.
#pragma once

#include <cstdint>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace tidemill {

inline constexpr Range<int64_t> layers_range{1, 4096};
inline constexpr Range<int64_t> width_range{1, 1 << 20};
inline constexpr Range<int64_t> heads_range{1, 65536};
inline constexpr Range<int64_t> head_size_range{1, 65536};
inline constexpr Range<int64_t> feed_forward_range{1, 1 << 24};
inline constexpr Range<int64_t> context_length_range{1, 1 << 30};
inline constexpr Range<int64_t> vocabulary_range{1, 1 << 24};
inline constexpr Range<int64_t> window_range{0, 1 << 30};
inline constexpr Range<int64_t> experts_range{0, 65536};
inline constexpr Range<double> epsilon_range{1e-30, 1.0};
inline constexpr Range<double> positive_range{1e-30, 1e30};
inline constexpr Range<double> any_range{-1e30, 1e30};
inline constexpr Range<double> cap_range{0.0, 1e30};

// Checks that only make sense on the whole: heads divide, head sizes, rotation. Fills what follows from the rest.
void finish_config(ModelConfig& config, ConfigReader& reader);

// The head size where the file does not say it.
int32_t head_size_from_width(const ModelConfig& config, ConfigReader& reader);

}  // namespace tidemill

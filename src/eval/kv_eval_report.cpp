#include "eval/kv_eval_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/svg_chart.h"
#include "bench/table.h"

namespace tidemill {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kinds = {TextKind::factual, TextKind::creative};

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json json_of_interval(const Interval& interval) {
  return {{"value", number(interval.value)}, {"ci_low", number(interval.low)}, {"ci_high", number(interval.high)}};
}

Json json_of_rows(const RowStatistics& rows) {
  return {{"tokens", rows.count()},
          {"perplexity", number(rows.perplexity())},
          {"reference_perplexity", number(rows.reference_perplexity())},
          {"perplexity_ratio", json_of_interval(rows.perplexity_ratio())},
          {"kl_mean", number(rows.mean_kl())},
          {"kl_median", number(rows.percentile_kl(50))},
          {"kl_p99", number(rows.percentile_kl(99))},
          {"kl_p999", number(rows.percentile_kl(99.9))},
          {"kl_worst", number(rows.worst_kl())},
          {"same_top", number(rows.same_top())}};
}

Json json_of_items(const ItemStatistics& items) {
  return {{"items", items.num_items},
          {"accuracy", number(items.accuracy())},
          {"reference_accuracy", number(items.reference_accuracy())},
          {"difference", json_of_interval(items.difference())},
          {"right_to_wrong", items.num_lost},
          {"wrong_to_right", items.num_won},
          {"mcnemar_p", items.p_value()}};
}

Json json_of_speed(const SpeedFigures& speed) {
  if (speed.context_tokens == 0) return nullptr;
  return {{"context_tokens", speed.context_tokens},
          {"sequences", 1},
          {"prefill_tokens_per_s", speed.prefill_tokens_per_s},
          {"decode_tokens_per_s", speed.decode_tokens_per_s}};
}

FidelityFigures figures_of(const RowStatistics& rows) {
  return {.mean_kl = rows.mean_kl(), .changed_top = 1 - rows.same_top(), .perplexity = rows.perplexity()};
}

// "high", or "none" below all gates, or "unmeasured".
std::string fidelity_text(const FormatFigures& format, const KvEvalResult& result) {
  const std::optional<KvFidelity> level = fidelity_of(format, result.floor());
  if (level) return std::string(kv_fidelity_name(*level));
  return format.texts.empty() || result.floor() == nullptr ? "unmeasured" : "none";
}

Json json_of_format(const FormatFigures& format, const KvEvalResult& result) {
  Json json = {{"name", format.format.name},
               {"bytes_per_token", format.bytes_per_token},
               {"fidelity", fidelity_text(format, result)},
               {"all", json_of_rows(format.all_rows())}};
  for (const TextKind kind : kinds) {
    json["by_kind"][text_kind_name(kind)] = json_of_rows(format.rows_of(kind));
    json["by_kind"][text_kind_name(kind)]["tasks"] = json_of_items(format.items_of(kind));
  }
  json["texts"] = Json::array();
  for (const TextFigures& text : format.texts) {
    Json row = {{"text", text.name},
                {"kind", text_kind_name(text.kind)},
                {"context_tokens", text.context_tokens},
                {"pieces", text.num_pieces}};
    row.update(json_of_rows(text.rows));
    json["texts"].push_back(std::move(row));
  }
  json["tasks"] = Json::array();
  for (const TaskFigures& task : format.tasks) {
    Json row = {{"task", task.name}, {"kind", text_kind_name(task.kind)}};
    row.update(json_of_items(task.items));
    row["scored_tokens"] = json_of_rows(task.rows);
    json["tasks"].push_back(std::move(row));
  }
  json["speed"] = json_of_speed(format.speed);
  return json;
}

// 0.000123 and 4.5 alike with three digits that mean something.
std::string small_text(double value) {
  if (!std::isfinite(value)) return "-";
  return value != 0 && std::abs(value) < 0.01 ? fmt::format("{:.2e}", value) : fmt::format("{:.4f}", value);
}

std::string percent_text(const Interval& ratio) {
  if (!std::isfinite(ratio.value)) return "-";
  return fmt::format("{:+.3f} ({:+.3f} {:+.3f})", (ratio.value - 1) * 100, (ratio.low - 1) * 100,
                     (ratio.high - 1) * 100);
}

std::string points_text(const Interval& difference) {
  if (!std::isfinite(difference.value)) return "-";
  return fmt::format("{:+.2f} ({:+.2f} {:+.2f})", difference.value * 100, difference.low * 100, difference.high * 100);
}

std::vector<int32_t> lengths_of(const KvEvalResult& result) {
  std::vector<int32_t> lengths;
  for (const FormatFigures& format : result.formats) {
    for (const TextFigures& text : format.texts) lengths.push_back(text.context_tokens);
  }
  std::ranges::sort(lengths);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

bool has_texts(const KvEvalResult& result) {
  return !lengths_of(result).empty();
}

bool has_tasks(const KvEvalResult& result) {
  return std::ranges::any_of(result.formats, [](const FormatFigures& format) { return !format.tasks.empty(); });
}

Table overview(const KvEvalResult& result) {
  Table table({"format", "bytes/token", "of reference", "KL mean", "KL 99.9 %", "KL worst", "same top %", "perplexity",
               "change % (95 %)", "tasks right %", "change (95 %)", "prefill tok/s", "decode tok/s", "fidelity"});
  for (const FormatFigures& format : result.formats) {
    const RowStatistics rows = format.all_rows();
    const ItemStatistics items = format.all_items();
    const SpeedFigures& speed = format.speed;
    const bool timed = speed.context_tokens > 0;
    table.add(
        {format.format.name, number_text(format.bytes_per_token, 0),
         number_text(
             static_cast<double>(format.bytes_per_token) / static_cast<double>(result.reference_bytes_per_token), 3),
         small_text(rows.mean_kl()), small_text(rows.percentile_kl(99.9)), small_text(rows.worst_kl()),
         number_text(rows.same_top() * 100, 2), number_text(rows.perplexity(), 4),
         percent_text(rows.perplexity_ratio()), number_text(items.accuracy() * 100, 2), points_text(items.difference()),
         timed ? number_text(speed.prefill_tokens_per_s, 0) : "-",
         timed ? number_text(speed.decode_tokens_per_s, 1) : "-", fidelity_text(format, result)});
  }
  return table;
}

Table by_kind(const KvEvalResult& result) {
  Table table({"format", "kind of text", "tokens", "perplexity", "change % (95 %)", "KL mean", "KL 99.9 %", "KL worst",
               "same top %", "tasks right %", "change (95 %)"});
  for (const FormatFigures& format : result.formats) {
    for (const TextKind kind : kinds) {
      const RowStatistics rows = format.rows_of(kind);
      const ItemStatistics items = format.items_of(kind);
      if (rows.count() == 0 && items.num_items == 0) continue;
      table.add({format.format.name, text_kind_name(kind), fmt::format("{}", rows.count()),
                 number_text(rows.perplexity(), 4), percent_text(rows.perplexity_ratio()), small_text(rows.mean_kl()),
                 small_text(rows.percentile_kl(99.9)), small_text(rows.worst_kl()),
                 number_text(rows.same_top() * 100, 2), number_text(items.accuracy() * 100, 2),
                 points_text(items.difference())});
    }
  }
  return table;
}

Table by_text(const KvEvalResult& result) {
  Table table({"format", "text", "context", "tokens", "perplexity", "reference's", "change % (95 %)", "KL mean",
               "KL 99.9 %", "KL worst", "same top %"});
  for (const FormatFigures& format : result.formats) {
    for (const TextFigures& text : format.texts) {
      const RowStatistics& rows = text.rows;
      table.add({format.format.name, text.name, fmt::format("{}", text.context_tokens), fmt::format("{}", rows.count()),
                 number_text(rows.perplexity(), 4), number_text(rows.reference_perplexity(), 4),
                 percent_text(rows.perplexity_ratio()), small_text(rows.mean_kl()),
                 small_text(rows.percentile_kl(99.9)), small_text(rows.worst_kl()),
                 number_text(rows.same_top() * 100, 2)});
    }
  }
  return table;
}

Table by_task(const KvEvalResult& result) {
  Table table({"format", "task", "kind", "items", "right %", "reference's", "change (95 %)", "lost", "won", "p",
               "KL mean", "same top %"});
  for (const FormatFigures& format : result.formats) {
    for (const TaskFigures& task : format.tasks) {
      const ItemStatistics& items = task.items;
      table.add({format.format.name, task.name, text_kind_name(task.kind), fmt::format("{}", items.num_items),
                 number_text(items.accuracy() * 100, 2), number_text(items.reference_accuracy() * 100, 2),
                 points_text(items.difference()), fmt::format("{}", items.num_lost), fmt::format("{}", items.num_won),
                 number_text(items.p_value(), 3), small_text(task.rows.mean_kl()),
                 number_text(task.rows.same_top() * 100, 2)});
    }
  }
  return table;
}

std::vector<LabeledPoint> points_of(const KvEvalResult& result, double (*loss)(const FormatFigures&)) {
  std::vector<LabeledPoint> points;
  for (const FormatFigures& format : result.formats)
    points.push_back({format.format.name, format.bytes_per_token, loss(format)});
  return points;
}

}  // namespace

std::optional<KvFidelity> fidelity_of(const FormatFigures& format, const FormatFigures* floor) {
  if (format.format.exact) return KvFidelity::exact;
  if (floor == nullptr || format.texts.empty() || floor->texts.size() != format.texts.size()) return std::nullopt;
  KvFidelity worst = KvFidelity::exact;
  for (size_t i = 0; i < format.texts.size(); ++i) {
    if (format.texts[i].rows.count() == 0) return std::nullopt;
    const auto level = measured_fidelity(figures_of(format.texts[i].rows), figures_of(floor->texts[i].rows));
    if (!level) return std::nullopt;
    worst = std::max(worst, *level);
  }
  return worst;
}

std::string kv_eval_tables(const KvEvalResult& result) {
  std::string text = overview(result).text() + "\n" + by_kind(result).text();
  if (has_texts(result)) text += "\n" + by_text(result).text();
  if (has_tasks(result)) text += "\n" + by_task(result).text();
  return text;
}

Json json_of(const KvEvalResult& result) {
  Json json = {{"schema", "tidemill-kv-eval/1"},
               {"complete", !result.stopped},
               {"seconds", result.seconds},
               {"reference",
                {{"name", result.reference.name},
                 {"bytes_per_token", result.reference_bytes_per_token},
                 {"speed", json_of_speed(result.reference_speed)}}}};
  for (const FidelityGate& gate : fidelity_gates) {
    json["gates"][std::string(kv_fidelity_name(gate.level))] = {{"most_mean_kl", gate.most_mean_kl},
                                                                {"most_changed_top", gate.most_changed_top},
                                                                {"most_perplexity_ratio", gate.most_perplexity_ratio}};
  }
  json["formats"] = Json::array();
  for (const FormatFigures& format : result.formats) json["formats"].push_back(json_of_format(format, result));
  return json;
}

Json json_of(const EvalData& data) {
  Json list = Json::array();
  for (const EvalFile& file : data.files) {
    list.push_back({{"name", file.digest.name},
                    {"kind", text_kind_name(file.kind)},
                    {"use", file.is_task ? "task" : "text"},
                    {"bytes", file.digest.size_bytes},
                    {"sha256", file.digest.sha256}});
  }
  return list;
}

std::string kv_eval_picture(const KvEvalResult& result, const std::string& subtitle) {
  SvgPage page("KV formats: size against loss", subtitle);
  const std::string x_title = "bytes per token";
  for (const TextKind kind : kinds) {
    const auto none = [kind](const FormatFigures& format) { return format.rows_of(kind).count() == 0; };
    if (std::ranges::all_of(result.formats, none)) continue;
    page.add_points(
        fmt::format("Mean KL divergence, {} text (nats a token)", text_kind_name(kind)), x_title,
        kind == TextKind::factual
            ? points_of(result, [](const FormatFigures& f) { return f.rows_of(TextKind::factual).mean_kl(); })
            : points_of(result, [](const FormatFigures& f) { return f.rows_of(TextKind::creative).mean_kl(); }));
  }
  if (has_texts(result)) {
    page.add_points("KL divergence, the worst token in a thousand", x_title,
                    points_of(result, [](const FormatFigures& f) { return f.all_rows().percentile_kl(99.9); }));
    page.add_points("Tokens whose likeliest successor changes (share)", x_title,
                    points_of(result, [](const FormatFigures& f) { return 1 - f.all_rows().same_top(); }));
  }
  if (has_tasks(result)) {
    page.add_points("Task items that change between right and wrong (share)", x_title,
                    points_of(result, [](const FormatFigures& f) {
                      const ItemStatistics items = f.all_items();
                      return static_cast<double>(items.num_lost + items.num_won) / static_cast<double>(items.num_items);
                    }));
  }
  return page.text();
}

namespace {

constexpr const char* page_style =
    "body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:75rem;margin:2rem auto;padding:0 "
    "1rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0}"
    "th,td{padding:.3rem .6rem;border-bottom:1px solid #ccc;text-align:right;white-space:nowrap}"
    "th{border-bottom:2px solid #444}td:first-child,th:first-child{text-align:left}"
    ".wide{overflow-x:auto}svg{max-width:100%;height:auto}pre{white-space:pre-wrap;font-size:12px}";

std::string html_table(const std::string& caption, const Table& table) {
  std::string html = fmt::format("<h2>{}</h2>\n<div class=\"wide\"><table>\n", xml_text(caption));
  for (size_t i = 0; i < table.rows().size(); ++i) {
    html += "<tr>";
    for (const std::string& cell : table.rows()[i])
      html += (i == 0 ? "<th scope=\"col\">" : "<td>") + xml_text(cell) + (i == 0 ? "</th>" : "</td>");
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

// Several lines, whose ends stay.
std::string xml_text_lines(const std::string& text) {
  std::string escaped;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    escaped += xml_text(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return escaped;
}

std::string method_of(const KvEvalResult& result) {
  std::string html = "<h2>How this was measured</h2>\n<ul>\n";
  const auto item = [&html](const std::string& text) { html += "<li>" + xml_text(text) + "</li>\n"; };
  item(fmt::format(
      "Every format read the same tokens as a cache in {}, row by row, in one process and over the same weights; the "
      "divergence is that of the two distributions over the whole vocabulary, summed in double precision.",
      result.reference.name));
  item("Texts are cut into pieces of each context length, each on its own; the second half of a piece is scored.");
  item(
      "A task's choice is the one whose continuation has the highest mean log-probability of a token; where there is "
      "but one continuation, it counts as right when every token of it is the likeliest.");
  item(
      "Intervals are 95 %, of paired differences; p is McNemar's exact test. lost: right under the reference only; "
      "won: right under the format only.");
  item("Bytes per token hold scales and padding. Speed is of one sequence alone, with the machine as it was.");
  item(fmt::format(
      "Where the model's activations are quantized, any change at all, even {} for fp32, moves a distribution by the "
      "noise of their rounding; a format's fidelity is what it loses beyond {}.",
      floor_format, floor_format));
  item("Fidelity exact: nothing is encoded, keys and values are fp16 or wider.");
  for (const FidelityGate& gate : fidelity_gates) {
    item(
        fmt::format("Fidelity {}: beyond {}, in every text and length, a mean KL divergence of at most {}, another "
                    "likeliest token in at most {:.1f} %, and a perplexity of at most {} times.",
                    kv_fidelity_name(gate.level), floor_format, gate.most_mean_kl, gate.most_changed_top * 100,
                    gate.most_perplexity_ratio));
  }
  return html + "</ul>\n";
}

std::string limits_of(const KvEvalResult& result) {
  std::string html = "<h2>Limits</h2>\n<ul>\n";
  const std::vector<int32_t> lengths = lengths_of(result);
  const auto item = [&html](const std::string& text) { html += "<li>" + xml_text(text) + "</li>\n"; };
  if (result.stopped) item("The run was ended before everything was measured.");
  if (lengths.empty()) {
    item("No running text was measured.");
  } else {
    item(fmt::format("The longest context that was measured has {} tokens; nothing is known of longer ones.",
                     lengths.back()));
  }
  item("Only the languages and subjects of the data named below were measured.");
  item("The figures hold for this model file, this version and these flags; with others the report is void.");
  return html + "</ul>\n";
}

}  // namespace

std::string kv_eval_page(const KvEvalResult& result, const std::string& model_name, const Json& json) {
  const std::string title = fmt::format("What the KV cache's format costs: {}", model_name);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<h1>{0}</h1>\n",
      xml_text(title), page_style);
  html += html_table("All formats", overview(result));
  html += kv_eval_picture(result, model_name);
  html += html_table("Factual and creative text", by_kind(result));
  if (has_texts(result)) html += html_table("By text and context length", by_text(result));
  if (has_tasks(result)) html += html_table("By task", by_task(result));
  html += method_of(result) + limits_of(result);
  html += "<h2>To repeat it</h2>\n<p>Model and data by their hashes, program, flags, machine, and every figure:</p>\n";
  html += "<details><summary>The whole result as JSON</summary>\n<pre>" + xml_text_lines(json.dump(1)) +
          "</pre></details>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace tidemill
